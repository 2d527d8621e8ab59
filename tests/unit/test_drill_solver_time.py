"""What the solver makes of what changes while it looks: frames under way or lost, flows that come back, symptoms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from drills.session import Answer
from drills.solve import ecn
from drills.solve.congestion import delays
from drills.solve.corruption import overtaking, twice
from drills.solve.lost import under_way, vanished
from drills.solve.operator import Operator
from drills.solve.routing import nowhere
from drills.solve.solver import _recovers, solve
from tests.recorded import NOW_NS, Recorded, nics

PROBE_NS = 100_000
JOB_US = 90.0
Tables = Mapping[str, Any]
Shown = Callable[[float, float, list[str]], Tables]
"""What views show: at this time, of the last so many ns (0: ever), after these actions."""


class Going(Recorded):
    """A session whose clock goes on; a step ends each 90 us, unless the job `stands`."""

    def __init__(self, shown: Shown, *, stands: bool = False, fix: bool = False) -> None:
        super().__init__({}, ("healthy", "where", "what", *["fix"] * fix))
        self.tables, self.now, self.stands = shown, float(NOW_NS), stands

    def command(self, line: str) -> Answer:
        passes = re.fullmatch(r"advance (\d+)ns", line)
        if line == "probe mesh":
            self.done.append(line)
        if passes or line == "probe mesh":
            self.now += float(passes[1]) if passes else PROBE_NS
            return Answer(True, round(self.now), "", {})
        changed = re.search(r"--changed (\d+)ns", line)
        began = 1.0 if self.stands else self.now / 1000 - JOB_US - 1
        step = {"step": "0", "began_us": began, "time_us": JOB_US, "vs_best": "1.00x", "wrong": 0}
        self.shown = {"job": {"job": [step]}, **self.tables(self.now, float(changed[1]) if changed else 0, self.done)}
        told = super().command(line)
        return Answer(told.ok, round(self.now), told.text, told.data)


def ports(**counts: tuple[int, int]) -> dict[str, Any]:
    """`leaf0_5=(7, 9)`: 7 in, 9 out."""
    rows = [{"IFACE": port.replace("_", ":"), "RX_OK": rx, "TX_OK": tx} for port, (rx, tx) in counts.items()]
    return {"interfaces counters": {"counters": rows}}


def queues(size: int, *, port: str = "leaf0:5", speed: str = "400G") -> dict[str, Any]:
    """Frames of so many bytes have gone out of a port, and answers out of its peer's others."""
    sent = [{"Port": port, "TxQ": "UC3", "Counter/pkts": 100, "Counter/bytes": 100 * size},
            {"Port": port, "TxQ": "UC6", "Counter/pkts": 100, "Counter/bytes": 6600}]  # fmt: skip
    status = [{"Interface": one, "Speed": speed, "Oper": "up"} for one in ("leaf0:5", "leaf0:6")]
    return {"queue counters": {"counters": sent}, "interfaces status": {"status": status}}


WAITS = nics(local_ack_timeout_err={3: 1})


def losing(now: float, of_ns: float, done: list[str]) -> Tables:
    """Six of a hundred each 400 us."""
    sent = int(of_ns or now) // 4000
    return {**WAITS, **ports(leaf0_5=(0, sent), spine0_1=(sent - sent * 6 // 100, 0))}


def late(now: float, of_ns: float, done: list[str]) -> Tables:
    """Eight are on their way, however long one looks."""
    return {**WAITS, **ports(leaf0_5=(0, 100), spine0_1=(92, 0))}


def test_few_lost_frames_are_told_from_those_under_way_by_another_look() -> None:
    (found,) = vanished(Operator(asked := Going(losing)))
    assert (found.kind, found.place) == ("loss", "cable:leaf0-spine0")
    assert asked.now > NOW_NS
    assert vanished(Operator(Going(late))) == []


def test_who_waits_for_nothing_has_lost_nothing() -> None:
    asked = Going(lambda *when: {**losing(*when), **nics()})
    assert vanished(Operator(asked)) == []
    assert asked.now == NOW_NS


@pytest.mark.parametrize(
    ("size", "speed", "frames"), [(1000, "400G", 35.0), (1000, "800G", 70.0), (4000, "400G", 12.0)]
)
def test_a_cable_holds_more_frames_the_shorter_they_are(size: int, speed: str, frames: float) -> None:
    """700 ns of 50 bytes a ns. Answers of 66 bytes are no more than what they answer, on other cables, too."""
    held = under_way(Operator(Going(lambda *_: queues(size, speed=speed))))
    assert held["leaf0:5"] == held["spine0:1"] == held["leaf0:6"] == frames


def test_more_came_than_was_sent_of_late_but_not_ever() -> None:
    """They were under way when the window began."""
    again = nics(duplicate_request={4: 9})

    def more(of_ns: float, ever: int) -> Tables:
        return {**again, **ports(leaf0_5=(0, 400), spine0_1=(440 if of_ns else 400 + ever, 0))}

    assert twice(Operator(Going(lambda now, of_ns, done: more(of_ns, 0)))) == []
    (found,) = twice(Operator(Going(lambda now, of_ns, done: more(of_ns, 40))))
    assert (found.kind, found.place) == ("duplication", "cable:leaf0-spine0")


@pytest.mark.parametrize(
    ("let", "kind", "place"), [(0, "one_way", "cable:leaf0-spine0"), (8, "drop_hash", "switch:leaf0")]
)
def test_a_dead_direction_lets_no_probe_pass_a_switch_that_drops_one_flow_does(let: int, kind: str, place: str) -> None:
    """The job has one flow there, and nothing of it comes."""

    def shown(now: float, of_ns: float, done: list[str]) -> Tables:
        return {**WAITS, **ports(leaf0_5=(0, 64), spine0_1=(let if "probe mesh" in done else 0, 0))}

    (found,) = vanished(Operator(asked := Going(shown, stands=True)))
    assert asked.done == ["probe mesh"]
    assert (found.kind, found.place) == (kind, place)


@pytest.mark.parametrize(("mended", "kinds"), [(False, ["ecn_thresholds"]), (True, [])])
def test_a_queue_that_was_deep_before_a_repair_need_not_be_marked_now(mended: bool, kinds: list[str]) -> None:
    """leaf0 has marked as often as leaf1, and seldom of late. How deep it was is told of all time."""

    def shown(now: float, of_ns: float, done: list[str]) -> Tables:
        marks = [{"Port": f"{leaf}:5", "TxQ": "UC3", "EcnMarked/pkts": n} for leaf, n in
                 (("leaf0", 3 if of_ns else 700), ("leaf1", 700))]  # fmt: skip
        config = [{"Switch": leaf, "Queue": "UC3", "green_min_threshold": 40000} for leaf in ("leaf0", "leaf1")]
        deep = [{"Port": "leaf0:5", "UC3": 690_000}]
        return {"ecn": {"queues": marks}, "ecn config": {"ecn": config}, "queue watermark": {"shared": deep}}

    desk = Operator(Going(shown))
    desk.from_ns = NOW_NS - 100_000.0 if mended else 0.0
    assert [found.kind for found in ecn.late(desk)] == kinds


@pytest.mark.parametrize("back_us", [0, 1000])
def test_he_waits_for_flows_that_were_led_around_to_come_back(back_us: int) -> None:
    """Until then a longer way is no second fault. Steps take 90 us, not 60, while they go around."""

    class LedBack(Going):
        def command(self, line: str) -> Answer:
            told = super().command(line)
            if line == "show job" and isinstance(told.data, Mapping):
                return Answer(True, told.time_ns, "", {"job": [{"time_us": 60.0}, *told.data["job"]]})
            if line == "show job --last 1" and isinstance(told.data, Mapping) and self.now >= NOW_NS + 1000 * back_us:
                return Answer(True, told.time_ns, "", {"job": [{**told.data["job"][0], "time_us": 60.0}]})
            return told

    def shown(now: float, of_ns: float, done: list[str]) -> Tables:
        used = 100 if now >= NOW_NS + 1000 * back_us else 0
        return ports(leaf0_5=(0, used))

    desk = Operator(LedBack(shown, fix=True))
    assert desk.carry_out(("route drain leaf0:5", "cable replace leaf0-spine0", "route undrain leaf0:5"))
    assert _recovers(desk)
    assert desk.time_ns >= NOW_NS + 1000 * back_us


def test_what_shows_only_after_a_while_is_seen_before_he_says_that_nothing_is_wrong() -> None:
    def shown(now: float, of_ns: float, done: list[str]) -> Tables:
        grown = now > NOW_NS
        return {"interfaces errors": {"errors": [{"IFACE": "leaf0:5", "RX_CRC": 3 * grown}]}}

    assert solve(Going(shown)) == "loss@cable:leaf0-spine0"


class Cured(Going):
    """A symptom that is there until a cable has been replaced; frames go over all uplinks of leaf0, most over one."""

    LOAD = (("leaf0:5", 900), ("leaf0:6", 400), ("leaf1:5", 41))

    def __init__(self, guilty: str, shown: Callable[[bool], Tables], refused: str = "") -> None:
        super().__init__(lambda now, of_ns, done: {**self._carried(), **shown(self._ill)}, fix=True)
        self.guilty, self.refused = guilty, refused

    @property
    def _ill(self) -> bool:
        return f"config cable replace {self.guilty}" not in self.done

    def _carried(self) -> Tables:
        rows = [{"IFACE": port, "RX_OK": 0, "TX_OK": sent} for port, sent in self.LOAD]
        return {"interfaces counters": {"counters": rows}}

    def command(self, line: str) -> Answer:
        if self.refused and self.refused in line:
            return Answer(False, round(self.now), "no")
        return super().command(line)

    @property
    def tried(self) -> list[str]:
        return [line.split()[-1] for line in self.done if "cable replace" in line]


def gaps(ill: bool) -> Tables:
    return nics(out_of_sequence={4: 5 * ill})


@pytest.mark.parametrize(
    ("guilty", "refused", "found", "tried"),
    [
        ("leaf0-spine0", "", ["reordering@cable:leaf0-spine0"], ["leaf0-spine0"]),  # the busiest comes first
        ("leaf0-spine1", "", ["reordering@cable:leaf0-spine1"], ["leaf0-spine0", "leaf0-spine1"]),
        ("leaf0-spine1", "drain leaf0:5", ["reordering@cable:leaf0-spine1"], ["leaf0-spine1"]),
        ("leaf1-spine0", "", [], ["leaf0-spine0", "leaf0-spine1"]),  # it carries less than a tenth of the busiest
    ],
)
def test_cables_that_carry_the_job_are_replaced_until_its_gaps_are_gone(
    guilty: str, refused: str, found: list[str], tried: list[str]
) -> None:
    asked = Cured(guilty, gaps, refused)
    assert [str(one) for one in overtaking(Operator(asked))] == found
    assert asked.tried == tried


def test_where_no_packet_is_out_of_order_no_cable_is_tried() -> None:
    asked = Cured("leaf0-spine0", lambda ill: nics())
    assert overtaking(Operator(asked)) == [] == asked.done


class Delayed(Cured):
    """The last step takes longer than the first one did."""

    times = (60.0, 90.0)

    def command(self, line: str) -> Answer:
        told = super().command(line)
        if not line.startswith("show job"):
            return told
        first, last = self.times if self._ill else (60.0, 60.0)
        steps = [{"step": "0", "began_us": 1.0, "time_us": first},
                 {"step": "1", "began_us": self.now / 1000 - last - 1, "time_us": last}]  # fmt: skip
        if line.startswith("show job --last "):
            steps = steps[-int(line.split()[3]) :]
        return Answer(True, round(self.now), "", {"job": steps})


@pytest.mark.parametrize(
    ("times", "shown", "found"),
    [
        ((60.0, 90.0), {}, ["jitter@cable:leaf0-spine1"]),
        ((60.0, 63.1), {}, ["jitter@cable:leaf0-spine1"]),
        ((60.0, 63.0), {}, []),  # 5 % are no delay
        ((60.0, 90.0), nics(np_cnp_sent={2: 1}), []),  # congestion
        ((60.0, 90.0), nics(packet_seq_err={2: 1}), []),
    ],
)
def test_where_steps_are_longer_and_no_counter_moves_a_cable_is_late(
    times: tuple[float, float], shown: Tables, found: list[str]
) -> None:
    """No probe is late here, so that steps tell whether the delay varies."""
    asked = Delayed("leaf0-spine1", lambda ill: shown)
    asked.times = times
    assert [str(one) for one in delays(Operator(asked))] == found
    assert bool(asked.tried) == bool(found)


def test_a_switch_that_loses_on_two_cables_what_it_sends_is_at_fault_itself() -> None:
    lost = {**WAITS, **ports(leaf0_5=(0, 100), leaf0_6=(0, 100), spine0_1=(50, 0), spine1_1=(50, 0))}
    (found,) = vanished(Operator(Going(lambda *_: lost)))
    assert (str(found), found.mend) == ("drop_hash@switch:leaf0", ("route drain leaf0",))


HEADERS = "10.0.0.1 > %s UDP 1 > 4791 dscp 26"


@pytest.mark.parametrize(
    ("to", "more", "found"),
    [
        ("239.0.0.1", "output:5", ["missing_group@switch:leaf1"]),
        ("10.0.1.1", "drop", ["dead_ecmp_member@port:leaf1:5"]),
        ("10.0.1.1", "output:5", []),  # it has an entry for everybody, and all members lead somewhere
    ],
)
def test_what_a_switch_does_not_forward_tells_what_it_lacks(to: str, more: str, found: list[str]) -> None:
    def row(match: str, actions: str) -> dict[str, Any]:
        return {"switch": "leaf1", "priority": 100, "match": match, "actions": actions}

    flows = [row("ip,nw_dst=10.0.0.0/8", "output:1")]
    flows += [row(f"reg0={k},reg1=0x3c", actions) for k, actions in enumerate((more, "output:6"))]
    drops = [{"node": "leaf1", "port": 1, "reason": "forwarding", "count": 9, "headers": HEADERS % to}]
    desk = Operator(Going(lambda *_: {"flows": {"flows": flows}, "drops": {"drops": drops}}))
    assert [str(one) for one in nowhere(desk)] == found
    assert all(one.mend == ("flow resync leaf1",) for one in nowhere(desk))
