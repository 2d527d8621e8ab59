"""Adaptive switches: Open vSwitch names a set of ports, the chip takes one of them for each frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.traffic_fabric import drops, port, send

MTU = 4096
FRAMES = 2000
SPINES = 4
GROUP = 1 << 31
MASK = (1 << 64) - 1
RANDOM_PORT = 6  # of base/random.h
UP = tuple(range(3, 3 + SPINES))  # leaf0's ports to the spines, behind its two hosts


def mix(x: int) -> int:
    """SplitMix64's next number (Steele, Lea, Flood, OOPSLA 2014, figure 17)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


@contextmanager
def leaves(sample: int = 1024, **adaptive: Any) -> Iterator[BareFabric]:
    """Two leaves of two hosts with four spines between them; leaf0 is adaptive toward leaf1."""
    nic = {"recovery": "selective_repeat", "reorder_packets": 4096, "sack_bits": 512, "sack_every": 16}
    nic |= {"loss_after_ns": 1e8}  # what overtakes is late, and not lost
    hardware = Hardware(
        timeout_ns=1e9, nic=nic, switch={"adaptive": {"policy": "random", "flowlet_entries": 64, **adaptive}}
    )
    params = {"leaves": 2, "spines": SPINES, "hosts_per_leaf": 2}
    with bare_fabric("clos", params, hardware, sample=sample) as f:
        f.fabricd.request("start", ranks=[])
        yield f


def group(f: BareFabric, *buckets: str) -> None:
    f.ofctl("add-group", f.bridge("leaf0"), f"group_id={GROUP},type=all,{','.join(f'bucket={b}' for b in buckets)}")
    rules = [f"priority=50000,ip,nw_dst={f.fabric.nics[to].ip},actions=group:{GROUP}" for to in (2, 3)]
    f.ofctl("add-flows", f.bridge("leaf0"), "-", flows=rules)


def equal(f: BareFabric, ports: Sequence[int] = UP) -> None:
    group(f, *(f"output:{p}" for p in ports))


def sent(f: BareFabric, ports: Sequence[int] = UP) -> list[int]:
    return [port(f, "leaf0", p)["tx_frames"] for p in ports]


def lay(f: BareFabric, name: str, **adaptive: Any) -> None:
    f.fabricd.request("inject", fault=name, primitive="params", switch="leaf0", values={"adaptive": adaptive})


def added(f: BareFabric, flows: Sequence[tuple[int, int, int, float]], ports: Sequence[int] = UP) -> list[int]:
    """What these flows send by each port."""
    before = sent(f, ports)
    send(f, flows)
    return [now - then for now, then in zip(sent(f, ports), before, strict=True)]


def drawn(f: BareFabric, first: int, frames: int, ports: int = SPINES, nic: int = 0) -> list[int]:
    """How many of a NIC's frames, from a number on, are drawn for each port: by the seed, 1, and leaf0's index, 0."""
    counts = [0] * SPINES
    for number in range(first, first + frames):
        frame = len(f.fabric.switches) + nic << 40 | number
        counts[(mix(mix(mix(mix(1) ^ 0) ^ frame) ^ RANDOM_PORT) & 0xFFFFFFFF) % ports] += 1
    return counts


ONE = [(0, 2, FRAMES * MTU, 0.0)]


def test_draws_follow_from_seed_switch_and_frame_and_turns_are_even() -> None:
    with leaves() as f:
        equal(f)
        random = drawn(f, 1, FRAMES)
        assert added(f, ONE) == random
        assert [row["picks"] for row in f.counters()["groups"]] == random == [port(f, "leaf0", p)["picks"] for p in UP]
        lay(f, "blind", policy="two_choices", bands=8, every_ns=1e12)  # what it saw once, and then all were empty
        assert added(f, ONE) == drawn(f, FRAMES + 1, FRAMES)
        lay(f, "turn", policy="round_robin")
        assert added(f, ONE) == [FRAMES // SPINES] * SPINES
        lay(
            f, "equal", policy="shortest", bands=0
        )  # two are idle whenever a frame comes, and the others are never the best
        for spine in (2, 3):
            f.fabricd.request("cable", cable=f"leaf0-spine{spine}", rate_bps=1e9)
        assert added(f, ONE) == drawn(f, 3 * FRAMES + 1, FRAMES, ports=2)


@pytest.mark.parametrize(("policy", "ports"), [("shortest", UP), ("two_choices", UP[:2])])
def test_ports_of_different_rates_have_sent_what_they_got_at_the_same_time(policy: str, ports: Sequence[int]) -> None:
    """Of two ports the better of two that are drawn is the better."""
    rates = dict(zip(UP, (50e9, 100e9, 25e9, 25e9), strict=True))
    with leaves(policy=policy) as f:
        equal(f, ports)
        for p in ports:
            f.fabricd.request("cable", cable=f"leaf0-spine{p - UP[0]}", rate_bps=rates[p])
        share = FRAMES / sum(rates[p] for p in ports)
        counts = added(f, ONE, ports)
        assert counts == pytest.approx([rates[p] * share for p in ports], abs=2)
        assert sum(counts) == FRAMES  # by one of them each


def test_a_port_gets_as_many_as_it_weighs() -> None:
    with leaves(policy="round_robin") as f:
        equal(f, (3, 3, 3, 4, 5, 5, 5, 5))
        assert added(f, ONE) == [FRAMES * 3 // 8, FRAMES // 8, FRAMES // 2, 0]
        assert [(r["set"], r["port"], r["weight"]) for r in f.counters()["groups"]] == [
            ("3*3,4,5*4", 3, 3), ("3*3,4,5*4", 4, 1), ("3*3,4,5*4", 5, 4),
        ]  # fmt: skip


def test_a_port_that_weighs_less_counts_as_slower_though_its_queue_is_empty() -> None:
    """800 Gb/s toward a port of 400 and one that leads to a quarter of that: a fifth goes there."""
    flows = [(rank, 2 + rank, FRAMES * MTU, 0.0) for rank in (0, 1)]
    with leaves(policy="shortest") as f:
        equal(f, (3, 3, 3, 3, 4))
        assert added(f, flows, (3, 4)) == pytest.approx([2 * FRAMES * 4 / 5, 2 * FRAMES / 5], abs=2)


@pytest.mark.parametrize("policy", ["shortest", "two_choices"])
def test_a_port_that_weighs_less_gets_no_more_than_its_share_however_long_the_others_queue_is(policy: str) -> None:
    """What it leads to others fill, too. The other one's queue is of traffic that has no choice."""
    with leaves(policy=policy) as f:
        equal(f, (3, 3, 3, 3, 4))
        rule = f"priority=60000,ip,nw_dst={f.fabric.nics[3].ip},actions=output:3"
        f.ofctl("add-flows", f.bridge("leaf0"), "-", flows=[rule])
        (light,) = added(f, [*ONE, (1, 3, FRAMES * MTU, 0.0)], (4,))
        assert FRAMES / 10 < light <= FRAMES / 5 + 1


def test_a_burst_stays_together_and_the_next_one_is_placed_anew() -> None:
    flows = [(0, 2 + k % 2, 10 * MTU, k * 20_000.0) for k in range(40)]
    with leaves(flowlet_gap_ns=5000) as f:
        equal(f)
        counts = added(f, flows)
        assert sum(counts) == 400 and all(n % 10 == 0 < n for n in counts)


@pytest.mark.parametrize("repair", [True, False])
def test_a_port_whose_cable_is_down_is_passed_over_at_once(repair: bool) -> None:
    with leaves(policy="round_robin", local_repair=repair) as f:
        equal(f)
        f.fabricd.request("cable", cable="leaf0-spine1", up=False)
        counts = added(f, [(0, 2, 900 * MTU, 0)], [p for p in UP if p != 4]) if repair else []
        assert counts == [300] * 3 * repair
        if not repair:
            f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 2, 900 * MTU, 0]])
            f.fabricd.request("quiesce", 60.0)
        assert bool(drops(f)) != repair
        if repair:
            f.fabricd.request("cable", cable="leaf0-spine1", up=True)
            assert added(f, [(0, 2, 900 * MTU, 0)]) == [225] * 4


def test_bands_without_a_time_to_look_in_are_none() -> None:
    """Each was right when it was laid over the others: then the one that the bands need went off."""
    with leaves(policy="shortest") as f:
        equal(f)
        lay(f, "time", every_ns=100)
        lay(f, "bands", bands=8)
        f.fabricd.request("heal", fault="time")
        assert sum(added(f, ONE)) == FRAMES


def test_a_stuck_chip_takes_the_first_port() -> None:
    with leaves() as f:
        equal(f)
        f.fabricd.request("inject", fault="stuck", primitive="params", switch="leaf0", values={"adaptive": None})
        assert added(f, [(0, 2, 100 * MTU, 0)]) == [100, 0, 0, 0]
        f.fabricd.request("heal", fault="stuck")
        assert min(added(f, [(0, 2, 100 * MTU, 0)])) > 0


@pytest.mark.parametrize(("age_ns", "bands"), [(1e12, 0), (1e12, 8), (100_000, 0)])
def test_a_chip_that_does_not_look_again_goes_by_what_it_saw(age_ns: float, bands: int) -> None:
    """It looks when another flow's frames wait before a slow cable, and passes over that port until it looks again."""
    other = [0, 2, 60 * MTU, 0.0]  # 60 frames at 40 Gb/s, 50 us; the chip looks 20 us after they began
    looks = [1, 3, FRAMES * MTU, 20_000.0]  # at 400 Gb/s, some 170 us
    for stale in (False, True):
        with leaves(policy="shortest", bands=bands, every_ns=1000) as f:
            equal(f)
            f.ofctl("add-flow", f.bridge("leaf0"), f"priority=60000,ip,nw_dst={f.fabric.nics[2].ip},actions=output:3")
            f.fabricd.request("cable", cable="leaf0-spine0", rate_bps=40e9)
            if stale:
                for p in UP:
                    values, at = {"stale_ns": age_ns}, f"leaf0:{p}"
                    f.fabricd.request("inject", fault=at, primitive="params", port=at, values=values)
            first, *others = added(f, [tuple(other), tuple(looks)])
            passed_over = age_ns > 1e6 if stale else not bands  # in order and without bands: the slow one is never best
            assert (first == 60) == passed_over and sum(others) + first == FRAMES + 60
            if stale and passed_over:
                assert others == drawn(f, 1, FRAMES, 3, nic=1)[:3]


def test_bands_are_those_of_the_last_look() -> None:
    """60 frames wait 50 us before a slow cable; it looks at 20 us and 45: the frames between pass that port over."""
    with leaves(policy="shortest", bands=8, every_ns=25_000) as f:
        equal(f)
        f.ofctl("add-flow", f.bridge("leaf0"), f"priority=60000,ip,nw_dst={f.fabric.nics[2].ip},actions=output:3")
        f.fabricd.request("cable", cable="leaf0-spine0", rate_bps=40e9)
        first, *others = added(f, [(0, 2, 60 * MTU, 0.0), (1, 3, 200 * MTU, 20_000.0)])
        assert first == 60 and others == drawn(f, 1, 200, 3, nic=1)[:3]


def test_copies_that_are_not_alike_all_leave() -> None:
    with leaves() as f:
        group(f, "output:3", "set_field:3->ip_ecn,output:4")
        assert added(f, [(0, 2, 100 * MTU, 0)], (3, 4)) == [100, 100]
        assert f.counters()["groups"] == []


def test_the_way_of_a_frame_does_not_matter() -> None:
    """By the fast path, by Open vSwitch, or by both."""

    def figures(sample: int) -> Any:
        with leaves(sample, policy="two_choices") as f:
            equal(f, (*UP, 3))
            for policy in ("two_choices", "shortest", "round_robin", "random", "hash"):
                lay(f, policy, policy=policy)
                send(f, [(0, 2, 60 * MTU, 0), (1, 3, 60 * MTU, 100), (1, 2, 60 * MTU, 500)])
            counted = f.counters()
            assert counted["fidelity"]["flagged"] == 0 and not counted["fidelity"].get("fast_stale")
            return [counted[key] for key in ("time_ns", "ports", "groups", "switches", "nics")]

    fast = figures(1024)
    assert fast == figures(0)
    assert fast == figures(5)
