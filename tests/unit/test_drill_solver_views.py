"""What the solver makes of views that name the cause, and what he mends it with: on tables, without a fabric.

What each class shows is what docs/faults.md says of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drills.session import Answer
from drills.solve import real
from drills.solve.controller import steering
from drills.solve.corruption import results
from drills.solve.operator import Operator
from drills.solve.solver import solve
from tests.recorded import (
    FIX,
    HOSTS,
    NOW_NS,
    STANDS,
    STEPS,
    SWITCHES,
    UPLINKS,
    USUAL,
    Ranks,
    Recorded,
    Wrong,
    accelerators,
    but,
    crc,
    deep,
    ecn_config,
    log,
    nics,
    status,
    traffic,
)  # fmt: skip

SLOW = [{**STEPS[0], "time_us": 60.0}, STEPS[1]]


def lldp(*crossed: str) -> dict[str, Any]:
    """These two ports have each other's neighbours."""
    seen = dict(UPLINKS)
    if crossed:
        one, other = crossed
        seen |= {one: UPLINKS[other], other: UPLINKS[one]}
    rows = [{"LocalPort": port, "RemotePortDescr": peer} for port, peer in seen.items()]
    return {"lldp neighbors": {"lldp": rows}}


def hashed(**seeds: int) -> dict[str, Any]:
    rows = [
        {"switch": switch, "priority": 100, "match": "ip,nw_dst=10.0.1.1",
         "actions": f"multipath(symmetric_l3l4+udp,{seed},modulo_n,2,0,reg0[])"}
        for switch, seed in seeds.items()
    ]  # fmt: skip
    return {"flows": {"flows": rows}}


def ruled(priority: int) -> dict[str, Any]:
    row = {"switch": "leaf0", "priority": priority, "match": "ip,nw_dst=10.0.1.1", "actions": "output:2"}
    return {"flows": {"flows": [row]}}


def pauses(*off: tuple[str, str]) -> dict[str, Any]:
    """`("leaf0:5", "Tx")`: there they are off."""
    ports = [port for pair in {**UPLINKS, **HOSTS}.items() for port in pair]
    rows = [
        {"Interface": port, "Lossless priorities": "3"}
        | {way: "off" if (port, way) in off else "on" for way in ("Tx", "Rx")}
        for port in ports
    ]
    return {"pfc config": {"pfc": rows}}


def qos(dscp: str = "0-7,26", weight: str = "1") -> dict[str, Any]:
    """What leaf1 has in class 3, and the weight of its queue 3; others have 0-7 and 26, and 1."""
    maps = [{"Switch": s, "TC": 3, "DSCP": dscp if s == "leaf1" else "0-7,26"} for s in SWITCHES]
    maps += [{"Switch": "leaf1", "TC": 0, "DSCP": "26"}] * ("26" not in dscp)
    queues = [
        {"Switch": s, "Queue": f"UC{c}", "type": "DWRR", "weight": weight if (s, c) == ("leaf1", 3) else "1"}
        for s in SWITCHES
        for c in (0, 3)
    ]
    return {"qos config": {"dscp": maps, "scheduler": queues}}


def watchdog(detect: str) -> dict[str, Any]:
    rows = [
        {"PORT": f"{s}:*", "ACTION": "drop", "DETECTION TIME": detect if s == "leaf1" else "200ms",
         "RESTORATION TIME": "300ms"}
        for s in SWITCHES
    ]  # fmt: skip
    return {"pfcwd config": {"pfcwd": rows}}


def ecn_without(switch: str) -> dict[str, Any]:
    rows = ecn_config()["ecn config"]["ecn"]
    return {"ecn config": {"ecn": [row for row in rows if row["Switch"] != switch]}}


def sent(**paused: int) -> dict[str, Any]:
    """XOFFs by port: `leaf0_1=30`."""
    rows = [{"Port Tx": port.replace("_", ":"), "PFC3": n} for port, n in paused.items()]
    return {"pfc": {"rx": [], "tx": rows}}


def spoilt(*pairs: tuple[int, int]) -> dict[str, Any]:
    """Packets of these pairs of ranks that NICs have thrown away, with their headers."""
    ip = {rank: f"10.0.{rank // 4}.{rank % 4 + 1}" for rank in range(8)}
    rows = [
        {"node": f"h{b}", "port": 1, "reason": "icrc", "count": 3, "headers": f"{ip[a]} > {ip[b]} UDP 1 > 4791"}
        for a, b in pairs
    ]
    return {"drops": {"drops": rows}}


def marked(**marks: int) -> dict[str, Any]:
    rows = [{"Port": f"{switch}:5", "TxQ": "UC3", "EcnMarked/pkts": n} for switch, n in marks.items()]
    return {"ecn": {"queues": rows}}


def seen(*none: int, marks: int = 100) -> dict[str, Any]:
    """Marks that have come to NICs; these have seen none."""
    return nics(np_ecn_marked_roce_packets={rank: 0 if rank in none else marks for rank in range(8)})


DOWN = (100.0, "leaf0", "leaf0:5 oper state set from up to down")
AROUND = (600.0, "controller", "leaf0:5 down: rerouted")
CABLE = "cable:leaf0-spine0"


def spray(*dead: tuple[int, int], lost: int = 9) -> dict[str, Any]:
    """Each rank sprays over eight entropies to the next three; of these pairs one loses."""

    def rows(rank: int) -> list[dict[str, Any]]:
        peers = [(rank + k) % 8 for k in (1, 2, 3)]
        return [
            {"qp": 16 + k, "peer": peer, "entropy": e, "lost": 1 + lost * (e == 3 and (rank, peer) in dead)}
            for k, peer in enumerate(peers)
            for e in range(8)
        ]

    return {f"paths {rank}": {"paths": rows(rank)} for rank in range(8)}


def placed(refused: int, at: int = 3) -> dict[str, Any]:
    rows = [{"NIC": f"h{r} (rank {r})", "out_of_sequence": 90, "placed": 90 - refused * (r == at)} for r in range(8)]
    return {"reorder": {"received": rows, "sent": []}}


def waits(*pairs: tuple[int, int]) -> dict[str, Any]:
    """Who waits for whose credit."""
    return {
        f"credits {rank}": {
            "sends": [{"peer": p, "asked": int((rank, p) in pairs), "waits_us": 0.0} for p in range(8) if p != rank]
        }
        for rank in range(8)
    }


CASES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "some paths of those below a leaf lose all": (spray((0, 1), (1, 2), (2, 5)), "blackhole_entropy@switch:leaf0", []),
    "one pair alone loses": (spray((0, 1)), "healthy", []),
    "all entropies lose alike": (spray((0, 1), (1, 2), lost=1), "healthy", []),
    "packets overtake each other where NICs spray": (spray() | placed(0), "healthy", []),
    "one NIC places nothing ahead of its turn": (placed(40), "in_order_nic@nic:3", []),
    "all place nearly all": (placed(10), "healthy", []),
    "several senders ask one receiver": (waits((0, 7), (3, 7), (4, 7), (5, 6)), "grant_leak@nic:7", []),
    "one of them asks": (waits((0, 7)), "healthy", []),
    "as many ask another": (waits((0, 7), (3, 7), (4, 7), (5, 6), (0, 6)), "healthy", []),
    "two cables have changed places": (
        {**lldp("leaf0:5", "leaf0:6"), **crc("leaf1:5")},  # and damage is not looked for beside it
        "miswired@cable:leaf0-spine0",
        ["cable move leaf0-spine0 leaf0-spine1"],
    ),
    "cables are where they should be": (lldp(), "healthy", []),
    "a cable goes down, and the controller leads around it": (
        log((90.0, "controller", "rules written"), DOWN, AROUND, (690.0, "controller", "rules written")),
        f"cable_down@{CABLE}",
        ["route drain leaf0:5"],
    ),
    "it takes more than half a millisecond": (
        log((90.0, "controller", "rules written"), DOWN, (600.1, "controller", "leaf0:5 down: rerouted")),
        f"cable_down@{CABLE} slow_controller@controller",
        ["route drain leaf0:5", "controller restart"],
    ),
    "a port is down that nobody has shut": (
        {**status(leaf0_5={"Oper": "down"}), **log()}, f"cable_down@{CABLE}", ["route drain leaf0:5"]
    ),
    "a port is down that somebody has shut": (
        {**status(leaf0_5={"Oper": "down", "Admin": "down"}), **log()}, "healthy", []
    ),
    "a host's cable is down: there is no way around": (
        {**status(leaf0_1={"Oper": "down"}), **log()}, "cable_down@cable:h0-leaf0", []
    ),
    "the controller is gone": (log((1.0, "controller", "connection lost")), "controller_dead@controller",
                               ["controller restart"]),
    "what others say of a connection is not the controller's": (log((1.0, "rank3", "connection lost")), "healthy", []),
    "a table is full": (
        log((1.0, "x", "spine0 refused 2 flow mods: TABLE_FULL(1)"), (2.0, "x", "spine0 refused 3 flow mods: BAD")),
        "table_full@switch:spine0",
        ["route drain spine0"],
    ),
    "a cable takes small frames alone": (
        status(leaf0_5={"MTU": 1500}, spine0_1={"MTU": 1500}), f"small_mtu@{CABLE}", ["interface mtu leaf0:5 9216"]
    ),
    "hosts have another MTU than switches": (status(), "healthy", []),
    "cables to hosts are slower than those between switches": (
        status(**{p.replace(":", "_"): {"Speed": "50G"} for pair in HOSTS.items() for p in pair}), "healthy", []
    ),
    "one of those to hosts is slower": (
        status(leaf0_2={"Speed": "25G"}, h1_1={"Speed": "25G"}),
        "reduced_rate@cable:h1-leaf0",
        ["interface speed leaf0:2 100Gbps"],
    ),
    "one of them is faster": (status(leaf0_2={"Speed": "1T"}, h1_1={"Speed": "1T"}), "healthy", []),
    "an accelerator is off": (accelerators(spine0={"status": "down"}), "accelerator_down@switch:spine0",
                              ["accelerator on spine0"]),
    "its slots are held for nobody": (accelerators(leaf1={"slots_free": 60, "unknown": 9}),
                                      "slots_leaked@switch:leaf1", ["accelerator reclaim leaf1"]),
    "it knows all that comes": (accelerators(leaf1={"slots_free": 60}), "healthy", []),
    "all have as many": (accelerators(leaf1={"unknown": 9}), "healthy", []),
    "a switch has meters": (
        {"meters": {"meters": [{"Switch": "leaf0", "Meter": n} for n in (1, 2)]}},
        "meter@switch:leaf0",
        ["flow resync leaf0"],
    ),
    "rules of the controller": (ruled(110), "healthy", []),
    "a rule above them": (ruled(111), "wrong_port@switch:leaf0", ["flow resync leaf0"]),
    "all switches hash alike": (hashed(spine0=7, leaf0=7, leaf1=7), "polarised_hash@all",
                                ["hash seed leaf0 1", "hash seed leaf1 2", "hash seed spine0 3"]),
    "one does not": (hashed(spine0=8, leaf0=7, leaf1=7), "healthy", []),
    "two are too few to tell": (hashed(leaf0=7, leaf1=7), "healthy", []),
    "a switch does not mark": (ecn_without("spine1"), "ecn_off@switch:spine1", ["ecn spine1 on"]),
    "an end of a cable sends no pauses": (pauses(("leaf0:5", "Tx")), "pfc_off@port:leaf0:5",
                                          ["pfc leaf0:5 on", "pfc spine0:1 on"]),
    "both ends send none": (pauses(("leaf0:5", "Tx"), ("spine0:1", "Tx")), f"pfc_off@{CABLE}",
                            ["pfc leaf0:5 on", "pfc spine0:1 on"]),
    "a NIC heeds none": (pauses(("h2:1", "Rx")), "pfc_off@nic:2", ["nic pfc 2 on", "pfc leaf0:3 on"]),
    "a DSCP is in another class": (qos("0-7"), "wrong_dscp_map@switch:leaf1", ["qos dscp leaf1 26 3"]),
    "a queue has another weight": (qos(weight="9"), "wrong_weights@switch:leaf1", ["scheduler weight leaf1 3 1"]),
    "classes all alike": (qos(), "healthy", []),
    "a watchdog is in a hurry": (watchdog("20us"), "short_watchdog@switch:leaf1",
                                 ["pfcwd leaf1 --detect 200ms --restore 300ms"]),
    "watchdogs all alike": (watchdog("200ms"), "healthy", []),
    "marks never come to one of the NICs at a switch": (seen(5), "ecn_bleached@cable:h5-leaf1", []),
    "to all of them, few": (seen(5, marks=8), "healthy", []),
    "a switch marks far later than its like": (
        {**ecn_config(), **marked(leaf0=10, leaf1=81), **deep("leaf0:5", 80001)},
        "ecn_thresholds@switch:leaf0",
        ["ecn leaf0 --kmin 40000B --kmax 160000B --pmax 0.2"],
    ),
    "others mark as well, if little": ({**ecn_config(), **marked(leaf1=8), **deep("leaf0:5", 80001)}, "healthy", []),
    "others mark, and it never does": (
        {**ecn_config(), **marked(leaf1=9), **deep("leaf0:5", 80001)},
        "ecn_thresholds@switch:leaf0",
        ["ecn leaf0 --kmin 40000B --kmax 160000B --pmax 0.2"],
    ),
    "its queues are not deep": (
        {**ecn_config(), **marked(leaf0=10, leaf1=81), **deep("leaf0:5", 80000)}, "healthy", []
    ),
    "it is another's queue that is deep": (
        {**ecn_config(), **marked(leaf0=10, leaf1=81), **deep("leaf1:5", 80001)}, "healthy", []
    ),
    "it marks an eighth": ({**ecn_config(), **marked(leaf0=10, leaf1=80), **deep("leaf0:5", 80001)}, "healthy", []),
    "another kind of switch marks": ({**ecn_config(), **marked(spine0=81), **deep("leaf0:5", 80001)}, "healthy", []),
    "the job stands, and a NIC pauses": (
        {"job": {"job": STANDS}, **sent(h3_1=40, h5_1=20, leaf0_5=90)},
        "pause_storm@nic:3",
        ["pfc leaf0:4 off"],
    ),
    "a switch pauses far more than its like": (
        {"job": {"job": SLOW}, **sent(leaf0_1=20, leaf0_2=41, leaf1_1=20, spine0_1=500, spine1_1=499)},
        "small_buffer@switch:leaf0",
        ["buffer leaf0 0B"],
    ),
    "three times as much is not far more": ({"job": {"job": SLOW}, **sent(leaf0_1=60, leaf1_1=20)}, "healthy", []),
    "nor is twenty": ({"job": {"job": SLOW}, **sent(leaf0_1=20)}, "healthy", []),
    "the job is as fast as ever": (sent(leaf0_1=90, leaf1_1=20), "healthy", []),
    "two pairs with spoilt packets share a rank": (spoilt((0, 5), (3, 5), (0, 5)), "corruption@cable:h5-leaf1", []),
    "others send to one NIC": (traffic((1, 5, 900), (2, 5, 800)), "incast@nic:5", []),
    "others send to many": (traffic((1, 5, 900), (2, 6, 800)), "noisy_neighbour@all", []),
    "others send nothing": (traffic((1, 5, 0)), "healthy", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_solver_takes_it_for_what_it_is_and_mends_it(name: str) -> None:
    shown, answer, mends = CASES[name]
    assert solve(Recorded(shown)) == answer
    solve(asked := Recorded(shown, FIX))
    assert asked.done[: len(mends)] == [f"config {line}" for line in mends]
    assert mends or not asked.done


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ([USUAL], "healthy"),
        ([USUAL, but(3, 9.0), USUAL], "straggler@nic:3"),
        ([but(3, 9.0), but(5, 9.0), but(5, 9.0)], "straggler@nic:5"),  # the one that is late more often
        ([but(3, 7.3)], "healthy"),  # 27.3 of 21 us: not 1.3 times as long
    ],
)
def test_a_straggler_is_longer_at_work_in_steps_that_are_slow(steps: list[list[float]], answer: str) -> None:
    assert solve(Ranks(*steps)) == answer


def test_a_rank_that_adds_up_by_itself_is_no_straggler() -> None:
    asked = Ranks(but(3, 90.0))
    asked.ranked = [{**row, "fallback": "accelerator"} for row in asked.ranked]
    assert solve(asked) == "healthy"


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([(1.0, "rank3", "ended: killed")], "worker_killed@nic:3"),
        ([(1.0, "nic3", "queue pair 7 in error"), (2.0, "rank3", "ended: retries exceeded")], "healthy"),
        ([(1.0, "nic4", "queue pair 7 in error"), (2.0, "rank3", "ended: killed")], "worker_killed@nic:3"),
    ],
)
def test_a_worker_that_its_queue_pairs_have_ended_was_not_killed(
    rows: list[tuple[float, str, str]], answer: str
) -> None:
    assert solve(Recorded(log(*rows))) == answer


class Advancing(Recorded):
    """Its clock goes on; the controller says something at that time, if at all."""

    def __init__(self, reacts_us: float | None) -> None:
        super().__init__({})
        self.now_us, self.reacts_us = NOW_NS / 1000, reacts_us

    def command(self, line: str) -> Answer:
        if line.startswith("advance "):
            self.now_us += float(line.removeprefix("advance ").removesuffix("ns")) / 1000
        told = self.reacts_us is not None and self.now_us >= self.reacts_us
        rows = [(600.0, *DOWN[1:]), *([(self.reacts_us or 0.0, *AROUND[1:])] if told else [])]
        self.shown = {"job": {"job": STEPS}, **log(*rows)}
        answer = super().command(line)
        return Answer(answer.ok, round(1000 * self.now_us), answer.text, answer.data)


@pytest.mark.parametrize(
    ("reacts_us", "kinds", "waits_us"),
    [
        (None, ["controller_hung"], 1400.0),  # 1.5 ms behind the cut
        (2050.0, ["slow_controller"], 1400.0),
        (650.0, [], 0.0),
    ],
)
def test_a_controller_is_given_time_before_it_is_said_to_hang(
    reacts_us: float | None, kinds: list[str], waits_us: float
) -> None:
    asked = Advancing(reacts_us)
    assert [one.kind for one in steering(Operator(asked))] == kinds
    assert asked.now_us == pytest.approx(NOW_NS / 1000 + waits_us)


def test_of_wrong_sums_the_switch_is_found_without_which_they_are_right() -> None:
    (found,) = results(Operator(asked := Wrong("spine1", r2=3, r5=4)))
    assert (str(found), found.mend) == ("silent_corruption@switch:spine1", ("route drain spine1",))
    assert asked.done == [f"config route {what}" for what in
                          ("drain spine0", "undrain spine0", "drain spine1", "undrain spine1")]  # fmt: skip
    (found,) = results(Operator(asked := Wrong("none of them", r2=3, r5=4)))
    assert (str(found), found.mend) == ("silent_corruption@nic:5", ())
    assert len(asked.done) == 4


class Real(Recorded):
    """The real clock: who answers ping, and whose programs start."""

    def __init__(self, shown: Mapping[str, Any], *, frozen: tuple[int, ...] = (), cut: tuple[int, ...] = ()) -> None:
        super().__init__(shown, FIX)
        self.frozen, self.cut, self.passed_ns = frozen, cut, 0.0

    def command(self, line: str) -> Answer:
        words = line.split()
        if line == "ticket":
            return Answer(True, NOW_NS, "", {"question": self.question, "clock": "real"})
        if words[0] == "advance":
            self.passed_ns += float(words[1].removesuffix("ns"))
        if words[:2] != ["probe", "ping"]:
            return super().command(line)
        source, target = map(int, words[2:4])
        if source in self.frozen:
            return Answer(False, NOW_NS, f"rank {source} does not answer")
        return Answer(True, NOW_NS, "", {"ping": [{"lost": int(target in self.cut)}]})


THROTTLED = {"cpu": {"cpu": [{"rank": rank, "nr_throttled": int(rank == 6), "nr_periods": 9} for rank in range(8)]}}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (Real({}), "healthy"),
        (Real(THROTTLED, frozen=(3,)), "worker_frozen@nic:3"),  # it comes first
        (Real({}, frozen=(3,), cut=(3,)), "healthy"),  # its kernel does not answer, either
        (Real(THROTTLED), "cpu_quota@nic:6"),
        (Real(crc("leaf0:5", "spine0:1")), f"loss@{CABLE}"),
    ],
)
def test_on_the_real_clock_programs_come_first(asked: Real, answer: str) -> None:
    assert solve(asked) == answer


def test_on_the_real_clock_he_waits_for_errors_and_for_what_was_lost_before_he_answers() -> None:
    """20 steps of 90 us; after the repair a timer that has to run out."""
    solve(asked := Real(crc("leaf0:5", "spine0:1")))
    assert asked.done == ["config route drain leaf0:5"]
    assert asked.passed_ns == 20 * 90_000 + real.SETTLE_NS
    solve(asked := Real({}))
    assert asked.passed_ns == 20 * 90_000
