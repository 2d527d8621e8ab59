"""Rings of NICs: right to the last bit, under faults and without memory, at the speed that the formula says."""

from __future__ import annotations

import selectors
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.ring_fabric import (
    ALL_GATHER,
    ALL_REDUCE,
    ENGINE,
    NONE,
    REDUCE_SCATTER,
    Rank,
    Ring,
    a_moment_passes,
    chunks_of,
    draw,
    fill,
    ranks,
    reduced,
    reduced_chunk,
    same,
    together,
)
from workloads.times import messages as closed_form
from workloads.times.wide import direct_reduce
from workloads.verbs import wire

HOSTS = 8
DTYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
OPS = ("sum", "min", "max", "prod", "avg")
FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
PATH = closed_form.Path.uniform(1, rate_bps=400e9, delay_ns=500, latency_ns=500)


Fabric = tuple[BareFabric, list[Rank]]


@pytest.fixture(scope="module")
def fabric() -> Iterator[Callable[[int], Fabric]]:
    """Fabrics by their number of ranks, each made once: all ranks take part, or the clock would wait for them."""
    made: dict[int, Fabric] = {}
    with ExitStack() as stack:

        def of(n: int) -> Fabric:
            if n not in made:
                made[n] = stack.enter_context(ranks(n))
            return made[n]

        yield of


@pytest.fixture
def eight(fabric: Callable[[int], Fabric]) -> Fabric:
    return fabric(HOSTS)


def check(ring: Ring, count: int, collective: int, op: str, seed: int) -> None:
    """One collective, and its results against numpy's."""
    members, dtype = ring.members, ring.dtype
    inputs = fill(members, dtype, count, seed)
    parts = chunks_of(count, len(members))
    if collective == ALL_GATHER:
        for m, own in zip(members, parts, strict=True):
            values = m.input(dtype, count)
            kept = values[own].copy()
            values.view(np.uint8)[:] = 0xEE
            values[own] = kept
    ring.run(count, collective, op)
    if collective == ALL_GATHER:
        whole = np.concatenate([inputs[g][chunk] for g, chunk in enumerate(parts)])
        assert all(same(m.input(dtype, count), whole) for m in members)
    elif collective == ALL_REDUCE:
        whole = reduced(inputs, dtype, op)
        assert all(same(m.output(dtype, count), whole) for m in members)
    else:
        for g, m in enumerate(members):
            out = m.output(dtype, count)
            assert same(out[parts[g]].copy(), reduced_chunk(inputs, dtype, op, g, parts[g]))
            rest = np.delete(out.view(np.uint8).reshape(count, -1), range(parts[g].start, parts[g].stop), axis=0)
            assert np.all(rest == 0xFF), "only our chunk is written"
    assert (
        all(same(m.input(dtype, count).copy(), x) for m, x in zip(members, inputs, strict=True))
        or collective == ALL_GATHER
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 8])  # others below
def test_the_same_bits_as_a_host_ring(fabric: Callable[[int], Fabric], n: int, dtype: str) -> None:
    _, members = fabric(n)
    ring = Ring(members, dtype, 1 << 18)
    for op in OPS:
        for count in (1, n + 1, 5000):
            check(ring, count, ALL_REDUCE, op, count)
        check(ring, 3001, REDUCE_SCATTER, op, 7)
    check(ring, 3001, ALL_GATHER, "sum", 8)
    ring.leave()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_any_two_numbers_of_eight_bits(fabric: Callable[[int], Fabric], dtype: str) -> None:
    """All 65,536 pairs, infinities, NaN and what overflows too, as ml_dtypes adds and multiplies them."""
    _, members = fabric(2)
    ring = Ring(members, dtype, 1 << 16)
    pairs = np.divmod(np.arange(1 << 16), 256)
    for op in ("sum", "prod", "avg"):
        for m, values in zip(members, pairs, strict=True):
            m.input(dtype, 1 << 16)[:] = values
        ring.run(1 << 16, ALL_REDUCE, op)
        expected = reduced([values.astype(np.uint8) for values in pairs], dtype, op).view(dtype).astype(np.float32)
        found = members[0].output(dtype, 1 << 16).view(dtype).astype(np.float32)
        np.testing.assert_array_equal(found, expected)
    ring.leave()


def test_groups_that_hang_cost_packets_nothing() -> None:
    """Four thousand groups for which one member never calls: packets of another find theirs without a look at them."""
    with ranks(2, 1 << 22) as (f, members):

        def cpu_ns() -> int:
            ring = Ring(members, "int8", 1 << 22)
            found = []
            for _ in range(3):
                before = f.cpu_ns()
                check(ring, 1 << 22, ALL_REDUCE, "sum", 1)
                found.append(f.cpu_ns() - before)
            ring.leave()
            return min(found)

        alone = cpu_ns()
        data = array("I", [0, 1]).tobytes()
        args = (64, wire.ELEMENTS["int8"], 0, NONE, 0, 0, 0, 0)
        calls = [wire.command(wire.GROUP, b"ring", 10_000 + k, k, 2, 0, *args, data=data) for k in range(4000)]
        for at in range(0, len(calls), 400):
            members[0].send(*calls[at : at + 400])
        beside = cpu_ns()
        assert beside < 1.5 * alone, (beside, alone)


@FEW
@given(
    n=st.sampled_from([2, 3, 4, 7, 8]), random=st.randoms(use_true_random=False), count=st.integers(1, 40_000),
    dtype=st.sampled_from(DTYPES), op=st.sampled_from(OPS),
    collective=st.sampled_from([ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER]),
)  # fmt: skip
def test_any_order_and_size(
    fabric: Callable[[int], Fabric], n: int, random: Random, count: int, dtype: str, op: str, collective: int
) -> None:
    _, members = fabric(n)
    ring = Ring(random.sample(members, n), dtype, 1 << 18)
    check(ring, count, collective, op, count)
    ring.leave()


FAULTS = {
    "loss": {"effect": "drop", "select": {"share": 0.01}},
    "duplication": {"effect": "duplicate", "select": {"share": 0.02}},
    "reordering": {"effect": "delay", "delay_ns": 3000, "jitter_ns": 3000, "reorder": True, "select": {"share": 0.02}},
    "corruption": {"effect": "corrupt", "select": {"share": 0.01}},
}


@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
@pytest.mark.parametrize("fault", FAULTS)
def test_under_faults_on_every_cable(fault: str, recovery: str) -> None:
    hardware = Hardware(nic={**ENGINE, "recovery": recovery}, timeout_ns=50_000, retry=50)
    with ranks(4, 1 << 21, hardware) as (f, members):
        ports = [f"h{i}:1" for i in range(4)] + [f"sw0:{i}" for i in range(1, 5)]
        f.fabricd.request("inject", fault="x", primitive="frames", ports=ports, **FAULTS[fault])
        ring = Ring(members, "float32", 1 << 21)
        for count in (1, 5000, 300_001):
            check(ring, count, ALL_REDUCE, "sum", count)
        check(ring, 100_000, REDUCE_SCATTER, "avg", 5)
        check(ring, 100_000, ALL_GATHER, "sum", 6)
        assert sum(f.nic(i)["retransmitted"] + f.nic(i)["duplicate_request"] for i in range(4)) > 0
        f.fabricd.request("heal", fault="x")


def moved(f: BareFabric, key: str) -> list[int]:
    return [f.nic(i)[key] for i in range(HOSTS)]


def test_the_input_crosses_pcie_once_and_so_do_results(eight: Fabric) -> None:
    """Partial sums never do."""
    f, members = eight
    ring = Ring(members, "float32", 1 << 20)
    count = (1 << 20) // 4
    keys = ("pcie_read_bytes", "pcie_write_bytes", "engine_added_packets", "engine_diverted_packets")
    before = {k: moved(f, k) for k in keys}
    check(ring, count, ALL_REDUCE, "sum", 1)
    per_rank = {k: {b - a for a, b in zip(before[k], moved(f, k), strict=True)} for k in keys}
    packets = (1 << 20) // HOSTS // 4096
    assert per_rank == {
        "pcie_read_bytes": {1 << 20}, "pcie_write_bytes": {1 << 20},
        "engine_added_packets": {(HOSTS - 1) * packets}, "engine_diverted_packets": {2 * (HOSTS - 1) * packets},
    }  # fmt: skip
    before = {k: moved(f, k) for k in keys}
    check(ring, count, REDUCE_SCATTER, "sum", 1)
    assert {b - a for a, b in zip(before[keys[1]], moved(f, keys[1]), strict=True)} == {(1 << 20) // HOSTS}
    ring.leave()


@pytest.mark.parametrize(
    ("collective", "formula"),
    [
        (ALL_REDUCE, direct_reduce.direct_all_reduce_ns),
        (REDUCE_SCATTER, direct_reduce.direct_reduce_scatter_ns),
        (ALL_GATHER, direct_reduce.direct_all_gather_ns),
    ],
)
@pytest.mark.parametrize("n", [4, 8])
def test_takes_what_the_formula_says(fabric: Callable[[int], Fabric], n: int, collective: int, formula: Any) -> None:
    _, members = fabric(n)
    ring = Ring(members, "float32", 1 << 20)
    for size in (1024, 65536, 1 << 18, 1 << 20):
        took = max(ring.run(size // 4, collective))
        assert formula(n, size, PATH, closed_form.Costs()) == pytest.approx(took, rel=0.02), size
    ring.leave()


def test_a_hop_costs_one_packet_of_fill(eight: Fabric) -> None:
    """Exactly: a packet of each rank, 14 hops. Way of a packet, engine, and at the ends doorbell, PCIe twice, post."""
    _, members = eight
    ring = Ring(members, "float32", 1 << 20)
    (took,) = set(ring.run(HOSTS * 1024))
    wire_ns = 2 * (4096 + 82) * 0.02 + 1500
    added = 4096 * 0.02
    ends = 100 + 500 + 500 + 64 + 64 + 500
    passed, acknowledged = 1e9 / 595.2e6, 86 * 0.02  # its own acknowledgement goes out before what is only passed on
    assert took == pytest.approx(ends + 14 * wire_ns + 7 * added + 6 * acknowledged + passed, abs=0.001)
    ring.leave()


def test_requests_follow_each_other_without_a_gap(eight: Fabric) -> None:
    """Ten at once: right, and doorbell, reading ahead and writing cost time once only."""
    _, members = eight
    count, many = 4096, 10
    ring = Ring(members, "float32", count * 4)
    alone = max(ring.run(count))
    inputs = fill(members, "float32", count * many, 3)
    (began,) = {m.time_ps for m in members}
    said = [[ring.request(m, count, at=4 * count * k, wr_id=k) for k in range(many)] for m in members]
    for records in together(members, said, many):
        assert [r.wr_id for r in records] == list(range(many))
        assert (records[-1].time_ps - began) / 1000 < many * alone - (many - 1) * 1000
    for k in range(many):
        part = slice(k * count, (k + 1) * count)
        whole = reduced([x[part] for x in inputs], "float32", "sum")
        assert all(same(m.output("float32", count * many)[part].copy(), whole) for m in members)
    ring.leave()


def test_a_rank_that_comes_late_is_waited_for(fabric: Callable[[int], Fabric]) -> None:
    f, members = fabric(3)
    count = 100_000
    inputs = fill(members, "float32", count, 9)
    ring = Ring(members, "float32", 1 << 20)
    late = members[1]
    began = late.time_ps
    said = [[*([wire.command(wire.SPEND, 200_000_000)] if m is late else []), ring.request(m, count)] for m in members]
    ends = [record.time_ps for (record,) in together(members, said)]
    assert min(ends) - began > 200_000_000
    assert all(same(m.output("float32", count), reduced(inputs, "float32", "sum")) for m in ring.members)
    assert f.nic(0)["rnr_nak_retry_err"] > 0, "its left neighbour was told to come again"
    ring.leave()


@pytest.mark.parametrize("memory", [1 << 20, 700_000])
def test_little_memory_means_small_parts(memory: int) -> None:
    with ranks(4, 1 << 21, Hardware(nic={**ENGINE, "engine_memory_bytes": memory})) as (f, members):
        ring = Ring(members, "float32", 1 << 21)
        assert not ring.refused
        used = f.nic(0)["engine_used_bytes"]
        assert 0 < used <= memory
        check(ring, 500_000, ALL_REDUCE, "sum", 1)
        assert Ring(members, "float32", 1 << 21).refused.startswith("the engine of rank 0's NIC has")
        ring.leave()
        a_moment_passes(members)
        assert f.nic(0)["engine_used_bytes"] == 0
        assert not Ring(members, "float32", 1 << 21).refused


def test_rings_leave_nothing_behind() -> None:
    """Many, one after the other, of every kind: memory is given back, and their queue pairs are used again."""
    with ranks(4) as (f, members):
        for i in range(30):
            dtype = DTYPES[i % 4]
            ring = Ring(members if i % 3 else members[::-1], dtype, 1 << 16)
            check(ring, 1000 + i, (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)[i % 3], "sum", i)
            ring.leave()
        a_moment_passes(members)
        assert [f.nic(i)["engine_used_bytes"] for i in range(4)] == [0] * 4
        assert len(f.counters()["qps"]) == 4 * 4, "two a rank in each direction of the ring"


def test_whoever_is_done_may_go() -> None:
    """What a rank has sent is its NIC's: others get it after the rank has left."""
    with ranks(4) as (f, members):
        ring = Ring(members, "float32", 1 << 20)
        inputs = fill(members, "float32", 100_000, 1)
        leave = wire.command(wire.LEAVE, ring.number, 0)
        for m in members:
            m.begin_wait(1, wire.FOREVER, ring.request(m, 100_000, REDUCE_SCATTER))
        with selectors.DefaultSelector() as waiting:
            for m in members:
                waiting.register(m.socket, selectors.EVENT_READ, m)
            while waiting.get_map():
                for key, _ in waiting.select(15):
                    key.data.end_wait()
                    waiting.unregister(key.fileobj)
                    key.data.send(leave)
                    key.data.bye()
        for g, (m, chunk) in enumerate(zip(members, chunks_of(100_000, 4), strict=True)):
            assert same(m.output("float32", 100_000)[chunk].copy(), reduced_chunk(inputs, "float32", "sum", g, chunk))
        f.fabricd.request("quiesce", 15.0)
        assert f.counters()["drops"] == []
        members.clear()


def test_a_rank_that_cannot_send_on_asks_to_come_again() -> None:
    """One edge loses nearly everything for a while: what its rank has taken is not overwritten by what still comes."""
    hardware = Hardware(nic={**ENGINE, "engine_memory_bytes": 1 << 20}, timeout_ns=20_000, retry=1000)
    with ranks(8, 1 << 21, hardware) as (f, members):
        ring = Ring(members, "float32", 1 << 21)
        f.fabricd.request(
            "inject", fault="x", primitive="frames", ports=["h1:1"], effect="drop", select={"share": 0.9},
            match={"opcodes": ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"]}, at_ns=1_005_000, for_ns=300_000,
        )  # fmt: skip
        check(ring, 500_000, ALL_REDUCE, "sum", 1)
        assert f.nic(1)["engine_full"] > 0


def test_own_packets_go_first_also_when_reading_is_slow() -> None:
    """What the left neighbour gathers comes in before our own chunk is read."""
    with ranks(4, 1 << 21, Hardware(nic=ENGINE, pcie_rate_bps=50e9)) as (_, members):
        ring = Ring(members, "float32", 1 << 21)
        check(ring, 400_000, ALL_GATHER, "sum", 1)
        check(ring, 400_000, ALL_REDUCE, "sum", 2)


def test_no_engine_no_ring() -> None:
    with ranks(2, hardware=Hardware()) as (_, members):
        assert Ring(members, "float32", 4096).refused == "the NIC of rank 0 has no engine"


def test_a_rank_that_dies_is_told_to_all() -> None:
    with ranks(4, 1 << 21, Hardware(nic=ENGINE, timeout_ns=20_000, retry=2)) as (_, members):
        ring = Ring(members, "float32", 1 << 21)
        fill(members, "float32", 1 << 19, 1)
        *living, dead = members
        dead.send(ring.request(dead, 1 << 19))
        dead.socket.close()
        members.remove(dead)
        for (record,) in together(living, [[ring.request(m, 1 << 19)] for m in living]):
            assert record.kind == wire.GROUP_FAILED
            assert "rank 3" in record.private.decode()


def test_a_neighbour_that_does_not_answer_is_told_to_all() -> None:
    with ranks(4, 1 << 21, Hardware(nic=ENGINE, timeout_ns=20_000, retry=2)) as (f, members):
        ring = Ring(members, "float32", 1 << 21)
        f.fabricd.request("cable", cable=f.fabric.cable_at["h2", 1].name, up=False, at_ns=1_010_000)
        for (record,) in together(members, [[ring.request(m, 1 << 19)] for m in members]):
            assert record.kind == wire.GROUP_FAILED
            said = record.private.decode()
            assert "does not acknowledge" in said and "rank 2" in said, "either end of its two edges finds it"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((4096, 9), "unknown element"),
        ((0, 0), "from 1 byte to 16 GiB"),
        ((4096, 1, 1), "are for float32"),
        ((4096, 0, 1, 1), "not both"),
        ((4096, 0, 2), "unknown element, compression or optimizer"),
    ],
)
def test_groups_that_cannot_be_made(args: tuple[int, ...], words: str) -> None:
    with ranks(2) as (_, members):
        given = (*args, *[0] * 8)[:8]
        members[0].send(wire.command(wire.GROUP, b"ring", 1, 1, 2, 0, *given, data=bytes([0, 0, 0, 0, 1, 0, 0, 0])))
        assert words in members.pop(0).reason()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 0}, "no elements"),
        ({"count": 2000}, "more than the group"),
        ({"collective": 9}, "unknown collective"),
        ({"collective": 3}, "there is no optimizer"),
        ({"at": 2}, "not aligned"),
        ({"at": 1 << 30}, "outside its region"),
    ],
)
def test_requests_that_cannot_be_posted(change: dict[str, int], words: str) -> None:
    with ranks(2) as (_, members):
        ring = Ring(members, "float32", 4096)
        fields: dict[str, Any] = {"count": 16, "collective": ALL_REDUCE, **change}
        first = members.pop(0)
        first.send(ring.request(first, fields.pop("count"), fields.pop("collective"), **fields))
        assert words in first.reason()


def test_two_runs_are_alike() -> None:
    """Byte for byte, also with losses: the counters of everything."""

    def once() -> Any:
        with ranks(4, hardware=Hardware(nic=ENGINE, timeout_ns=50_000)) as (f, members):
            f.fabricd.request(
                "inject", fault="x", primitive="frames", ports=["h1:1"], effect="drop", select={"share": 0.02}
            )
            ring = Ring(members, "float32", 1 << 20)
            fill(members, "float32", 200_000, 1, draw)
            took = ring.run(200_000)
            while members:
                members.pop().bye()
            f.fabricd.request("quiesce", 15.0)
            counters = f.counters()
            return took, counters["nics"], counters["qps"]

    assert once() == once()


@pytest.mark.parametrize("passed_ns", [0, 400])
def test_a_group_opens_a_reaction_after_the_last_call_whatever_the_clock_has_passed_meanwhile(passed_ns: int) -> None:
    """While a worker runs, the clock goes on until its next post would reach the NIC: past the time of its call."""
    members = array("I", [0, 1]).tobytes()
    call = wire.command(wire.GROUP, b"ring", 7, 3, 2, 0, 4096, wire.ELEMENTS["float32"], *[0] * 6, data=members)
    with ranks(3, hardware=Hardware(nic=ENGINE, reaction_ns=1000)) as (_, (running, waiting, other)):
        waiting.begin_wait(1, wire.FOREVER, call)
        other.wait(1, passed_ns * 1000)
        assert (running.time_ps, other.time_ps) == (0, passed_ns * 1000)
        other.begin_wait(1)
        running.begin_wait(1, wire.FOREVER, call)
        for w in (running, waiting):
            (opened,) = w.end_wait()
            assert (opened.kind, opened.time_ps, bytes(opened.private)) == (wire.GROUPED, 1_000_000, b"")
            w.send(wire.command(wire.LEAVE, opened.qp, 0))
