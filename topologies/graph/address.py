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

    def covers(self, ip: IPv4Address) -> bool:
        return int(ip) & int(self.mask) == int(self.value)

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


def rail_place(ip: IPv4Address) -> tuple[int, int]:
    """(rail, server), the inverse of `rail_ip`."""
    return int(ip) >> 16 & 0xFF, (int(ip) & 0xFFFF) - 1


def rail_net(rail: int) -> Masked:
    """All NICs on one rail."""
    return _masked(rail << 16, 0xFF0000)


def clos_ip(pod: int, leaf: int, host: int) -> IPv4Address:
    """`leaf` counts inside the pod, `host` on the leaf."""
    return IPv4Address(BASE | pod << 16 | leaf << 8 | host + 1)


def clos_place(ip: IPv4Address) -> tuple[int, int, int]:
    """(pod, leaf in pod, host on leaf), the inverse of `clos_ip`."""
    return int(ip) >> 16 & 0xFF, int(ip) >> 8 & 0xFF, (int(ip) & 0xFF) - 1


def clos_net(pod: int, leaf: int | None = None) -> Masked:
    """All hosts of a pod, or of one leaf (counted inside the pod)."""
    if leaf is None:
        return _masked(pod << 16, 0xFF0000)
    return _masked(pod << 16 | leaf << 8, 0xFFFF00)


def star_ip(host: int) -> IPv4Address:
    return IPv4Address(BASE | host + 1)


def star_place(ip: IPv4Address) -> int:
    """The host's number, the inverse of `star_ip`."""
    return (int(ip) & 0xFFFF) - 1


def custom_ip(switch: int, place: int) -> IPv4Address:
    """`switch` is the number of a host's (first) switch, `place` counts the hosts on it from 1."""
    return IPv4Address(BASE | switch << 8 | place)


def torus_ip(dims: Sequence[int], coordinates: Sequence[int]) -> IPv4Address:
    packed = 0
    for size, coordinate in zip(dims, coordinates, strict=True):
        packed = packed << _bits(size) | coordinate
    return IPv4Address(BASE | packed << 1 | 1)


def torus_place(dims: Sequence[int], ip: IPv4Address) -> tuple[int, ...]:
    """The coordinates, the inverse of `torus_ip`."""
    return tuple(int(ip) >> shift & (1 << _bits(size)) - 1 for size, shift in zip(dims, _shifts(dims), strict=True))


def torus_net(dims: Sequence[int], axis: int, coordinate: int) -> Masked:
    """All hosts with this coordinate in dimension `axis`."""
    shift = _shifts(dims)[axis]
    return _masked(coordinate << shift, ((1 << _bits(dims[axis])) - 1) << shift)


def _bits(size: int) -> int:
    return (size - 1).bit_length()


def _shifts(dims: Sequence[int]) -> list[int]:
    """Where each dimension's field starts; bit 0 is always 1, so that no address ends in a zero network."""
    shifts = []
    shift = 1
    for size in reversed(dims):
        shifts.append(shift)
        shift += _bits(size)
    return shifts[::-1]


def _masked(value: int, mask: int) -> Masked:
    """The top byte is always part of the match: only fabric addresses are in 10/8."""
    return Masked(IPv4Address(BASE | value), IPv4Address(0xFF000000 | mask))
