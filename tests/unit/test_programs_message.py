"""Messages of remote procedure calls: Protocol Buffers' bytes, their lengths, and that nothing gets lost on the way."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.programs.costs import Work
from workloads.programs.message import HEADER_BYTES, Damaged, Shape, decode, encode, flatten, pieces, unflatten

SHAPES = st.builds(
    lambda levels, fields, strings: Shape(levels * (fields // 2) * 8 + strings, levels, fields),
    st.integers(1, 20), st.integers(1, 40), st.integers(0, 3000),
)  # fmt: skip


def test_bytes_are_those_of_the_encoding_guide() -> None:
    """protobuf.dev/programming-guides/encoding: 150 as a varint is 96 01; "testing" is 07 74 65 73 74 69 6e 67."""
    assert encode(((b"testing", 150),)).hex() == "0a07" + b"testing".hex() + "10" + "9601"
    inner = "0a01" + b"x".hex() + "1001"
    assert encode(((b"", 300), (b"x", 1))).hex() == "0a00" + "10ac02" + "1a05" + inner  # an embedded one: field 3
    long = encode((tuple(b"" if k % 2 == 0 else 1 for k in range(16)),))
    assert long[-3:].hex() == "8001" + "01"  # field 16 needs a tag of two bytes: 16 << 3 is 80 01


@given(SHAPES, st.integers(0, 2**40))
def test_what_is_serialized_comes_out_again(shape: Shape, seed: int) -> None:
    tree = shape.drawn(seed, 1, 2)
    wire, flat = encode(tree), flatten(tree)
    assert decode(wire, shape.fields) == unflatten(flat) == tree
    assert (len(wire), len(flat)) == (shape.wire_bytes(), shape.object_bytes)
    assert sum(8 if isinstance(v, int) else len(v) for level in tree for v in level) == shape.size_bytes
    covered = sorted(pieces(flat))
    assert covered[0][0] == 0 and sum(length for _, length in covered) == len(flat)
    assert all(a + length == b for (a, length), (b, _) in zip(covered, covered[1:], strict=False))
    if shape.size_bytes > 8:
        assert tree != shape.drawn(seed, 1, 3)


@given(SHAPES.filter(lambda s: s.size_bytes > 0), st.data())
def test_damaged_bytes_are_a_damaged_message_or_another(shape: Shape, data: st.DataObject) -> None:
    tree = shape.drawn(1)
    for bytes_of, read in ((encode, lambda b: decode(b, shape.fields)), (flatten, unflatten)):
        good = bytearray(bytes_of(tree))
        at = data.draw(st.integers(0, len(good) - 1))
        good[at] ^= data.draw(st.integers(1, 255))
        with suppress(Damaged):
            assert read(bytes(good)) != tree or bytes_of is flatten
        with pytest.raises(Damaged):
            read(bytes(bytes_of(tree)[:-1]) if len(tree) == 1 and bytes_of is encode else b"")


def test_work_is_counted_by_fields_levels_and_bytes() -> None:
    shape = Shape(1000, 3, 5)
    assert (shape.leaves, shape.strings, shape.least_bytes) == (15, 9, 48)
    assert shape.object_bytes == HEADER_BYTES + 15 * 16 + 1000 - 48
    assert Work(20, 50, 8e9).ns(shape) == 15 * 20 + 3 * 50 + 1000
