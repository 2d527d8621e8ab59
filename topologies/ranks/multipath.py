"""Which of several equal ports a flow takes: the hash of Open vSwitch's `multipath` action, as the controller has it.

That is `multipath(symmetric_l3l4+udp, basis, modulo_n)`: addresses, protocol and UDP ports, with the switch's datapath
id as basis.  Everything works on numbers and on arrays of 64-bit integers alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = TypeVar("Number", int, NDArray[np.int64])

_WORD = 0xFFFFFFFF
_UDP = 17
_ROCE_PORT = 4791


def member(source_ip: Number, target_ip: Number, source_port: Number, basis: Number, members: int) -> Number:
    """The member of a group of equal ports that a RoCEv2 flow takes at the switch with that datapath id."""
    ports = source_port ^ _ROCE_PORT
    mixed = _add(_add(basis, _mixed(_swapped(source_ip ^ target_ip))), _mixed(_UDP))
    mixed = _add(mixed, _mixed(ports >> 8 & 0xFF | (ports & 0xFF) << 8))
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
