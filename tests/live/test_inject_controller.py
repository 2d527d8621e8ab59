"""Faults of the controller itself, and of forwarding while it is away: they bite, and the right flows come back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts.faulty_fabric import FaultyFabric, faulty_fabric

REACTION_NS = 1e6
CUT = {"fault": "cable_down", "on": "cable:leaf0-spine0"}
ACROSS = [(source, to, 65536, 0) for source in (0, 1, 2) for to in (3, 4, 5)]


@pytest.fixture(scope="module")
def fabric() -> Iterator[FaultyFabric]:
    with faulty_fabric(spines=2) as f:
        yield f


@pytest.fixture(autouse=True)
def healed(fabric: FaultyFabric) -> Iterator[None]:
    """Every test leaves the fabric with the flows that it found."""
    before = tables(fabric)
    yield
    fabric.heal([fault["fault"] for fault in fabric.fabricd.request("faults")["faults"]])
    assert tables(fabric) == before


def tables(f: FaultyFabric) -> dict[str, list[str]]:
    """What Open vSwitch really holds."""
    found = {}
    for switch in f.lab.fabric.switches:
        command, env = f.lab.ovs_command(
            ["ovs-ofctl", "-OOpenFlow13", "--no-stats", "dump-flows", f.lab.names.bridge(switch)]
        )
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        found[switch.name] = sorted(done.stdout.split("\n"))
    return found


def leads_to_spine0(f: FaultyFabric) -> bool:
    (cable,) = (c for c in f.lab.fabric.cables if c.name == "leaf0-spine0")
    port = cable.end("leaf0").port
    return any(line.endswith(f"output:{port}") or f"output:{port}," in line for line in tables(f)["leaf0"])


def timeouts(f: FaultyFabric) -> int:
    return int(f.fabricd.request("counters")["fidelity"]["controller_timeouts"])


def told_after(f: FaultyFabric) -> float:
    """Emulated time from a cut to its `port` event."""
    seen = len(f.events)
    at = f.now_ns()
    ids = f.inject(CUT)
    (told,) = {e["time_ns"] for e in f.events[seen:] if e["event"] == "port" and not e["up"]}
    f.heal(ids)
    return float(told) - at


def test_a_slow_controller_reacts_that_much_later(fabric: FaultyFabric) -> None:
    assert told_after(fabric) == pytest.approx(REACTION_NS, abs=1)
    ids = fabric.inject({"fault": "slow_controller", "on": "controller", "reaction": "7ms"})
    assert told_after(fabric) == pytest.approx(7e6, abs=1)
    fabric.heal(ids)
    assert told_after(fabric) == pytest.approx(REACTION_NS, abs=1)


@pytest.mark.parametrize("fault", ["controller_dead", "controller_hung"])
def test_without_a_controller_nothing_is_routed_around_until_it_is_back(fabric: FaultyFabric, fault: str) -> None:
    assert leads_to_spine0(fabric)
    before = timeouts(fabric)
    ids = fabric.inject({"fault": fault, "on": "controller"})
    assert None not in fabric.measure(ACROSS).times, "forwarding stopped"
    cut = fabric.inject(CUT)
    assert leads_to_spine0(fabric)
    outcome = fabric.measure(ACROSS)
    assert None in outcome.times
    assert outcome.reasons["cable"] > 0
    assert (timeouts(fabric) > before) == (fault == "controller_hung")
    fabric.heal(ids)
    assert not leads_to_spine0(fabric)
    assert None not in fabric.measure(ACROSS).times
    fabric.heal(cut)
    assert leads_to_spine0(fabric)


def test_a_controller_that_comes_back_knows_the_faults_that_are_on(fabric: FaultyFabric) -> None:
    missing = fabric.inject({"fault": "missing_entry", "on": "switch:leaf1", "to": 3})
    faulty = tables(fabric)
    dead = fabric.inject({"fault": "controller_dead", "on": "controller"})
    fabric.heal(dead)
    assert tables(fabric) == faulty
    fabric.heal(missing)


def test_of_two_faults_of_one_match_the_other_stays(fabric: FaultyFabric) -> None:
    def inject(**fault: Any) -> list[str]:
        return fabric.inject({"on": "switch:leaf0", "to": 0, **fault})

    shadow = inject(fault="shadow_rule")
    alone = tables(fabric)
    wrong = inject(fault="wrong_port", port=2)
    assert tables(fabric) != alone
    fabric.heal(wrong)
    assert tables(fabric) == alone
    fabric.heal(shadow)


@pytest.mark.parametrize("heal", [(0, 1, 2), (2, 0, 1)])
def test_a_controller_is_back_when_no_fault_holds_it_any_more(fabric: FaultyFabric, heal: tuple[int, ...]) -> None:
    kinds = ("controller_dead", "controller_hung", "controller_dead")
    ids = [fabric.inject({"fault": kind, "on": "controller"}) for kind in kinds]
    left = {0, 1, 2}
    for one in heal:
        fabric.heal(ids[one])
        left.remove(one)
        dead = any(kinds[k] == "controller_dead" for k in left)
        assert (fabric.lab.controller.poll() is not None) == dead
        if not dead:
            stat = Path(f"/proc/{fabric.lab.controller.pid}/stat").read_text()
            assert (stat.rpartition(")")[2].split()[0] == "T") == bool(left)
