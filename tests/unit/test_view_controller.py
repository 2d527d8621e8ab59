"""show controller: gone, standing still, refused; what does not move is left out with --nonzero."""

from __future__ import annotations

from typing import Any

from testbed.live.look.look import Look, Sight
from testbed.live.views import VIEWS
from topologies import build

FABRIC = build("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 1})
REFUSED = "spine0 refused 2 flow mods: OFPET_FLOW_MOD_FAILED(5)"


class Stub:
    """A `Source` of what the view asks for."""

    fabric = FABRIC

    def __init__(self, echoes: list[bool]) -> None:
        self.echoes = echoes

    def request(self, op: str, meant: bool = False, **_: Any) -> dict[str, Any]:
        note = {"event": "note", "who": "controller", "level": "error", "time_ns": 300_000, "text": REFUSED}
        return {
            "status": {"controllers": [{"pid": 1, "answers": True, "echoes": echoes} for echoes in self.echoes]},
            "parameters": {"control": {"reaction_ns": 20_000.0 if meant else 50_000.0}},
            "log": {"events": [note]},
        }[op]

    def flows(self) -> list[dict[str, Any]]:
        return [{"switch": "leaf0"}, {"switch": "leaf0"}, {"switch": "spine0"}]


def shown(*echoes: bool) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    now = {"time_ns": 700_000, "fidelity": {"clock": "virtual", "controller_timeouts": 2}}
    switches, own = VIEWS["controller"].show(Look(Stub([*echoes]), now))  # type: ignore[arg-type]
    return {row["Switch"]: row for row in switches.rows}, own.rows[0]


def test_one_that_runs_has_answered() -> None:
    switches, own = shown(True)
    assert {row["Connected"] for row in switches.values()} == {"yes"} and own["Controller"] == "running"
    assert own["Reaction (us)"] == 50.0 and {row["Echo"] for row in switches.values()} == {"answered"}
    assert (switches["leaf0"]["Flows"], switches["leaf1"]["Flows"]) == (2, 0)


def test_a_golden_sight_has_the_reaction_that_was_meant() -> None:
    now = {"time_ns": 700_000, "fidelity": {"clock": "virtual", "controller_timeouts": 2}}
    look = Look(Stub([True]), now, sight=Sight("asic", "golden"))  # type: ignore[arg-type]
    assert VIEWS["controller"].show(look)[1].rows[0]["Reaction (us)"] == 20.0


def test_what_a_switch_has_refused_is_its_own() -> None:
    switches, own = shown(True)
    assert switches["spine0"]["Errors"] == 1 and REFUSED in switches["spine0"]["Last error"]
    assert switches["leaf0"]["Errors"] == 0 and own["Last said"] == f"300.000 us: {REFUSED}"


def test_one_that_stands_still_is_connected_and_answers_nothing() -> None:
    switches, own = shown(False)
    assert {(row["Connected"], row["Echo"]) for row in switches.values()} == {("yes", "no answer")}
    assert (own["Controller"], own["Unanswered"], own["Reaction (us)"]) == ("no answer", 2, None)


def test_no_row_is_left_out_where_nothing_is_but_zeros() -> None:
    """Pages leave such rows out of a table that has columns that count: here zeros are the answer."""
    look = Look(Stub([False]), {"time_ns": 1, "fidelity": {"clock": "virtual", "controller_timeouts": 0}})  # type: ignore[arg-type]
    tables = VIEWS["controller"].show(look)
    assert [[table.counts(row) for row in table.rows] for table in tables] == [[{}] * 3, [{}]]


def test_one_that_is_gone_is_not_connected() -> None:
    switches, own = shown()
    assert {row["Connected"] for row in switches.values()} == {"no"} and own["Controller"] == "gone"


def test_views_of_counters_leave_out_what_has_counted_nothing() -> None:
    ports = [{"node": "leaf0", "port": n, "priorities": {"ecn_marked_prio3": n - 1}} for n in (1, 2)]
    look = Look(Stub([]), {"time_ns": 1, "switches": [{"switch": "leaf0"}], "ports": ports, "nics": []})  # type: ignore[arg-type]
    (queues, _), (all_of_them, _) = VIEWS["ecn"].show(look, nonzero=True), VIEWS["ecn"].show(look)
    assert [(row["Port"], row["EcnMarked/pkts"]) for row in queues.rows] == [("leaf0:2", 1)]
    assert len(all_of_them.rows) > len(queues.rows)
