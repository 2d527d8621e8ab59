"""Preprocessed data for accelerators: the data whatever the timing, who gets which batch, what NICs save."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.steps.programs import Feed
from testbed.plan.steps.plan import plan
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import collective, run
from tests.parts.fake_run import plan as fake_plan
from workloads.programs import mailbox
from workloads.programs.closed_form import feed_by_hosts_ns, feed_by_nics_ns
from workloads.programs.costs import batch_ns
from workloads.programs.share import SCHEDULES, shared, used
from workloads.times.messages import Costs, Link, Path

FULL = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = """
name: feed
fabric:
  topology: {star: {hosts: 4}}
  nic: {kind: NIC}
workload:
- {collective: feed, STEP}
"""


def step(algorithm: str, ranks: int, sizes: list[int], **keys: Any) -> dict[str, Any]:
    told = Feed(**keys).model_dump(by_alias=True) | {"post": 100.0}
    servers = ranks - len(told["compute"])
    helpers = {"helpers": [ranks + k for k in range(servers)]} if algorithm == "nic" else {}
    its = {"iterations": 2, "ranks": list(range(ranks)), "feed": told, **helpers}
    return collective("feed", sizes, algorithm=algorithm, **its)


@FULL
@given(
    st.sampled_from(["host", "nic"]), st.integers(1, 3), st.lists(st.integers(1, 200), min_size=1, max_size=4),
    st.sampled_from(SCHEDULES), st.integers(1, 3), st.integers(2, 30), st.integers(1, 100), st.integers(0, 2**32),
)  # fmt: skip
def test_every_batch_reaches_its_accelerator_whatever_the_timing(
    algorithm: str, servers: int, compute: list[int], schedule: str, buffers: int, batches: int, each: int, seed: int
) -> None:
    ranks = servers + len(compute)
    keys = {"compute": [f"{c}us" for c in compute], "schedule": schedule, "buffers": buffers, "batch": "1000B"}
    told = step(algorithm, ranks, [1000 * batches, 1000], preprocess=f"{each}us", **keys)
    fake = FakeFabric(ranks + servers, seed)
    lines, errors = run(fake, fake_plan(ranks, told))
    assert (fake.error, errors) == (None, [])
    assert len(lines) == ranks * 2 * 2 and {line["wrong"] for line in lines} == {0}
    for size in (1000 * batches, 1000):
        its = [line for line in lines if line["size_bytes"] == size and line["iteration"] == 0]
        assert sum(line["tx_bytes"] for line in its) == sum(line["rx_bytes"] for line in its) == size
        every_ns = batch_ns(told["feed"], 100, moves=algorithm == "host") / servers
        of = shared(schedule, told["feed"]["compute"], every_ns, size // 1000)
        got = {line["rank"] - servers: line["rx_bytes"] for line in its if line["rank"] >= servers}
        assert got == {a: 1000 * of.count(a) for a in range(len(compute))}


@pytest.mark.parametrize("algorithm", ["host", "nic"])
def test_a_damaged_batch_is_counted(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send = mailbox.Mailbox.send

    def damaged(self: mailbox.Mailbox, number: int, message: bytes, cuts: Any = ()) -> None:
        send(self, number, message[:-1] + bytes([message[-1] ^ (self.peer == 1)]), cuts)

    monkeypatch.setattr(mailbox.Mailbox, "send", damaged)
    fake = FakeFabric(4, 1)
    lines, _ = run(fake, fake_plan(2, step(algorithm, 2, [3000], batch="1000B")))
    assert {(line["rank"], line["wrong"]) for line in lines} == {(0, 0), (1, 3)}


def test_all_in_turn_or_the_fewest_that_keep_up() -> None:
    """A batch every 30 us: two accelerators of 50 us take one every 25 us, so that the third is left to others."""
    assert used("naive", [50, 50, 75], 30) == [0, 1, 2] and used("aware", [50, 50, 75], 30) == [0, 1]
    assert used("aware", [75, 50, 50], 30) == [1, 2] and used("aware", [20, 10, 40], 30) == [1]
    assert used("aware", [200, 100], 30) == [0, 1]  # nothing keeps up: all
    assert shared("naive", [50, 50, 75], 30, 5) == [0, 1, 2, 0, 1]
    assert shared("aware", [50, 50, 75], 30, 4) == [0, 1, 0, 1]
    # Batch b is there at 8 (b + 1), the fast one through with it at 18 + 10 b: from b = 16 on the slow one is sooner.
    assert shared("aware", [10, 40], 8, 17) == [0] * 16 + [1]


@pytest.mark.parametrize(
    ("compute", "count", "every", "enough"),
    [
        (210_000, 20, 30_000, 7), (420_000, 20, 60_000, 7), (105_000, 20, 15_000, 7), (330_000, 20, 30_000, 11),
        (50_000, 20, 10_000, 5), (211_000, 20, 30_000, 8), (211_000, 7, 30_000, 7),
    ],
)  # fmt: skip
def test_accelerators_that_keep_up_exactly_are_enough(compute: float, count: int, every: float, enough: int) -> None:
    """By hand: as many as batches come in while one computes, whatever sums of 1/210 round to; by a millionth slower,
    one more."""
    assert len(used("aware", [compute] * count, every)) == enough
    assert len(used("aware", [compute * (1 + 1e-6)] * (enough + 1), compute / enough)) == enough + 1


@pytest.mark.parametrize(("algorithm", "enough"), [("host", 2), ("nic", 3)])
def test_accelerators_are_taken_by_the_pace_of_whoever_moves(algorithm: str, enough: int) -> None:
    """By hand, four servers: a core takes 141.2 us for a batch that it moves itself, so that one comes every 35.3 us,
    and two accelerators take one every 32.5; without moving one comes every 30 us, and a third is needed."""
    keys = {"compute": ["65us"] * 3, "schedule": "aware"}
    told = step(algorithm, 7, [12 << 18], **keys)
    fake = FakeFabric(7 + 4, 1)
    lines, errors = run(fake, fake_plan(7, told))
    assert (fake.error, errors) == (None, [])
    got = {line["rank"] - 4: line["rx_bytes"] for line in lines if line["rank"] >= 4}
    assert sum(nbytes > 0 for nbytes in got.values()) == enough and sum(got.values()) == 12 << 18


def test_the_closed_form_has_the_same_share() -> None:
    """By hand, one server and three accelerators of 280 us: by host, two keep up with 141.2 us, and one of them has two
    of three batches; with the NIC, two do not with 120.1 us, and each of three has one."""
    path, told = Path((Link(100e9, 500),) * 2, (500.0,)), Feed(compute=["280us"] * 3, schedule="aware")
    host, nic = (
        of(4, 3 << 18, path, Costs(), told.model_dump(by_alias=True)) for of in (feed_by_hosts_ns, feed_by_nics_ns)
    )
    assert (host, nic) == (560_000, pytest.approx(3 * 120_100))


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=6), st.floats(1, 1000), st.integers(1, 60))
def test_what_any_share_keeps_to(compute: list[float], every: float, batches: int) -> None:
    for schedule in SCHEDULES:
        its, of = used(schedule, compute, every), shared(schedule, compute, every, batches)
        assert len(of) == batches and set(of) <= set(its)
    its = used("aware", compute, every)
    assert max(compute[a] for a in its) <= min((c for a, c in enumerate(compute) if a not in its), default=1e9)
    slowest = max(its, key=lambda a: (compute[a], a))
    assert len(its) == 1 or sum(1 / compute[a] for a in its if a != slowest) * every < 1  # none too many
    naive = shared("naive", compute, every, batches)
    assert max(map(naive.count, range(len(compute)))) - min(map(naive.count, range(len(compute)))) <= 1


def test_what_workers_are_told() -> None:
    made = plan(loads(TEXT.replace("NIC", "off_path").replace("STEP", "algorithm: nic, sizes: [1MiB]")))
    assert made.told()["steps"][0]["helpers"] == [4, 5, 6] and made.endpoints == list(range(7))
    assert made.told()["steps"][0]["feed"]["post"] == 100
    assert made.told()["steps"][0]["feed"]["compute"] == [40_000] and made.told()["steps"][0]["feed"]["copy"] == 109.6e9


@pytest.mark.parametrize(
    ("step", "key", "what", "hint"),
    [
        ("algorithm: nic, sizes: [1MiB]", "algorithm", "nic works on compute complexes", "kind: off_path"),
        ("sizes: [1MB]", "sizes[0]", "batches", "a multiple of 262144B"),
        (
            "sizes: [1MiB], feed: {compute: [1us, 1us, 1us, 1us]}",
            "feed.compute", "4 accelerators of 4 ranks leave no server", "1 to 3",
        ),
        ("sizes: [1MiB], feed: {compute: [0us]}", "feed.compute[0]", "0us is out of bounds", ""),
        ("sizes: [1MiB], feed: {compute: []}", "feed.compute", "", ""),
        ("sizes: [1MiB], feed: {schedule: best}", "feed.schedule", "best", "aware"),
    ],
)  # fmt: skip
def test_mistakes(step: str, key: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        loads(TEXT.replace("NIC", "plain").replace("STEP", step), "t.yaml")
    assert error.value.where.startswith("t.yaml:7: workload[0]") and key in error.value.where
    assert what in error.value.what and hint in error.value.hint


def test_what_a_core_no_longer_does_is_what_nics_save() -> None:
    """By hand: 120 us of work, 19.1 to copy 256 KiB, 2 to manage, 0.1 to post: without the middle two 15 % less.  As
    long as accelerators keep up: where they are the bottleneck, nothing is saved."""
    path, costs = Path((Link(100e9, 500),) * 2, (500.0,)), Costs()
    copy = (256 << 10) * 8 / 109.6
    assert copy == pytest.approx(19_134, abs=1)

    def saved(compute: str) -> float:
        told = Feed(compute=[compute]).model_dump(by_alias=True)
        host, nic = (of(5, 64 << 18, path, costs, told) for of in (feed_by_hosts_ns, feed_by_nics_ns))
        return 1 - nic / host

    assert (
        saved("10us") == pytest.approx((copy + 2000) / (120_000 + copy + 2000 + 100)) == pytest.approx(0.15, abs=0.001)
    )
    assert saved("40us") == 0
