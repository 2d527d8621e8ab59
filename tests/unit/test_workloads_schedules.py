"""Workloads on the fake fabric: any group, size, type and reduction, with messages that take any time."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import Line, collective, flows, plan, run
from workloads import worker
from workloads.base.vocabulary import DTYPES, OPS, combines
from workloads.collectives import execution, ring
from workloads.collectives.schedule import spans
from workloads.verbs import CompletionError, Device, FabricError, wire

FULL = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MIB = 1 << 20


@given(st.integers(2, 24), st.integers(0, 23))
def test_each_rank_receives_what_its_left_neighbour_sends(ranks: int, index: int) -> None:
    index %= ranks
    for hops in (ring.reducing, ring.gathering):
        left = hops(ranks, (index - 1) % ranks)
        assert [(hop.receive, hop.reduce) for hop in hops(ranks, index)] == [(hop.send, hop.reduce) for hop in left]


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_chunks_cover_the_vector_evenly(count: int, ranks: int) -> None:
    parts = spans(count, ranks)
    lengths = [part.stop - part.start for part in parts]
    assert [part.start for part in parts[1:]] + [count] == [part.stop for part in parts]
    assert parts[0].start == 0 and max(lengths) - min(lengths) <= 1 and lengths == sorted(lengths, reverse=True)


@FULL
@given(
    st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)), st.integers(2, n))),
    st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]),
    st.sampled_from([(dtype, op) for dtype in sorted(DTYPES) for op in OPS if combines(op, dtype)]),
    st.lists(st.integers(0, 40) | st.integers(0, 60_000), min_size=1, max_size=3),
    st.integers(0, 2**32),
)
def test_ring_collectives_are_right_whatever_the_timing(
    place: tuple[int, list[int], int], name: str, kind: tuple[str, str], counts: list[int], seed: int
) -> None:
    (ranks, order, members), (dtype, op) = place, kind
    group = order[:members]
    sizes = [count * DTYPES[dtype] for count in counts]
    step = collective(name, sizes, dtype=dtype, op=op, ranks=group, iterations=2, warmup=1)
    fake = FakeFabric(ranks, seed)
    lines, errors = run(fake, plan(ranks, step))
    assert (fake.error, errors) == (None, [])
    assert sorted((line["rank"], line["size_bytes"], line["iteration"]) for line in lines) == sorted(
        (rank, size, iteration) for rank in group for size in sizes for iteration in range(2)
    )
    assert {line["wrong"] for line in lines} == {0}


@FULL
@given(
    st.sampled_from(["write", "send"]),
    st.permutations(range(3)),
    st.lists(st.integers(0, 100_000), min_size=1, max_size=3),
    st.integers(0, 2**32),
)
def test_ping_pong_brings_back_what_was_sent(algorithm: str, order: list[int], counts: list[int], seed: int) -> None:
    sizes = [count * 4 for count in counts]
    step = collective("ping_pong", sizes, algorithm=algorithm, ranks=order[:2], iterations=3, warmup=1)
    fake = FakeFabric(3, seed)
    lines, errors = run(fake, plan(3, step))
    assert (fake.error, errors) == (None, [])
    assert len(lines) == 2 * 3 * len(sizes)
    assert {line["wrong"] for line in lines} == {0}


@st.composite
def flow_sets(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int, float]]]:
    ranks = draw(st.integers(2, 6))
    ends = st.tuples(st.integers(0, ranks - 1), st.integers(1, ranks - 1)).map(lambda e: (e[0], sum(e) % ranks))
    sizes = st.sampled_from([0, 1, 5000, MIB, MIB + 1, 3 * MIB - 7]) | st.integers(0, 2 * MIB)
    starts = st.sampled_from([0.0, 1000.0, 123.456]) | st.floats(0, 1e6)
    made = draw(st.lists(st.tuples(ends, sizes, starts), min_size=1, max_size=6))
    return ranks, [(a, b, size, start) for (a, b), size, start in made]


@settings(FULL, max_examples=15)
@given(flow_sets(), st.integers(0, 2**32))
@example((2, [(0, 1, 70 * MIB, 0.0)]), 1)  # more than a receiver keeps
@example((2, [(0, 1, 5000, 0.0), (1, 0, 1, 123.4564)]), 1)  # a start between two picoseconds
def test_flows_arrive_whole_from_both_ends_view(made: tuple[int, list[tuple[int, int, int, float]]], seed: int) -> None:
    ranks, ends = made
    fake = FakeFabric(ranks, seed)
    lines, errors = run(fake, plan(ranks, flows(*ends), flows(*ends)))
    assert (fake.error, errors) == (None, [])
    for step in (0, 1):
        seen = sorted((line["flow"], line["role"]) for line in lines if line["step"] == step)
        assert seen == sorted((k, role) for k in range(len(ends)) for role in ("sender", "receiver"))
        begins = {round(line["start_ns"] - ends[line["flow"]][3], 2) for line in lines if line["step"] == step}
        assert max(begins) - min(begins) < 0.02, "flows count from one common time"
    for line in lines:
        assert line["wrong"] == 0
        assert line["rank"] == line["from" if line["role"] == "sender" else "to"]
        assert line["end_ns"] > line["start_ns"]


def test_steps_follow_each_other_also_with_no_rank_in_common() -> None:
    fake = FakeFabric(4)
    lines, errors = run(
        fake,
        plan(
            4,
            collective("all_reduce", [4000], ranks=[0, 1]),
            flows((2, 3, 4000, 0.0)),
            collective("all_gather", [4000], ranks=[1, 2]),
        ),
    )
    assert (fake.error, errors) == (None, [])
    spans = [(s["start_ns"], s["end_ns"]) for step in range(3) for s in lines if s["step"] == step]
    for before, after in zip(spans[:2], spans[2:4], strict=True):
        assert before[1] <= after[0]
    for before, after in zip(spans[2:4], spans[4:], strict=True):
        assert before[1] <= after[0]


def test_a_rank_without_a_part_leaves_at_once() -> None:
    fake = FakeFabric(3)
    lines, errors = run(fake, plan(3, collective("all_reduce", [400], ranks=[0, 2])))
    assert (fake.error, errors) == (None, [])
    assert {line["rank"] for line in lines} == {0, 2}


@pytest.mark.parametrize("step", [collective("all_reduce", [40_000]), flows((0, 1, 40_000, 0.0))])
def test_damage_on_the_way_is_counted(step: Line) -> None:
    fake = FakeFabric(2)
    fake.corrupt = lambda message: message == 0
    lines, errors = run(fake, plan(2, step))
    assert (fake.error, errors) == (None, [])
    assert sum(line["wrong"] for line in lines) in (1, 2), "one byte, and in an all-reduce both ranks get it"


def test_damage_in_a_warm_up_is_said() -> None:
    fake = FakeFabric(2)
    fake.corrupt = lambda message: message == 0
    lines, _ = run(fake, plan(2, collective("all_reduce", [40_000], warmup=1)))
    assert {line["iteration"] for line in lines if line["wrong"]} == {-1}


@pytest.mark.parametrize("step", [collective("all_reduce", [400]), flows((0, 1, 4000, 0.0), (1, 2, 4000, 0.0))])
def test_a_failed_operation_names_status_and_peer(step: Line) -> None:
    fake = FakeFabric(3)
    fake.status = lambda message: 12
    _, errors = run(fake, plan(3, step))
    failed = [e for e in errors if isinstance(e, CompletionError)]
    assert failed and {e.status for e in failed} == {12}
    assert "transport retries exceeded" in str(failed[0])
    assert {e.peer for e in failed} <= {0, 1, 2}


def test_a_worker_that_dies_ends_the_others_with_a_reason() -> None:
    fake = FakeFabric(2)

    def waiting() -> None:
        with pytest.raises(FabricError, match="left without BYE"), Device(fake.path(1)) as device:
            device.sync(0, 2)

    fake.serve(lambda: Device(fake.path(0)).session.close(), waiting)
    assert fake.error == "rank 0 left without BYE"


def test_last_words_are_read_although_ours_were_not(tmp_path: Path) -> None:
    """The kernel reports a reset before what lies in the queue when the other end closed with packets unread."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "0.sock"))
    listener.listen()

    def serve() -> None:
        peer, _ = listener.accept()
        peer.recv(wire.MAX_PACKET)
        welcome, error = wire.WELCOME_BODY.pack(wire.VERSION, 0, 2, 0, 0, 4096, 0), b"rank 1 left without BYE\0"
        peer.send(wire.PACKET.pack(wire.WELCOME, 0, wire.PACKET.size + len(welcome)) + welcome)
        peer.recv(1, socket.MSG_PEEK)  # a SYNC, which is never read
        peer.send(wire.PACKET.pack(wire.ERROR, 0, wire.PACKET.size + len(error)) + error)
        peer.close()

    serving = threading.Thread(target=serve)
    serving.start()
    with pytest.raises(FabricError, match="left without BYE"), Device(str(tmp_path / "0.sock")) as device:
        device.sync(0, 2)
    serving.join()
    listener.close()


def test_long_host_work_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.verbs.session.PROGRESS_EVERY_S", 0.0)
    fake = FakeFabric(2)
    lines, errors = run(fake, plan(2, collective("all_reduce", [64 * MIB])))
    assert (fake.error, errors, {line["wrong"] for line in lines}) == (None, [], {0})
    slices = 64 * MIB // execution.SLICE_BYTES
    assert fake.signs_of_life >= 2 * (slices + slices // 2 + slices), "writing inputs, reducing half of them, checking"


def test_host_work_costs_what_the_plan_says() -> None:
    """Messages take the same time in both runs (same seed), so the difference is the host's."""
    times = []
    for costs in ({}, {"reduce_bps": 8e9, "wake_ns": 1000}):
        fake = FakeFabric(2)
        fake._some_time = lambda: 10_000_000  # type: ignore[method-assign]
        lines, _ = run(fake, plan(2, collective("all_reduce", [8000]), **costs))
        times.append(max(line["end_ns"] for line in lines) - min(line["start_ns"] for line in lines))
    assert times[1] - times[0] == pytest.approx(4000 + 2 * 1000), (
        "4000 bytes at 1 B/ns; woken for the first hop and by SENT; the second hop's wake passes while SENT is awaited"
    )


def test_a_plan_for_another_rank_is_refused() -> None:
    fake = FakeFabric(1)

    def refused() -> None:
        with Device(fake.path(0)) as device, pytest.raises(ValueError, match="rank 5"):
            worker.run({**plan(1), "rank": 5}, device, print)

    fake.serve(refused)
    assert fake.error is None
