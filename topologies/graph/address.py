"""Addresses that encode a place, so that a switch routes with a few masked flows.

All lie in 10.0.0.0/8:
    rail         10.<rail>.<hi>.<lo>       <hi><lo> = server + 1
    clos         10.<pod>.<leaf in pod>.<host on leaf + 1>
    star         10.0.<hi><lo>             <hi><lo> = host + 1
    custom       10.<hi>.<lo>.<host on it + 1>  <hi><lo> = the number of the host's first switch
    torus, ring  10/8 + (coordinates, bit-packed) * 2 + 1: every dimension of size d takes
                 ceil(log2 d) bits, dimension 0 the highest of the bits in use
A MAC is 02:00 and the four bytes of the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

BASE = int(IPv4Address("10.0.0.0"))
WHOLE = 0xFFFFFFFF


class Masked(NamedTuple):
    """A set of addresses, as an OpenFlow match has it: those whose bits under `mask` are `value`'s."""

    value: IPv4Address
    mask: IPv4Address

    def __str__(self) -> str:
        return f"{self.value}/{self.mask}"


def mac(ip: IPv4Address) -> str:
    """The MAC of the NIC with this address."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in ip.packed)


def one(ip: IPv4Address) -> Masked:
    """Exactly this address."""
    return Masked(ip, IPv4Address(WHOLE))


def rail_ip(rail: int, server: int) -> IPv4Address:
    return IPv4Address(BASE | rail << 16 | server + 1)


def clos_ip(pod: int, leaf: int, host: int) -> IPv4Address:
    """`leaf` counts inside the pod, `host` on the leaf."""
    return IPv4Address(BASE | pod << 16 | leaf << 8 | host + 1)


def star_ip(host: int) -> IPv4Address:
    return IPv4Address(BASE | host + 1)


def custom_ip(switch: int, place: int) -> IPv4Address:
    """`switch` is the number of a host's (first) switch, `place` counts the hosts on it from 1."""
    return IPv4Address(BASE | switch << 8 | place)


def torus_ip(dims: Sequence[int], coordinates: Sequence[int]) -> IPv4Address:
    packed = 0
    for size, coordinate in zip(dims, coordinates, strict=True):
        packed = packed << _bits(size) | coordinate
    return IPv4Address(BASE | packed << 1 | 1)


def _bits(size: int) -> int:
    return (size - 1).bit_length()
