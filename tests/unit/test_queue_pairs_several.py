"""`transport.qps`: several queue pairs of a connection, as NCCL's net_ib.cc uses them, in turn or with split messages.

On a fabric whose queue pairs are as late as they like, and message by message.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.plan.ideal import Ideal
from testbed.plan.steps.plan import plan as planned
from testbed.predict.large import of_any_size
from testbed.predict.predict import predict
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import Line, collective, flows, plan, run
from workloads.base.entry import Algorithm
from workloads.registry import ALGORITHMS
from workloads.times.queue_pairs import Bond as Modelled
from workloads.times.queue_pairs import QueuePairs
from workloads.verbs import wire
from workloads.verbs.bond import Bond, parts
from workloads.verbs.handles import QueuePair, Region
from workloads.verbs.wire import Record

MIB = 1 << 20
RANKS = (3, 4)
FITTING = [
    e
    for e in ALGORITHMS.values()
    if e.schedule and e.layout not in ("grid", "rails") and not e.max_ranks and all(e.fits(n) for n in RANKS)
]
HOSTS = list({e.schedule: e for e in FITTING}.values())


def whole(ranks: int, count: int, split: bool, seed: int, *steps: Line) -> list[Line]:
    fake = FakeFabric(ranks, seed, any_order=seed % 2 == 1)
    lines, errors = run(fake, {**plan(ranks, *steps), "queue_pairs": {"queue_pairs": count, "split": split}})
    assert (fake.error, errors) == (None, [])
    assert not [line for line in lines if line["wrong"]]
    return lines


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("entry", HOSTS, ids=str)
def test_collectives_are_right_whichever_queue_pair_is_late(entry: Algorithm, split: bool) -> None:
    for seed, ranks in enumerate(RANKS):
        its = collective(entry.collective.name, [4, 70_000], algorithm=entry.name, iterations=2, senders=1)
        assert len(whole(ranks, 3, split, seed, {**its, "skew": 1.0})) == ranks * 2 * 2


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9 * MIB)), min_size=1, max_size=3),
    st.integers(2, 5), st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_flows_end_when_all_of_them_is_there(sizes: list[tuple[int, int]], count: int, split: bool, seed: int) -> None:
    lines = whole(3, count, split, seed, flows(*((a, (a + 1) % 3, size, 0.0) for a, size in sizes)))
    assert len(lines) == 2 * len(sizes)


class _Posted:
    """What members post, and in which order."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def queue(self, op: int, *body: int, data: bytes = b"") -> None:
        self.log.append((op, *body))


def bond(count: int, *, split: bool) -> tuple[Bond, _Posted]:
    log = _Posted()
    members = [QueuePair(log, 16 + k, 1, b"", False) for k in range(count)]  # type: ignore[arg-type]
    return Bond(members, split=split), log


def region(nbytes: int) -> Region:
    return Region(bytearray(nbytes), 7)  # type: ignore[arg-type]


def record(kind: int, qp: int, *, time: int = 0, imm: int = 0, nbytes: int = 0) -> Record:
    return Record(kind, 0, 0, time, qp, imm, nbytes)


def test_messages_take_queue_pairs_in_turn_and_rows_stay_together() -> None:
    its, log = bond(3, split=False)
    for k in range(4):
        its.write(region(100), 0, 10, 1, 0, wr_id=k, imm=k)
    its.write(region(100), 0, 10, 1, 0)  # goes with the next one that has an immediate
    its.write(region(100), 0, 10, 1, 0, imm=9)
    for _ in range(4):
        its.recv(region(100))
    posts = [row[1] for row in log.log if row[0] == wire.POST_SEND]
    assert posts == [16, 17, 18, 16, 17, 17]
    assert [row[1] for row in log.log if row[0] == wire.POST_RECV] == [16, 17, 18, 16]


def test_acknowledgements_are_told_in_the_order_of_posting_when_they_are_known() -> None:
    its, _ = bond(3, split=False)
    for k in range(3):
        its.write(region(100), 0, 10, 1, 0, wr_id=k, imm=k, signaled=k != 1)
    assert not list(its.told(record(wire.SENT, 18, time=5))) and not list(its.told(record(wire.SENT, 17, time=6)))
    told = list(its.told(record(wire.SENT, 16, time=9)))
    assert [(r.wr_id, r.qp, r.time_ps) for r in told] == [(0, 16, 9), (2, 16, 9)]
    assert [r.imm for r in its.told(record(wire.RECEIVED_IMM, 18, imm=2))] == [2]  # whatever came before it


def test_a_split_message_is_there_when_all_its_parts_are() -> None:
    its, log = bond(4, split=True)
    its.write(region(10_000), 0, 1000, 1, 50, wr_id=3, imm=8)
    sent = [(row[1], row[8], row[9], row[10]) for row in log.log]  # queue pair, where from, where to, bytes
    assert sent == [(16, 0, 50, 256), (17, 256, 306, 256), (18, 512, 562, 256), (19, 768, 818, 232)]
    assert all(row[11] == 8 for row in log.log)
    for qp in (19, 16, 18):
        assert not list(its.told(record(wire.RECEIVED_IMM, qp, imm=8, nbytes=250)))
    assert not list(its.told(record(wire.RECEIVED_IMM, 16, imm=9, nbytes=4)))  # of the next message
    (there,) = its.told(record(wire.RECEIVED_IMM, 17, imm=8, nbytes=250, time=7))
    assert (there.qp, there.imm, there.nbytes, there.time_ps) == (16, 8, 1000, 7)
    its.recv(region(100))
    assert [row[1] for row in log.log if row[0] == wire.POST_RECV] == [16, 17, 18, 19]


@given(st.integers(0, 1 << 22), st.integers(1, 32))
@settings(deadline=None)
def test_parts_are_as_even_as_multiples_of_128_bytes_allow(length: int, count: int) -> None:
    """net_ib.cc: chunk = DIVUP(DIVUP(size, nqps), align) * align, and each queue pair MIN(what is left, chunk)."""
    chunk = (length + count - 1) // count
    chunk = (chunk + 127) // 128 * 128
    left, expected = length, []
    for _ in range(count):
        expected.append(min(left, chunk))
        left -= expected[-1]
    cut = list(parts(length, count))
    assert [size for _, size in cut] == expected
    assert [begin for begin, _ in cut] == [sum(expected[:k]) for k in range(count)]


@pytest.mark.parametrize("split", [False, True])
def test_models_tell_in_order_too(split: bool) -> None:
    posted: list[Any] = []
    its = Modelled("abc", 100.0, split=split)
    heard: list[tuple[str, int, float]] = []
    for k in range(2):
        its.post(
            10.0 * k, 600, lambda t, k=k: heard.append(("there", k, t)), lambda t, k=k: heard.append(("sent", k, t)),
            lambda *of: posted.append(of),
        )  # fmt: skip
    if split:
        assert [of[:3] for of in posted] == [
            (10.0 * k + 100.0 * n, name, size)
            for k in range(2)
            for n, (name, size) in enumerate(zip("abc", (256, 256, 88), strict=True))
        ]
    else:
        assert [of[:3] for of in posted] == [(0.0, "a", 600), (10.0, "b", 600)]
    for n, of in enumerate(reversed(posted)):
        of[3](float(n))
    last = float(len(posted) - 1)
    assert heard == [("there", 0, last), ("there", 1, last)]


def test_each_connection_takes_so_many_numbers_at_once_and_rings_of_nics_one() -> None:
    pairs = QueuePairs(3)
    assert pairs.connect({0: [(1, 0), (1, 1)], 1: [(0, 0), (0, 1)]}) == {
        (0, 1, 0): (16, 16), (0, 1, 1): (19, 19), (1, 0, 0): (16, 16), (1, 0, 1): (19, 19)
    }  # fmt: skip
    assert pairs.ring([0, 1])[0, 1, 0] == (22, 22) and pairs.ring([0, 1])[1, 0, 0] == (23, 23)


def experiment(
    transport: str, step: str, topology: str = "{clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}"
) -> Experiment:
    return loads(f"name: t\nfabric: {{topology: {topology}}}\ntransport: {transport}\nworkload: [{step}]\n")


RPC = "{collective: rpc, sizes: [1KiB]}"
RING = "{collective: all_reduce, algorithm: ring, sizes: [64KiB]}"


@pytest.mark.parametrize(
    ("transport", "step", "what", "hint"),
    [
        ("{qps: 0}", RING, "qps", ""),
        ("{qps: 33}", RING, "qps", ""),
        ("{qps: 2}", RPC, "in the order in which they were sent", "qps_split: true"),
    ],
)
def test_what_is_wrong_is_said(transport: str, step: str, what: str, hint: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)) as error:
        experiment(transport, step)
    assert hint in error.value.hint


def test_workers_are_told_of_more_than_one_and_of_one_nothing_new() -> None:
    assert "queue_pairs" not in planned(experiment("{}", RING)).told()
    told = planned(experiment("{qps: 4, qps_split: true}", RING)).told()
    assert told["queue_pairs"] == {"queue_pairs": 4, "split": True}
    assert planned(experiment("{qps: 2, qps_split: true}", RPC)).told()["queue_pairs"]["split"]


def test_several_queue_pairs_share_what_one_alone_would_fill() -> None:
    """Four uplinks of 100 Gb/s: as many as there are queue pairs, and messages, at once."""
    slow = ", cables: {" + ", ".join(f"'cable:leaf0-spine{k}': {{rate: 100Gbps}}" for k in range(4)) + "}"
    topology = "{clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}" + slow
    one, two, many, split = (
        Ideal(experiment(t, RING, topology)).time_ns(0, 3, 16 * MIB)
        for t in ("{}", "{qps: 2}", "{qps: 16}", "{qps: 16, qps_split: true}")
    )
    assert one and two and many and split
    assert one / two == pytest.approx(2, rel=0.02) and one / many == pytest.approx(4, rel=0.04)
    small = [Ideal(experiment(t, RING)).time_ns(0, 3, 1) for t in ("{}", "{qps: 4}", "{qps: 4, qps_split: true}")]
    assert small[0] and small[1] == small[0] and small[2]
    assert 300 - 2 < small[2] - small[0] < 300  # three more requests, of which the last has nothing to carry


def test_predictions_of_large_fabrics_say_that_they_have_no_model() -> None:
    large = "{clos: {leaves: 100, spines: 100, hosts_per_leaf: 100}}"
    with of_any_size(), pytest.raises(InputError, match="several queue pairs of a connection on so large a fabric"):
        predict(experiment("{qps: 4}", RING, large))
