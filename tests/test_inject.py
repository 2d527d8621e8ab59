"""Every fault of the catalogue: it bites, it can be seen, and when it is healed the fabric is one never touched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from faulty_fabric import DRAINED_NS, FLOWS, FaultyFabric, Outcome, faulty_fabric

from testbed.inject import CATALOGUE

Seen = Callable[[Outcome, Outcome], bool]  # (untouched, faulty) -> whether the fault shows


def slower(by_ns: float) -> Seen:
    return lambda was, now: all(
        b is not None and b >= a + by_ns for a, b in zip(was.times, now.times, strict=True) if a
    )


def dropped(reason: str, at_least: int = 1) -> Seen:
    return lambda was, now: now.reasons[reason] >= at_least and not was.reasons[reason]


def failed(was: Outcome, now: Outcome) -> bool:
    return None in now.times and None not in was.times


def both(*seen: Seen) -> Seen:
    return lambda was, now: all(one(was, now) for one in seen)


def more(count: str) -> Seen:
    return lambda was, now: now.counts[count] > was.counts[count]


def without_drops(was: Outcome, now: Outcome) -> bool:
    return not now.drops


def at_port(port: str, count: str, how: Callable[[int, int], bool]) -> Seen:
    return lambda was, now: how(was.ports[port][count], now.ports[port][count])


@dataclass(frozen=True)
class Case:
    """A fault as written, and how it must show. `flows`: others than usual."""

    fault: dict[str, Any]
    seen: Seen
    flows: tuple[tuple[int, int, int, float], ...] = tuple(FLOWS)
    spines: int = 1
    cc: str = "none"
    before: dict[str, Any] | None = None  # another fault that it needs to show, there from the beginning


def case(seen: Seen, fault: str, on: str, **parameters: Any) -> Case:
    settings = {key: parameters.pop(key) for key in ("flows", "spines", "cc", "before") if key in parameters}
    written = {"fault": fault, "on": on, **{k.rstrip("_"): v for k, v in parameters.items()}}
    return Case(written, seen, **settings)


TO_0 = "cable:h0-leaf0"
MANY = tuple((s, d, 3 * 65536, 0) for s in (0, 1, 2) for d in (3, 4, 5))
CASES = {
    "loss": case(both(dropped("fault"), more("retransmitted")), "loss", TO_0, rate=0.02),
    "loss of one flow": case(
        both(dropped("fault"), more("retransmitted")),
        "loss", "flow:4->0", rate=0.05, direction="forward",
    ),
    "loss of acknowledgements": case(
        lambda was, now: now.reasons["fault"] > 0 and now.counts["out_of_sequence"] == 0,
        "loss", TO_0, rate=0.3, opcodes=["ACKNOWLEDGE"],
    ),
    "burst_loss": case(both(dropped("fault", 2), more("retransmitted")), "burst_loss", TO_0, to_bad=0.05, to_good=0.3),
    "drop_every": case(dropped("fault", 4), "drop_every", TO_0, n=64),
    "drop_first": case(lambda was, now: now.reasons["fault"] == 3, "drop_first", TO_0, n=3),
    "drop_hash": case(both(dropped("fault"), failed), "drop_hash", "all", share=0.3),
    "corruption": case(both(dropped("icrc"), more("rx_icrc_encapsulated")), "corruption", TO_0, rate=0.02),
    "silent_corruption": case(
        lambda was, now: now.figures()[:3] == was.figures()[:3], "silent_corruption", TO_0, rate=0.5
    ),
    "duplication": case(both(more("duplicate_request"), without_drops), "duplication", TO_0, rate=0.2),
    "reordering": case(both(more("out_of_sequence"), without_drops), "reordering", TO_0, rate=0.05),
    "delay": case(slower(20_000), "delay", "all", delay="10us"),
    "jitter": case(
        both(lambda was, now: now.times != was.times, without_drops), "jitter", TO_0, jitter="2us"
    ),
    "one_way": case(both(dropped("fault"), failed), "one_way", TO_0, direction="backward"),
    "dscp_remarked": case(
        at_port("leaf0:1", "rx_prio0_packets", lambda was, now: now > was), "dscp_remarked", TO_0, dscp=0
    ),
    "ecn_bleached": case(
        lambda was, now: now.counts["ecn_marked"] > 0 and now.counts["np_ecn_marked_roce_packets@0"] == 0
        and was.counts["np_ecn_marked_roce_packets@0"] > 0,
        "ecn_bleached", TO_0,
    ),
    "cable_down": case(dropped("cable"), "cable_down", "cable:leaf0-spine0", for_="20us"),
    "reduced_rate": case(slower(10_000), "reduced_rate", "all", rate="100Gbps"),
    "long_cable": case(slower(10_000), "long_cable", "all", delay="5us"),
    "small_mtu": case(both(dropped("mtu"), failed), "small_mtu", TO_0, mtu=1500),
    "miswired": case(both(dropped("no_qp"), failed), "miswired", "nic:0", other=2),
    "small_buffer": case(more("tx_pause"), "small_buffer", "switch:leaf0", size="800KB"),
    "ecn_off": case(
        at_port("leaf1:4", "ecn_marked_prio3", lambda was, now: was > 0 and now == 0), "ecn_off", "switch:leaf1"
    ),
    "ecn_thresholds": case(
        at_port("leaf1:4", "ecn_marked_prio3", lambda was, now: now > was), "ecn_thresholds", "switch:leaf1",
        kmin="5KB", kmax="5KB",
    ),
    "wrong_dscp_map": case(
        at_port("leaf1:1", "rx_prio0_packets", lambda was, now: now > was == 0), "wrong_dscp_map", "switch:leaf1"
    ),
    "short_watchdog": case(
        both(dropped("watchdog"), lambda was, now: any(e["event"] == "pfc_watchdog" for e in now.events)),
        "short_watchdog", "switch:leaf0", detect="1us", restore="5us",
        before={"fault": "slow_pcie", "on": "nic:0", "rate": "50Gbps"},
    ),
    "pfc_off": case(
        both(dropped("headroom"), at_port("leaf1:2", "tx_prio3_pause", lambda was, now: was > 0 == now)),
        "pfc_off", "port:leaf1:2",
    ),
    "small_headroom": case(dropped("headroom"), "small_headroom", "port:leaf1:2", size="4KB"),
    "pause_storm": case(
        both(at_port("leaf0:1", "rx_prio3_pause", lambda was, now: now > 2), slower(0)),
        "pause_storm", "nic:0", for_="100us",
        flows=((1, 0, 65536, 0), (3, 0, 65536, 0)),
    ),
    "missing_entry": case(both(dropped("forwarding"), failed), "missing_entry", "switch:leaf1", to=0),
    "shadow_rule": case(both(dropped("forwarding"), failed), "shadow_rule", "switch:spine0", to=0),
    "wrong_port": case(both(dropped("no_qp"), failed), "wrong_port", "switch:leaf0", to=0, port=2),
    "loop": case(both(dropped("ttl"), failed), "loop", "switch:leaf0", to=3, neighbour="spine0",
                 flows=((0, 3, 65536, 0),)),
    "meter": case(
        both(dropped("fault"), more("retransmitted"), lambda was, now: now.times[0] is not None),
        "meter", "switch:leaf0", to=0, rate="20Gbps",
    ),
    "dead_ecmp_member": case(
        both(dropped("forwarding"), failed), "dead_ecmp_member", "port:leaf0:4", spines=2, flows=MANY
    ),
    "polarised_hash": case(
        lambda was, now: now.figures() != was.figures(), "polarised_hash", "all", spines=4, flows=MANY
    ),
    "table_full": case(both(dropped("forwarding"), failed), "table_full", "switch:leaf0", flows_=2),
    "partial_write": case(both(dropped("forwarding"), failed), "partial_write", "switch:leaf0", share=0.5),
    "slow_pcie": case(more("tx_pause"), "slow_pcie", "nic:0", rate="100Gbps"),
    "cc_off": case(
        lambda was, now: now.counts["rp_cnp_handled@4"] == 0 < was.counts["rp_cnp_handled@4"],
        "cc_off", "nic:4", cc="dcqcn"
    ),
    "wrong_cc": case(
        lambda was, now: now.times != was.times,
        "wrong_cc", "nic:4", parameters={"g": 1.0, "rate_timer": "1ms"}, cc="dcqcn",
    ),
    "incast": case(both(more("ecn_marked"), more("tx_pause")), "incast", "nic:0", size="512KiB"),
    "noisy_neighbour": case(
        lambda was, now: now.times != was.times and now.counts["tx_packets"] > was.counts["tx_packets"],
        "noisy_neighbour", "all", load=0.5, flows_=20, size="128KiB",
    ),
    "victim_flow": case(
        lambda was, now: now.counts["tx_packets"] > was.counts["tx_packets"], "victim_flow", "flow:2->0", size="256KiB"
    ),
}  # fmt: skip
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
    assert c.seen(untouched, faulty), (untouched.figures(), faulty.figures())
    f.heal(ids)
    assert [x["fault"] for x in f.fabricd.request("faults")["faults"]] == needed
    if c.cc != "none" or c.spines > 1:
        return  # rates, and the ways that new queue pairs take, have a history: see the tests of both
    assert f.measure(c.flows).figures() == untouched.figures()


def _together(f: FaultyFabric, c: Case) -> tuple[list[str], Outcome]:
    """A fault that comes and goes by itself: it is put in, and the flows start before it is over."""
    from testbed.inject import Injection

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
