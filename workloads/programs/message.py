"""A message of a remote procedure call: as an object in memory, and serialized, in the wire format of Protocol Buffers.

It is a chain of messages, each in a field of the one around it.  Every one has the same number of scalar fields: odd
ones are strings, which carry what the size asks for, even ones integers of 28 bits, 8 bytes in memory and 4 serialized.

The object is what a program works on, in one piece of memory: a header, 16 bytes for each field (an integer, or the
place and length of a string), then all strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from workloads.base.data import noise

_HEADER = Struct("<QII")  # bytes of the object, levels, fields of each
_SLOT = Struct("<QQ")  # length of a string, else 0; where it is in the object, else the integer
SLOT_BYTES = _SLOT.size
HEADER_BYTES = _HEADER.size

_VARINT, _STRING = 0, 2
_INTEGERS = range(1 << 21, 1 << 28)  # four bytes as a varint
INTEGER_BYTES = 8


class Damaged(ValueError):
    """Bytes that are no message."""


Level = tuple["int | bytes", ...]
Tree = tuple[Level, ...]
"""The outermost message first."""


@dataclass(frozen=True)
class Shape:
    """Of a message whose fields have `size_bytes` in memory."""

    size_bytes: int
    levels: int
    fields: int

    @property
    def leaves(self) -> int:
        return self.levels * self.fields

    @property
    def strings(self) -> int:
        return self.levels * ((self.fields + 1) // 2)

    @property
    def least_bytes(self) -> int:
        """Of its integers alone."""
        return (self.leaves - self.strings) * INTEGER_BYTES

    @property
    def object_bytes(self) -> int:
        return HEADER_BYTES + self.leaves * SLOT_BYTES + self.size_bytes - self.least_bytes

    def lengths(self) -> list[int]:
        """Of its strings: nearly the same."""
        each, more = divmod(self.size_bytes - self.least_bytes, self.strings)
        return [each + (k < more) for k in range(self.strings)]

    def wire_bytes(self) -> int:
        """Serialized."""
        lengths, inner = self.lengths(), 0
        per = (self.fields + 1) // 2
        for level in reversed(range(self.levels)):
            total = 0
            for k in range(self.fields):
                length = lengths[level * per + k // 2]
                total += len(_varint((k + 1) << 3)) + (4 if k % 2 else len(_varint(length)) + length)
            if level < self.levels - 1:
                total += len(_varint((self.fields + 1) << 3)) + len(_varint(inner)) + inner
            inner = total
        return inner

    def drawn(self, *seed: int) -> Tree:
        """One of this shape, from a seed."""
        count = self.leaves - self.strings
        words = drawn(seed, count + -(-(self.size_bytes - self.least_bytes) // 8))
        integers = iter((words[:count] % len(_INTEGERS) + _INTEGERS.start).tolist())
        data, at = words[count:].tobytes(), 0
        strings = []
        for length in self.lengths():
            strings.append(data[at : at + length])
            at += length
        texts, fields = iter(strings), range(self.fields)
        return tuple(tuple(next(integers if k % 2 else texts) for k in fields) for _ in range(self.levels))


def drawn(seed: Sequence[int], count: int) -> NDArray[np.uint64]:
    """So many random words from a seed of several numbers."""
    first, *more = seed
    stream = 0
    for number in more:
        stream = stream * 1_000_003 + number + 1
    return noise(first, stream, count)


def wrong_bytes(data: bytes, want: bytes) -> int:
    """How many are not as they should be; those that are missing, or too many, too."""
    n = min(len(data), len(want))
    a, b = (np.frombuffer(raw, np.uint8, n) for raw in (data, want))
    return abs(len(want) - len(data)) + int(np.count_nonzero(a != b))


# Serialized


def encode(tree: Tree) -> bytes:
    """Serializes it: the innermost message first, for its length stands in front of it."""
    inner = b""
    for depth, level in enumerate(reversed(tree)):
        parts = []
        for k, value in enumerate(level):
            if isinstance(value, int):
                parts += [_varint((k + 1) << 3 | _VARINT), _varint(value)]
            else:
                parts += [_varint((k + 1) << 3 | _STRING), _varint(len(value)), value]
        if depth:
            parts += [_varint((len(level) + 1) << 3 | _STRING), _varint(len(inner)), inner]
        inner = b"".join(parts)
    return inner


def decode(wire: bytes, fields: int) -> Tree:
    """The message that was serialized, whose levels have so many fields.  Raises Damaged."""
    levels, begin, end = [], 0, len(wire)
    while True:
        values: list[int | bytes] = []
        at, inner = begin, None
        while at < end:
            tag, at = _read(wire, at, end)
            value, at = _read(wire, at, end)
            if tag >> 3 != len(values) + 1 or tag & 7 not in (_VARINT, _STRING) or len(values) > fields:
                raise Damaged(f"a tag of {tag} at byte {at}")
            if tag & 7 == _VARINT:
                values.append(value)
            elif at + value > end:
                raise Damaged(f"a string of {value} bytes at byte {at} of {end}")
            elif len(values) == fields:
                inner, at = (at, at + value), at + value
            else:
                values.append(wire[at : at + value])
                at += value
        if len(values) != fields:
            raise Damaged(f"{len(values)} fields, not {fields}")
        levels.append(tuple(values))
        if inner is None:
            return tuple(levels)
        begin, end = inner


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read(wire: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = wire[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    raise Damaged(f"no varint ends at byte {at}")


# In memory


def flatten(tree: Tree) -> bytes:
    """As an object."""
    slots, strings = bytearray(), []
    at = HEADER_BYTES + sum(map(len, tree)) * SLOT_BYTES
    for level in tree:
        for value in level:
            if isinstance(value, int):
                slots += _SLOT.pack(0, value)
            else:
                slots += _SLOT.pack(len(value), at)
                strings.append(value)
                at += len(value)
    return _HEADER.pack(at, len(tree), len(tree[0])) + bytes(slots) + b"".join(strings)


def unflatten(data: bytes) -> Tree:
    """The message of an object.  Raises Damaged."""
    if len(data) < HEADER_BYTES:
        raise Damaged(f"an object of {len(data)} bytes")
    nbytes, levels, fields = _HEADER.unpack_from(data)
    if nbytes > len(data) or HEADER_BYTES + levels * fields * SLOT_BYTES > nbytes:
        raise Damaged(f"{levels} levels of {fields} fields in {nbytes} of {len(data)} bytes")
    tree, slot = [], HEADER_BYTES
    for _ in range(levels):
        level: list[int | bytes] = []
        for k in range(fields):
            length, value = _SLOT.unpack_from(data, slot)
            slot += SLOT_BYTES
            if k % 2:
                level.append(value)
            elif value + length > nbytes:
                raise Damaged(f"a string of {length} bytes at byte {value} of {nbytes}")
            else:
                level.append(data[value : value + length])
        tree.append(tuple(level))
    return tuple(tree)


def pieces(data: bytes) -> list[tuple[int, int]]:
    """What a deserializer that keeps nothing writes, one after the other: (place, length) of header, slots, strings."""
    _, levels, fields = _HEADER.unpack_from(data)
    writes = [(0, HEADER_BYTES)]
    for k in range(levels * fields):
        slot = HEADER_BYTES + k * SLOT_BYTES
        writes.append((slot, SLOT_BYTES))
        length, at = _SLOT.unpack_from(data, slot)
        if length:
            writes.append((at, length))
    return writes
