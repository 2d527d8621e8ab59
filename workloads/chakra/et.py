"""A trace of one rank (.et): a file of messages, each behind its length; first GlobalMetadata, then a Node each.

Field numbers are those of et_def.proto (Chakra, schema 0.0.4, and its later node types).  Fields, attributes and types
of nodes that are not known here are kept or passed over: what cannot be replayed, its reader says (graph.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workloads.base import named_file
from workloads.chakra import wire
from workloads.chakra.wire import BadWire, Field

VERSION = "0.0.4"
MOST_BYTES = 1 << 30
MOST_NODES = 1 << 20

Value = int | float | str | bytes | bool | list[int] | list[float] | list[bool] | list[str] | list[bytes]

NODE_TYPES = {
    0: "invalid",
    1: "metadata",
    2: "mem_load",
    3: "mem_store",
    4: "comp",
    5: "comm_send",
    6: "comm_recv",
    7: "comm_coll",
    8: "storage",
    9: "batch",
    10: "checkpoint",
}
TYPE_OF = {name: number for number, name in NODE_TYPES.items()}


class BadTrace(ValueError):
    """A trace that cannot be used: `what`, in which file, and of which node, if it is one's fault."""

    def __init__(self, what: str, file: str = "", node: str = "") -> None:
        super().__init__(": ".join(part for part in (file, node, what) if part))
        self.what, self.file, self.node = what, file, node


@dataclass
class Node:
    """One node; times as recorded."""

    id: int = 0
    name: str = ""
    type: int = 0
    ctrl_deps: list[int] = field(default_factory=list)
    data_deps: list[int] = field(default_factory=list)
    start_us: int = 0
    duration_us: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"node {self.id}" + (f" {self.name[:60]!r}" if self.name else "")

    @property
    def order_key(self) -> tuple[int, int]:
        """Of nodes that could be next the one for which this is least."""
        return self.start_us, self.id

    @property
    def type_name(self) -> str:
        return NODE_TYPES.get(self.type, str(self.type))


@dataclass
class Trace:
    """A file: what its metadata says, and its nodes in order."""

    nodes: list[Node] = field(default_factory=list)
    version: str = VERSION
    attributes: dict[str, Value] = field(default_factory=dict)


# -- reading


def read(path: Path) -> Trace:
    """Raises BadTrace."""
    try:
        data = named_file.read(path, MOST_BYTES)
    except named_file.Unreadable as error:
        raise BadTrace(f"cannot be read: {error.what}", str(path)) from None
    if data[:2] == b"\x1f\x8b":
        raise BadTrace("it is compressed: gunzip it first", str(path))
    return parse(data, str(path))


def parse(data: bytes, name: str = "trace") -> Trace:
    """Raises BadTrace."""
    trace, at, count = Trace(), 0, 0
    try:
        if not data:
            raise BadTrace("it is empty", name)
        while at < len(data):
            begin = at
            size, at = wire.varint(data, at, len(data))
            if size > len(data) - at:
                raise BadWire(f"a message of {size} bytes, of which {len(data) - at} are there", begin)
            if count > MOST_NODES:
                raise BadTrace(f"more than {MOST_NODES} nodes", name)
            if count:
                trace.nodes.append(_node(data, at, at + size))
            else:
                trace.version, trace.attributes = _metadata(data, at, at + size)
            at += size
            count += 1
    except BadWire as error:
        which = f"node number {count} (from 1), byte {error.at}" if count else f"metadata, byte {error.at}"
        raise BadTrace(f"no trace of Chakra: {error.what}", name, which) from None
    return trace


def _metadata(data: bytes, start: int, end: int) -> tuple[str, dict[str, Value]]:
    version = ""
    attributes: dict[str, Value] = {}
    for item in wire.fields(data, start, end):
        if item.number == 1:
            version = wire.text(data, item)
        elif item.number == 2 and item.kind == wire.BYTES:
            attributes.update(_attribute(data, item))
    return version, attributes


def _node(data: bytes, start: int, end: int) -> Node:
    node = Node()
    for item in wire.fields(data, start, end):
        match item.number:
            case 1:
                node.id = _number(item)
            case 2:
                node.name = wire.text(data, item)
            case 3:
                node.type = _number(item)
            case 4:
                node.ctrl_deps += wire.numbers(data, item)
            case 5:
                node.data_deps += wire.numbers(data, item)
            case 6:
                node.start_us = _number(item)
            case 7:
                node.duration_us = _number(item)
            case 10:
                if item.kind != wire.BYTES:
                    raise BadWire("an attribute is a message", item.start)
                node.attributes.update(_attribute(data, item))
    return node


def _number(item: Field) -> int:
    if item.kind != wire.VARINT:
        raise BadWire(f"field {item.number} is a number", item.start)
    return item.value


def _double(value: int) -> float:
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])


def _float(value: int) -> float:
    return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])


_SCALARS: Mapping[int, tuple[int, Callable[[int], int | float | bool]]] = {
    3: (wire.FIXED64, _double),
    5: (wire.FIXED32, _float),
    7: (wire.VARINT, lambda v: wire.signed(v, 32)),
    9: (wire.VARINT, wire.signed),
    11: (wire.VARINT, lambda v: v & 0xFFFFFFFF),
    13: (wire.VARINT, lambda v: v),
    15: (wire.VARINT, lambda v: wire.zigzag(v & 0xFFFFFFFF)),
    17: (wire.VARINT, wire.zigzag),
    19: (wire.FIXED32, lambda v: v),
    21: (wire.FIXED64, lambda v: v),
    23: (wire.FIXED32, lambda v: wire.signed(v, 32)),
    25: (wire.FIXED64, wire.signed),
    27: (wire.VARINT, bool),
}
"""Number of a value -> its wire type, and what its bits mean.  The number behind each is a list of such values."""
_STRING, _BYTES = 29, 31


def _attribute(data: bytes, message: Field) -> Iterator[tuple[str, Value]]:
    """Name and value; nothing of an attribute that has no value of a known kind."""
    name = ""
    value: Value | None = None
    for item in wire.fields(data, message.start, message.end):
        if item.number == 1:
            name = wire.text(data, item)
        elif item.number == 2:
            continue
        elif item.number in _SCALARS and item.kind == _SCALARS[item.number][0]:
            value = _SCALARS[item.number][1](item.value)
        elif item.number == _STRING:
            value = wire.text(data, item)
        elif item.number == _BYTES and item.kind == wire.BYTES:
            value = data[item.start : item.end]
        elif item.kind == wire.BYTES and item.number - 1 in (*_SCALARS, _STRING, _BYTES):
            value = _list(data, item)
    if value is not None:
        yield name, value


def _list(data: bytes, message: Field) -> Value:
    """Values of DoubleList, Int64List ..: field 1, repeated, numbers packed or not."""
    kind = message.number - 1
    values: list[int | float | bool | str | bytes] = []
    for item in wire.fields(data, message.start, message.end):
        if item.number != 1:
            continue
        if kind == _STRING:
            values.append(wire.text(data, item))
        elif kind == _BYTES:
            values.append(data[item.start : item.end])
        else:
            values += _packed(data, item, *_SCALARS[kind])
    return values  # type: ignore[return-value]  # all of one kind


def _packed(
    data: bytes, item: Field, kind: int, meaning: Callable[[int], int | float | bool]
) -> Iterable[int | float | bool]:
    if item.kind == kind:
        return [meaning(item.value)]
    if item.kind != wire.BYTES:
        raise BadWire("a list of numbers is wanted here", item.start)
    if kind == wire.VARINT:
        return [meaning(value) for value in wire.numbers(data, item)]
    width = 8 if kind == wire.FIXED64 else 4
    if (item.end - item.start) % width:
        raise BadWire(f"{item.end - item.start} bytes are no numbers of {width} bytes", item.start)
    places = range(item.start, item.end, width)
    return [meaning(int.from_bytes(data[at : at + width], "little")) for at in places]


# -- writing


def write(path: Path, trace: Trace) -> None:
    path.write_bytes(dump(trace))


def dump(trace: Trace) -> bytes:
    """The file's bytes."""
    metadata = wire.put_text(1, trace.version) + _put_attributes(2, trace.attributes)
    messages = [metadata, *map(_put_node, trace.nodes)]
    return b"".join(wire.put_varint(len(message)) + message for message in messages)


def _put_node(node: Node) -> bytes:
    return b"".join((
        wire.put_number(1, node.id) if node.id else b"",
        wire.put_text(2, node.name) if node.name else b"",
        wire.put_number(3, node.type) if node.type else b"",
        wire.put_packed(4, node.ctrl_deps),
        wire.put_packed(5, node.data_deps),
        wire.put_number(6, node.start_us) if node.start_us else b"",
        wire.put_number(7, node.duration_us) if node.duration_us else b"",
        _put_attributes(10, node.attributes),
    ))  # fmt: skip


def _put_attributes(number: int, attributes: Mapping[str, Value]) -> bytes:
    return b"".join(wire.put_bytes(number, wire.put_text(1, k) + _put_value(v)) for k, v in attributes.items())


def _put_value(value: Value) -> bytes:
    """As the kinds that traces have: bool, int64 below 0, else uint64, double, string; lists are not written."""
    if isinstance(value, bool):
        return wire.put_number(27, value)
    if isinstance(value, int):
        return wire.put_number(13 if value >= 0 else 9, value)
    if isinstance(value, float):
        return wire.put_double(3, value)
    if isinstance(value, str):
        return wire.put_text(_STRING, value)
    raise TypeError(f"an attribute of {type(value).__name__}")
