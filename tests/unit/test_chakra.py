"""Traces of Chakra: bytes as the specification of protocol buffers has them, or any; graphs there and back."""

from __future__ import annotations

import json
import struct
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.chakra import et, files, record, replay, wire
from workloads.chakra.et import BadTrace, Node, Trace
from workloads.chakra.names import OWN
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.oracle import oracle
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

WHOLE = st.integers(0, 2**64 - 1)

# -- bytes


@pytest.mark.parametrize(
    ("value", "encoded"),
    # protobuf.dev, encoding: 1 is 01, 150 is 96 01; a negative int64 is ten bytes of two's complement
    [(1, "01"), (150, "9601"), (0, "00"), (2**64 - 1, "ffffffffffffffffff01"), (-2, "feffffffffffffffff01")],
)
def test_varints_of_the_specification(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert wire.put_varint(value) == data
    assert wire.varint(data, 0, len(data)) == (value % 2**64, len(data))
    assert wire.signed(wire.varint(data, 0, len(data))[0]) == (value if value < 2**63 else -1)


@pytest.mark.parametrize(("value", "encoded"), [(0, 0), (-1, 1), (1, 2), (-2, 3), (2147483647, 4294967294)])
def test_zigzag_of_the_specification(value: int, encoded: int) -> None:
    assert wire.zigzag(encoded) == value


@given(WHOLE)
def test_varints_come_back(value: int) -> None:
    data = wire.put_varint(value)
    assert wire.varint(data + b"\xff", 0, len(data) + 1) == (value, len(data))
    for cut in range(len(data)):
        with pytest.raises(wire.BadWire):
            wire.varint(data, 0, cut)


def by_hand(*parts: str | bytes) -> bytes:
    return b"".join(bytes.fromhex(p) if isinstance(p, str) else p for p in parts)


def test_a_trace_written_out_by_hand() -> None:
    """Every byte from the encoding's specification and et_def.proto's numbers."""
    metadata = by_hand("0a05", b"0.0.4")  # 1: version
    size = by_hand("0a09", b"comm_size", "68", "808004")  # attr: 1 name; 13 uint64_val: 65536
    kind = by_hand("0a09", b"comm_type", "48", "00")  # 9 int64_val: ALL_REDUCE
    cpu = by_hand("0a09", b"is_cpu_op", "d801", "00")  # 27 bool_val
    group = by_hand("0a07", b"pg_name", "ea01", "01", b"7")  # 29 string_val
    node = by_hand(
        "0803", "1204", b"sum!", "1807",  # 1 id 3, 2 name, 3 type COMM_COLL
        "22020102", "28ac02",  # 4 ctrl_deps packed 1, 2; 5 data_deps unpacked 300
        "3096" "01", "38c801",  # 6 start 150, 7 duration 200
        "4200", "da0500",  # 8 inputs, and field 91, which nobody knows: passed over
        *(by_hand("52", wire.put_varint(len(a)), a) for a in (size, kind, cpu, group)),
    )  # fmt: skip
    trace = et.parse(by_hand(wire.put_varint(len(metadata)), metadata, wire.put_varint(len(node)), node))
    assert trace.version == "0.0.4" and len(trace.nodes) == 1
    attributes = {"comm_size": 65536, "comm_type": 0, "is_cpu_op": False, "pg_name": "7"}
    assert trace.nodes[0] == Node(3, "sum!", 7, [1, 2], [300], 150, 200, attributes)


def test_attributes_of_all_kinds() -> None:
    def attribute(name: str, *value: str | bytes) -> bytes:
        message = by_hand(wire.put_text(1, name), *value)
        return wire.put_bytes(10, message)

    numbers = struct.pack("<3d", 1.5, -2.0, 0.0), struct.pack("<2f", 0.5, -4.0)
    node = by_hand(
        wire.put_number(1, 1),
        attribute("double", "19", numbers[0][:8]), attribute("doubles", "221a0a18", numbers[0]),
        attribute("float", "2d", numbers[1][:4]), attribute("floats", "320a0a08", numbers[1]),
        attribute("int32", "38", "ffffffffffffffffff01"), attribute("int64s", "52020802" "", ""),
        attribute("sint64", "8801", "03"), attribute("fixed32", "9d01", "01000000"),
        attribute("sfixed64", "c901", "ffffffffffffffff"), attribute("bools", "e201", "05", "0a03", "010001"),
        attribute("strings", "f201", "06", "0a01", b"a", "0a01", b"b"), attribute("bytes", "fa01", "02", "00ff"),
        attribute("unpacked", "6204", "0802", "0803"), attribute("empty"),
    )  # fmt: skip
    trace = et.parse(by_hand("00", wire.put_varint(len(node)), node))
    assert trace.nodes[0].attributes == {
        "double": 1.5, "doubles": [1.5, -2.0, 0.0], "float": 0.5, "floats": [0.5, -4.0], "int32": -1, "int64s": [2],
        "sint64": -2, "fixed32": 1, "sfixed64": -1, "bools": [True, False, True], "strings": ["a", "b"],
        "bytes": b"\x00\xff", "unpacked": [2, 3],
    }  # fmt: skip


values = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=20))
node_strategy = st.builds(
    Node, WHOLE, st.text(max_size=20), st.integers(0, 200), st.lists(WHOLE, max_size=5), st.lists(WHOLE, max_size=5),
    WHOLE, WHOLE, st.dictionaries(st.text(max_size=8), values, max_size=5),
)  # fmt: skip
traces = st.builds(
    Trace, st.lists(node_strategy, max_size=5), st.text(max_size=8), st.dictionaries(st.text(max_size=4), values)
)


@given(traces)
def test_traces_come_back(trace: Trace) -> None:
    assert et.parse(et.dump(trace)) == trace


@given(traces.map(et.dump), st.data())
def test_damaged_traces_are_refused_or_read_but_nothing_else_happens(data: bytes, drawn: st.DataObject) -> None:
    changed = bytearray(data)
    for _ in range(drawn.draw(st.integers(1, 4))):
        at = drawn.draw(st.integers(0, len(changed)))
        match drawn.draw(st.sampled_from(("set", "cut", "put"))):
            case "set" if at < len(changed):
                changed[at] = drawn.draw(st.integers(0, 255))
            case "cut":
                del changed[at : at + drawn.draw(st.integers(1, 9))]
            case _:
                changed[at:at] = drawn.draw(st.binary(max_size=9))
    read_or_refused(bytes(changed))


@given(st.binary(max_size=300))
@example(b"\xff" * 20)
@example(b"\x02\x0a\xff")
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    read_or_refused(data)


def test_more_nodes_than_memory_is_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte is a node: an empty message."""
    monkeypatch.setattr(et, "MOST_NODES", 100)
    assert len(et.parse(bytes(101)).nodes) == 100
    with pytest.raises(BadTrace, match="some: more than 100 nodes"):
        et.parse(bytes(102), "some")


def read_or_refused(data: bytes) -> None:
    try:
        trace = et.parse(data, "some.0.et")
    except BadTrace as error:
        assert str(error).startswith("some.0.et: ")
        return
    try:
        replay.graph({0: trace})
    except BadTrace as error:
        assert str(error)


# -- graphs there and back


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Ranks that follow one script: some compute, all members of a tuple do a collective, two exchange a message."""
    ranks = draw(st.integers(1, 4))
    half = (tuple(range(ranks // 2)), tuple(range(ranks // 2, ranks)))
    groups = {"all": (tuple(range(ranks)),), "halves": tuple(g for g in half if g), "one": ((0,),)}
    tasks: dict[int, list[Task]] = {rank: [] for rank in range(ranks)}

    def common(rank: int, number: int) -> dict[str, Any]:
        known = [t.id for t in tasks[rank]]
        after = draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        stream = draw(st.sampled_from(("main", "net", "stream, {odd}")))
        kind, earliest = draw(st.sampled_from(("", "f"))), draw(st.sampled_from((0.0, 12.5)))
        told = {"id": f"t{number}é", "stream": stream, "after": tuple(after), "kind": kind}
        return {**told, "not_before_ns": earliest}

    for number in range(draw(st.integers(0, 8))):
        what = draw(st.sampled_from(("compute", "collective", "message")))
        if what == "compute":
            rank = draw(st.integers(0, ranks - 1))
            ns = draw(st.one_of(st.integers(0, 10**9), st.floats(0, 1e12)))
            tasks[rank].append(Compute(**common(rank, number), duration_ns=ns))
        elif what == "collective":
            group = draw(st.sampled_from(sorted(groups)))
            members = draw(st.sampled_from(groups[group]))
            same = {
                "collective": draw(st.sampled_from(("all_reduce", "all_gather", "gather", "broadcast", "m2n"))),
                "group": group, "size_bytes": draw(st.integers(0, 2**40)),
                "algorithm": draw(st.sampled_from((None, "ring"))),
                "dtype": draw(st.sampled_from(("float32", "int8"))), "op": draw(st.sampled_from((None, "max"))),
            }  # fmt: skip
            for rank in members:
                tasks[rank].append(Collective(**common(rank, number), **same))
        elif ranks > 1:
            a, b = draw(st.permutations(range(ranks)))[:2]
            ends: dict[str, Any] = {
                "size_bytes": draw(st.integers(0, 2**31)),
                "tag": draw(st.sampled_from(("", "x", "y"))),
            }
            ends["group"] = draw(st.sampled_from(("", "all")))
            tasks[a].append(Send(**common(a, number), **ends, peer=b))
            tasks[b].append(Recv(**common(b, number), **ends, peer=a))
    settings = {"all": Settings(5, {"all_reduce": "ring"}, {"slots": 8})} if draw(st.booleans()) else {}
    idle = [rank for rank, its in tasks.items() if rank and not its and draw(st.booleans())]  # it has no list at all
    return Graph(groups, {rank: tuple(its) for rank, its in tasks.items() if rank not in idle}, settings)


@given(graphs())
def test_a_graph_that_is_written_is_read_back_as_it_was(graph: Graph) -> None:
    written = {rank: et.parse(et.dump(trace)) for rank, trace in record.record(graph).items()}
    assert replay.graph(written) == graph


@given(graphs())
def test_others_read_what_is_written_as_well(graph: Graph) -> None:
    """Without our attribute: the same tasks with the same ends, waiting for as much, so nothing is earlier."""
    written = record.record(graph)
    for trace in written.values():
        trace.attributes.clear()
        for node in trace.nodes:
            del node.attributes[OWN]
            if node.type_name == "comm_coll":
                node.attributes.setdefault("comm_type", 6)
    read = replay.graph(written, record.groups(graph))
    times = oracle(read, lambda rank, task: 100.0)
    for rank, its in read.tasks.items():
        for stream in ("gpu", "comm"):
            spans = sorted(times[rank, t.id] for t in its if t.stream == stream)
            assert all(a[1] <= b[0] for a, b in pairwise(spans))
    for rank, tasks in graph.tasks.items():
        found = {t.id.partition(" ")[0]: t for t in read.tasks[rank]}
        alone = {k for k, t in enumerate(tasks, 1) if isinstance(t, Collective) and len(graph.members(rank, t)) == 1}
        assert {*map(int, found)} == {*range(1, len(tasks) + 1)} - alone
        for number, task in enumerate(tasks, 1):
            if number in alone:
                continue
            other = found[str(number)]
            assert type(other) is type(task)
            if isinstance(task, Send | Recv) and isinstance(other, Send | Recv):
                assert (other.peer, other.size_bytes) == (task.peer, task.size_bytes)
            if isinstance(task, Compute) and isinstance(other, Compute):
                assert abs(other.duration_ns - task.duration_ns) <= 500


def test_files_are_found_by_folder_or_by_prefix_with_their_groups(tmp_path: Path) -> None:
    graph = Graph(
        {"dp": ((0, 1), (2, 3))},
        {r: (Collective(id="g", collective="all_reduce", group="dp", size_bytes=64),) for r in range(4)},
    )
    written = record.write(graph, tmp_path / "traces", "gpt")
    assert [p.name for p in written] == ["gpt.0.et", "gpt.1.et", "gpt.2.et", "gpt.3.et", "gpt.json"]
    assert json.loads(written[-1].read_text()) == {"1": [0, 1], "2": [2, 3]}
    assert files.load(tmp_path / "traces") == files.load(tmp_path / "traces/gpt", written[-1]) == graph
    record.write(graph, tmp_path / "traces", "other")
    with pytest.raises(BadTrace, match="several traces in this folder: name one of .*/gpt, .*/other"):
        files.load(tmp_path / "traces")
    (tmp_path / "traces/gpt.1.et").unlink()
    with pytest.raises(BadTrace, match=r"gpt\.1\.et: missing: there are traces of ranks 0, 2, 3"):
        files.load(tmp_path / "traces/gpt")
    with pytest.raises(BadTrace, match="there are no traces"):
        files.load(tmp_path / "nothing")
    (tmp_path / "traces/gpt.1.et").write_bytes(b"\x1f\x8b12")
    with pytest.raises(BadTrace, match="gunzip it first"):
        files.load(tmp_path / "traces/gpt")


@pytest.mark.parametrize(
    ("text", "said"),
    [("[", "not JSON"), ("[]", "mapping of names"), ('{"1": []}', "no list of ranks"), ('{"1": [true]}', "no list of"),
     ('{"1": [0, 0]}', "a rank twice"), ('{"1": [-1]}', "no list of ranks")],
)  # fmt: skip
def test_bad_groups(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "groups.json"
    path.write_text(text)
    with pytest.raises(BadTrace, match=said):
        files.read_groups(path)


def test_a_rank_far_off_costs_nothing(tmp_path: Path) -> None:
    for rank in (0, 9_999_999):
        et.write(tmp_path / f"t.{rank}.et", Trace())
    tracemalloc.start()
    try:
        with pytest.raises(BadTrace, match=r"t\.1\.et: missing"):
            files.load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
