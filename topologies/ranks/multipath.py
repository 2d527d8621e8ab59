"""Which of several equal ports a flow takes: the hash of Open vSwitch's `multipath` action, as the controller has it.

That is `multipath(symmetric_l3l4+udp, basis, modulo_n)`: addresses, protocol and UDP ports, with a basis for each
switch.  A chip that hashes by the destination's queue pair as well (hardware/fabricd/switch/adaptive.c) has one word
more.  Everything works on numbers and on arrays of 64-bit integers alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = TypeVar("Number", int, NDArray[np.int64])

_WORD = 0xFFFFFFFF
_UDP = 17
_ROCE_PORT = 4791
_BASES = 0xFFFF  # of OpenFlow's extension: 16 bits


@dataclass(frozen=True)
class Hashing:
    """By what the switches of a fabric tell flows apart.

    `seed`: of all their hashes; None: each hashes by its datapath id.  `dest_qp`: by the queue pair that a packet is
    for, too.
    """

    seed: int | None = None
    dest_qp: bool = False

    def basis(self, dpid: Number) -> Number:
        """Of the hash of the switch with that datapath id.

        A seed makes a permutation of 16 bits: as with datapath ids no two switches share one, so that switches in a row
        choose independently.
        """
        if self.seed is None:
            return dpid
        key = _finish(_mixed(self.seed & _WORD) ^ _mixed(self.seed >> 32))
        mixed = (dpid ^ key) & _BASES
        for _ in range(2):
            mixed = mixed * 0x88B5 & _BASES
            mixed = (mixed ^ mixed >> 7) + (key >> 16) & _BASES
        return mixed


BY_NUMBER = Hashing()


def member(
    source_ip: Number,
    target_ip: Number,
    source_port: Number,
    basis: Number,
    members: int,
    dest_qp: Number | None = None,
) -> Number:
    """The member of a group of equal ports that a RoCEv2 flow takes at a switch whose hash has this basis.

    `dest_qp`: what it is for, where the switch looks at that.
    """
    ports = source_port ^ _ROCE_PORT
    mixed = _add(_add(basis, _mixed(_swapped(source_ip ^ target_ip))), _mixed(_UDP))
    mixed = _add(mixed, _mixed(ports >> 8 & 0xFF | (ports & 0xFF) << 8))
    if dest_qp is not None:
        mixed = _add(mixed, _mixed(dest_qp))
    return _finish(mixed ^ basis) % members


def _swapped(word: Number) -> Number:
    """A word as it lies in memory: in network byte order, read by a little-endian machine."""
    return (word & 0xFF) << 24 | (word & 0xFF00) << 8 | word >> 8 & 0xFF00 | word >> 24 & 0xFF


def _rotated(word: Number, bits: int) -> Number:
    return (word << bits | word >> 32 - bits) & _WORD


def _mixed(word: Number) -> Number:
    return _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD


def _add(hashed: Number, word: Number | int) -> Number:
    return (_rotated(hashed ^ word, 13) * 5 + 0xE6546B64) & _WORD


def _finish(mixed: Number) -> Number:
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    return mixed ^ mixed >> 16
