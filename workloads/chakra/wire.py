"""Protocol buffers' wire format: fields of a message out of bytes that nobody vouches for, and bytes out of fields.

A message is a row of fields: a varint with number and wire type, and a value.  What a field means, the reader of the
message knows (et.py); fields that it does not know it passes over.  Every length is checked against what is there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_VARINT_BYTES = 10


class BadWire(ValueError):
    """Bytes that are no message: `what`, and at which byte."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"byte {at}: {what}")
        self.what, self.at = what, at


class Field(NamedTuple):
    """A field as it stands in the bytes: `value` of a varint or fixed number, or `start` to `end` of its bytes."""

    number: int
    kind: int
    value: int
    start: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, below 2**64, and where it ends.  Raises BadWire."""
    value = shift = 0
    for place in range(at, min(at + MOST_VARINT_BYTES, end)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & (1 << 64) - 1, place + 1
        shift += 7
    raise BadWire("a number that does not end" if end - at > MOST_VARINT_BYTES else "the data ends in a number", at)


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message from `start` to `end`.  Raises BadWire."""
    at = start
    while at < end:
        begin = at
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise BadWire(f"a field cannot have the number {number}", begin)
        value, first = 0, at
        if kind == VARINT:
            value, at = varint(data, at, end)
        elif kind == BYTES:
            size, first = varint(data, at, end)
            if size > end - first:
                raise BadWire(f"a field of {size} bytes, of which {end - first} are there", begin)
            at = first + size
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            if size > end - at:
                raise BadWire(f"a field of {size} bytes, of which {end - at} are there", begin)
            at = first + size
            value = int.from_bytes(data[first:at], "little")
        else:
            raise BadWire(f"there is no wire type {kind}", begin)
        yield Field(number, kind, value, first, at)


def numbers(data: bytes, field: Field) -> list[int]:
    """Of a repeated varint: the one of this field, or all of them, packed.  Raises BadWire."""
    if field.kind != BYTES:
        return [field.value]
    values, at = [], field.start
    while at < field.end:
        value, at = varint(data, at, field.end)
        values.append(value)
    return values


def text(data: bytes, field: Field) -> str:
    """Raises BadWire unless it is UTF-8."""
    if field.kind != BYTES:
        raise BadWire("a text is wanted here", field.start)
    try:
        return data[field.start : field.end].decode()
    except UnicodeDecodeError:
        raise BadWire("a text that is not UTF-8", field.start) from None


def signed(value: int, bits: int = 64) -> int:
    """Two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def zigzag(value: int) -> int:
    """Of sint32 and sint64."""
    return value >> 1 ^ -(value & 1)


def put_varint(value: int) -> bytes:
    """A number; a negative one as two's complement of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def put_number(number: int, value: int) -> bytes:
    return put_varint(number << 3 | VARINT) + put_varint(value)


def put_bytes(number: int, value: bytes) -> bytes:
    return put_varint(number << 3 | BYTES) + put_varint(len(value)) + value


def put_text(number: int, value: str) -> bytes:
    return put_bytes(number, value.encode())


def put_double(number: int, value: float) -> bytes:
    return put_varint(number << 3 | FIXED64) + struct.pack("<d", value)


def put_packed(number: int, values: list[int]) -> bytes:
    return put_bytes(number, b"".join(map(put_varint, values))) if values else b""
