"""Every fault of the catalogue: it bites, it can be seen, and when it is healed the fabric is one never touched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.faults import CATALOGUE
from tests.parts.fault_cases import CASES, Case
from tests.parts.faulty_fabric import DRAINED_NS, FLOWS, FaultyFabric, Outcome, faulty_fabric

ELSEWHERE = {
    "controller_dead": "test_inject_controller.py",
    "controller_hung": "test_inject_controller.py",
    "slow_controller": "test_inject_controller.py",
    "wrong_weights": "test_fabricd_ecn.py",
    "straggler": "test_inject_runs.py",
    "slow_receiver": "test_inject_runs.py",
    "worker_frozen": "test_inject_runs.py",
    "worker_killed": "test_inject_runs.py",
    "cpu_quota": "test_inject_live.py",
    "accelerator_down": "test_in_network.py",
    "missing_group": "test_in_network.py",
    "slots_leaked": "test_in_network.py",
    "dateline_off": "test_dateline_runs.py",
    "adaptive_off": "test_adaptive_runs.py",
    "wrong_group_weights": "test_adaptive_runs.py",
    "stuck_choice": "test_fabricd_adaptive.py",
    "blackhole_entropy": "test_path_faults.py",
    "credit_leak": "test_cable_runs.py",
    "in_order_nic": "test_path_faults.py",
    "reps_late_marks": "test_path_faults.py",
    **dict.fromkeys(("wrong_rkey", "local_protection", "few_retries", "wrong_gid_index"), "test_verbs_faults.py"),
    "stale_quality": "test_fabricd_adaptive.py",
    "trim_off": "test_trimming_faults.py",
    "trim_dscp_lost": "test_trimming_faults.py",
}
"""What shows on workers or the controller alone, and which file proves it."""
TRAFFIC = ("incast", "noisy_neighbour", "victim_flow")


def test_every_fault_has_a_case() -> None:
    assert {c.fault["fault"] for c in CASES.values()} | set(ELSEWHERE) == set(CATALOGUE)


@pytest.fixture(scope="module")
def fabrics() -> Iterator[Callable[[int, str], FaultyFabric]]:
    """One fabric for each number of spines and each control, up until the last test."""
    up: dict[tuple[int, str], Any] = {}

    def get(spines: int, cc: str) -> FaultyFabric:
        if (spines, cc) not in up:
            up[spines, cc] = faulty_fabric(spines, cc)
            up[spines, cc].fabric = up[spines, cc].__enter__()
        return up[spines, cc].fabric

    try:
        yield get
    finally:
        for context in reversed(up.values()):
            context.__exit__(None, None, None)


@pytest.mark.parametrize("name", CASES)
def test_a_fault_bites_shows_and_heals(name: str, fabrics: Callable[[int, str], FaultyFabric]) -> None:
    c = CASES[name]
    # what a fault's traffic leaves behind are queue pairs of its own: it gets a fabric of its own
    own = c.fault["fault"] in TRAFFIC or c.cc != "none" or c.spines > 1
    if own:
        with faulty_fabric(c.spines, c.cc) as f:
            _bites_and_heals(f, c)
        return
    f = fabrics(c.spines, c.cc)
    try:
        _bites_and_heals(f, c)
    finally:
        f.heal([fault["fault"] for fault in f.fabricd.request("faults")["faults"]])


def _bites_and_heals(f: FaultyFabric, c: Case) -> None:
    needed = f.inject(c.before) if c.before else []
    untouched = f.measure(c.flows)
    if c.cc == "none":
        assert f.measure(c.flows).figures() == untouched.figures(), "the flows are not the same each time"
    timed = any(key in c.fault for key in ("for", "at"))
    if timed or c.fault["fault"] in TRAFFIC:
        ids, faulty = _together(f, c)
    else:
        ids = f.inject(c.fault)
        faulty = f.measure(c.flows)
    assert f.hits(ids) > 0, "it never struck"
    assert c.symptom(untouched, faulty), (untouched.figures(), faulty.figures())
    f.heal(ids)
    assert [x["fault"] for x in f.fabricd.request("faults")["faults"]] == needed
    if c.cc != "none" or c.spines > 1:
        return  # rates, and the ways that new queue pairs take, have a history: see the tests of both
    assert f.measure(c.flows).figures() == untouched.figures()


def _together(f: FaultyFabric, c: Case) -> tuple[list[str], Outcome]:
    """A fault that comes and goes by itself: it is put in, and the flows start before it is over."""
    from testbed.faults import Injection

    injection = Injection.of(c.fault)
    requests = injection.requests(injection.place(f.lab.fabric), "timed", now_ns=f.now_ns() + DRAINED_NS + 5_000)
    for request in requests:
        f.fabricd.request("inject", **request)
    flows = [(a, b, size, start + 5_000) for a, b, size, start in c.flows]
    return [r["fault"] for r in requests], f.measure(flows)


COMPOSABLE = [
    n for n, c in CASES.items()
    if c.cc == "none" and c.spines == 1 and c.flows == tuple(FLOWS) and "for" not in c.fault and "at" not in c.fault
    and not c.before and c.fault["fault"] not in TRAFFIC
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_three_faults_at_once_heal_in_any_order(seed: int, fabrics: Callable[[int, str], FaultyFabric]) -> None:
    rng = random.Random(seed)
    f = fabrics(1, "none")
    untouched = f.measure()
    chosen = rng.sample(COMPOSABLE, 3)
    ids = [f.inject(CASES[name].fault) for name in chosen]
    f.measure()
    order = rng.sample(range(3), 3)
    f.heal(ids[order[0]])
    f.heal(ids[order[1]])
    alone = f.measure()
    f.heal(ids[order[2]])
    assert f.measure().figures() == untouched.figures(), chosen
    again = f.inject(CASES[chosen[order[2]]].fault)
    fixed = {"loss", "burst_loss", "corruption", "duplication", "reordering", "jitter", "silent_corruption"}
    if CASES[chosen[order[2]]].fault["fault"] not in fixed:  # those draw anew
        assert f.measure().figures() == alone.figures(), "healing two left something else than the third"
    f.heal(again)
    assert f.measure().figures() == untouched.figures()
