"""What the solver makes of looks that name nothing by themselves: on tables, without a fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from drills.session import Answer
from drills.solve import congestion
from drills.solve.operator import Operator
from drills.solve.solver import solve
from tests.recorded import FIX, STEPS, Recorded
from topologies import build

STANDS = {"job": {"job": [{**step, "began_us": 1.0} for step in STEPS]}}


def left(**counts: int) -> dict[str, Any]:
    """`leaf1_1_UC0=300`: so many frames have left that port in that class."""
    rows = []
    for name, count in counts.items():
        node, port, queue = name.split("_")
        rows.append({"Port": f"{node}:{port}", "TxQ": queue, "Counter/pkts": count})
    return {"queue counters": {"counters": rows}}


def in_class_0(*ports: str) -> dict[str, Any]:
    return {"priority-group watermark": {"shared": [{"Port": port, "PG0": 22340, "PG3": 22340} for port in ports]}}


def golden(switch: str) -> dict[str, Any]:
    return {"qos config": {"dscp": [{"Switch": switch, "TC": 3, "DSCP": "24-26"}]}}


def no_room(node: str, *ports: int) -> list[dict[str, Any]]:
    return [{"node": node, "port": port, "reason": "tail", "count": 37} for port in ports]


def group(*members: str) -> dict[str, Any]:
    rows = [
        {"switch": "leaf1", "priority": 100, "match": f"reg0={k},reg1=0x3cb63402", "actions": actions}
        for k, actions in enumerate(members)
    ]
    return {"flows": {"flows": rows}}


def above(*rules: tuple[str, str]) -> dict[str, Any]:
    """Rules that the controller does not write, above those that it does: switch and actions of each."""
    rows = [{"switch": s, "priority": 200, "match": "ip,nw_dst=10.0.1.1", "actions": actions} for s, actions in rules]
    return {"flows": {"flows": rows}}


def buffers(pool: int = 9000, headroom: int = 500) -> dict[str, Any]:
    """Those of leaf1 and of its first port; others have 9000 and 500 bytes."""
    switches = {"leaf0": 9000, "leaf1": pool, "spine0": 9000, "spine1": 9000}
    pools = [{"Switch": switch, "Pool": "shared", "size": size} for switch, size in switches.items()]
    ports = {"leaf0:1": 500, "leaf1:1": headroom, "leaf1:2": 500, "spine0:1": 500}
    return {"buffer config": {"pools": pools, "profiles": [{"Port": p, "xoff": x} for p, x in ports.items()]}}


def nic_3(control: str = "dcqcn", ai: int = 40, gbps: int = 512) -> dict[str, Any]:
    """The others have DCQCN, 40 and 512 Gbit/s."""
    shown: dict[str, Any] = {"nics": {"nics": [{"rank": rank} for rank in range(8)]}}
    for rank in range(8):
        odd = rank == 3
        roce = {"congestion control": control if odd else "dcqcn", "ai_bps": ai if odd else 40}
        link = {"bandwidth": gbps if odd else 512, "LnkSta": "x8"}
        shown[f"nic {rank}"] = {"roce": [{"parameter": k, "value": v} for k, v in roce.items()], "pcie": [link]}
    return shown


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a rule above the controller's leads elsewhere": (above(("leaf0", "output:2")), "wrong_port@switch:leaf0"),
    "it limits": (above(("leaf0", "meter:1")), "meter@switch:leaf0"),
    "it drops": (above(("leaf0", "drop")), "shadow_rule@switch:leaf0"),
    "each of two sends it back": (above(("spine0", "IN_PORT"), ("leaf1", "IN_PORT")), "loop@switch:leaf1"),
    "a pool smaller than others": (buffers(pool=900), "small_buffer@switch:leaf1"),
    "less headroom than others": (buffers(headroom=90), "small_headroom@port:leaf1:1"),
    "buffers all alike": (buffers(), "healthy"),
    "a NIC without congestion control": (nic_3("none"), "cc_off@nic:3"),
    "a NIC with another control": (nic_3("swift", ai=7), "wrong_cc@nic:3"),
    "a NIC with another tuning": (nic_3(ai=7), "wrong_cc@nic:3"),
    "a NIC whose bus is slower": (nic_3(gbps=64), "slow_pcie@nic:3"),
    "NICs all alike": (nic_3(), "healthy"),
    "all that comes to a leaf leaves it in class 0": (
        {**left(leaf1_1_UC0=113, leaf1_5_UC0=340, leaf1_5_UC3=9, spine0_2_UC3=500), **in_class_0("leaf1:1", "leaf1:5")},
        "wrong_dscp_map@switch:leaf1",
    ),
    "some leaves it in class 3": (
        {**left(leaf1_1_UC0=113, leaf1_5_UC3=340, spine0_2_UC3=500), **in_class_0("leaf1:1", "leaf1:5")},
        "healthy",
    ),
    "all of it comes by one cable": (
        {**left(leaf1_1_UC0=113, spine0_2_UC3=500), **in_class_0("leaf1:5")},
        "dscp_remarked@cable:leaf1-spine0",
    ),
    "a switch has no room at most of its ports": (
        {"drops": {"drops": no_room("leaf0", 1, 2, 3, 4, 5)}},
        "small_buffer@switch:leaf0",
    ),
    "a switch has no room at one port": ({"drops": {"drops": no_room("leaf0", 1)}}, "healthy"),
    "its like has none, either": ({"drops": {"drops": no_room("leaf0", 1, 2, 3, 4) + no_room("leaf1", 1)}}, "healthy"),
    "a member of a group leads nowhere, and nothing was lost there": (
        group("drop", "output:6"),
        "dead_ecmp_member@port:leaf1:5",
    ),
    "all members lead somewhere": (group("output:5", "output:6"), "healthy"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_solver_takes_it_for_what_it_is(name: str) -> None:
    shown, answer = CASES[name]
    assert solve(Recorded(shown)) == answer


def test_what_differs_is_set_as_the_others_have_it() -> None:
    for shown, line in [
        (nic_3("none"), "config nic cc 3 dcqcn"),
        (nic_3(ai=7), "config nic cc 3 dcqcn 'ai=40'"),
        (buffers(pool=900), "config buffer leaf1 9000B"),
        (buffers(headroom=90), "config headroom leaf1:1 500B"),
    ]:
        solve(asked := Recorded(shown, FIX))
        assert asked.done[:1] == [line]


def test_classes_are_mended_by_what_was_meant_to_be_set() -> None:
    shown = CASES["all that comes to a leaf leaves it in class 0"][0]
    solve(asked := Recorded({**shown, **golden("leaf1")}, FIX))
    assert asked.done[:3] == [f"config qos dscp leaf1 {dscp} 3" for dscp in (24, 25, 26)]


class Now(Recorded):
    """In which `show job --now` says which ranks are at work."""

    def __init__(self, busy: set[int]) -> None:
        sent = [{"rank": rank, "peer": 0, "tx_bytes": 917504} for rank in range(8)]
        super().__init__({**STANDS, "qps": {"qps": sent}})
        self.busy = busy

    def command(self, line: str) -> Answer:
        if line != "show job --now":
            return super().command(line)
        rows = [{"rank": rank, "state": "at work" if rank in self.busy else "waits"} for rank in range(8)]
        return Answer(True, 700_000, "", {"job": rows})


def test_who_is_at_work_while_all_wait_stands_still_although_all_have_sent_the_same() -> None:
    assert solve(Now({5})) == "worker_frozen@nic:5"
    assert solve(Now({4, 5})) == solve(Now(set())) == "worker_frozen@nic:0"


class Losing(Recorded):
    """A cable on which 20 frames came in each of the last 40 times 10 us; `lost`: how many of them, by how long ago."""

    def __init__(self, lost: dict[int, int], frames: int = 20) -> None:
        super().__init__({})
        self.lost, self.frames = lost, frames

    def command(self, line: str) -> Answer:
        view, _, since = line.removeprefix("show interfaces ").partition(" --changed ")
        if view not in ("errors", "counters") or not since:
            return super().command(line)
        bins = min(40, round(float(since.removesuffix("ns")) / 10_000))
        lost = sum(count for k, count in self.lost.items() if k < bins)
        row = {"IFACE": "leaf1:5", "RX_CRC": lost, "RX_ERR": lost, "RX_OK": self.frames * bins - lost}
        return Answer(True, 700_000, "", {view: [row]})


ONE_BY_ONE = dict.fromkeys((0, 3, 4, 9, 11, 12, 18, 20, 25, 26, 31, 33, 35, 37, 39), 1)


@pytest.mark.parametrize(
    ("lost", "frames", "kind"),
    [
        (ONE_BY_ONE, 20, "loss"),
        ({7: 16}, 20, "burst_loss"),
        ({7: 5}, 8, "burst_loss"),
        (ONE_BY_ONE | {12: 5}, 8, "loss"),  # most of one 10 us, but as many again are spread over the others
        ({7: 8}, 20, "loss"),  # not even half of what came
        (dict.fromkeys(range(40), 1), 20, "drop_every"),
    ],
)
def test_losses_are_a_burst_if_they_are_most_of_a_moment_and_far_from_even(
    lost: dict[int, int], frames: int, kind: str
) -> None:
    """Of losses that fall one by one, the variance of their number is about its mean (Poisson)."""
    assert solve(Losing(lost, frames)) == f"{kind}@cable:leaf1-spine0"


Probes = tuple[float, float]
"""The quickest and the one in the middle."""


class Probed(Recorded):
    """What is between ranks at different leaves takes 7.521 us, if it is not said to be slow: it is from 0 to 5."""

    def __init__(self, *slowest: Probes) -> None:
        super().__init__({})
        near = {"from": 0, "to": 1, "min_us": 3.5, "median_us": 9.0}  # behind one switch: no cable between switches
        rows = [{"from": 0, "to": to, "min_us": of[0], "median_us": of[1]} for to, of in enumerate(slowest, 5)]
        self.slowest = [*rows, near]
        self.medians = {1: 9.0, 4: 7.521, **{row["to"]: row["median_us"] for row in rows}}
        self.lat: dict[int, Probes] = {}
        self.lines: list[str] = []

    def command(self, line: str) -> Answer:
        if not line.startswith("probe "):
            return super().command(line)
        self.lines.append(line)
        if line.startswith("probe lat 0 "):
            if (to := int(line.split()[3])) not in self.lat:
                return Answer(False, 700_000, "refused")
            least, middle = self.lat[to]
            return Answer(
                True, 700_000, "", {"lat": [{"from": 0, "to": to, "min_us": least, "median_us": middle, "lost": 0}]}
            )
        mesh = [{"from": 0, **{str(to): us for to, us in self.medians.items()}}]
        return Answer(True, 700_000, "", {"mesh": mesh, "slowest": self.slowest})


def around(six: Sequence[Probes | float]) -> Probed:
    """What six ranks of a ring of eight take from 0, from the next one on: those of two values are the slowest."""
    asked = Probed()
    asked.fabric = build("ring", {"nodes": 8})
    told = dict(zip((1, 7, 2, 6, 3, 5), six, strict=True))
    asked.medians = {to: us if isinstance(us, float) else us[1] for to, us in told.items()}
    asked.slowest = [
        {"from": 0, "to": to, "min_us": us[0], "median_us": us[1]}
        for to, us in told.items()
        if not isinstance(us, float)
    ]
    return asked


@pytest.mark.parametrize(
    ("slowest", "steady"),
    [
        ([(14.521, 14.521), (11.024, 14.521), (11.021, 13.066)], True),  # a cable of 4 us more; ways change
        ([(18.521, 18.521), (7.524, 13.08)], True),  # 6 us
        ([(10.405, 13.175), (8.738, 11.791), (9.666, 11.292)], False),  # up to 4 us
        ([(13.41, 17.143), (11.311, 13.867), (9.906, 15.599)], False),  # up to 6 us
    ],
)
def test_probes_tell_a_long_cable_from_one_that_varies_whatever_steps_do(
    slowest: list[tuple[float, float]], steady: bool
) -> None:
    for times in ([100.0, 101.0], [100.0, 140.0]):
        desk = Operator(asked := Probed(*slowest))
        assert congestion._steady(desk, times) is steady
        assert asked.lines == [f"probe mesh --count {congestion.PROBES}"]


def test_steps_tell_it_if_no_probe_is_late() -> None:
    assert congestion._steady(Operator(Probed((7.53, 7.53))), [100.0, 101.0])
    assert not congestion._steady(Operator(Probed((7.53, 7.53))), [100.0, 140.0])


FAR = ((10.521, 10.521), (10.521, 10.521), (13.521, 13.521))


def test_who_is_farther_off_is_not_late() -> None:
    """A healthy pair whose way is longer always takes as long."""
    varies = around((7.521, (8.738, 13.7), *FAR, (13.9, 17.0)))
    assert not congestion._steady(Operator(varies), [100.0, 101.0])
    longer = around((7.521, (11.521, 11.521), *FAR, (17.521, 17.521)))
    assert congestion._steady(Operator(longer), [100.0, 140.0])


@pytest.mark.parametrize(("probes", "steady"), [((7.9, 9.3), False), ((9.521, 9.521), True)])
def test_pairs_that_are_late_are_asked_if_the_slowest_are_only_far_off(probes: Probes, steady: bool) -> None:
    asked = around((7.521, probes[1], *FAR, (13.521, 13.521)))
    asked.lat = {7: probes}
    assert congestion._steady(Operator(asked), [100.0, 100.0 if not steady else 140.0]) is steady
    assert asked.lines == [f"probe mesh --count {congestion.PROBES}", f"probe lat 0 7 --count {congestion.PROBES}"]


@pytest.mark.parametrize(("times", "steady"), [([100.0, 101.0], True), ([100.0, 140.0], False)])
def test_steps_tell_it_too_if_late_pairs_cannot_be_asked(times: list[float], steady: bool) -> None:
    asked = around((7.521, 9.521, *FAR, (13.521, 13.521)))
    assert congestion._steady(Operator(asked), times) is steady and len(asked.lines) == 2
