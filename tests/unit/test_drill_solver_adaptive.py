"""What the solver makes of switches that choose among ports: on tables of their sets, without a fabric."""

from __future__ import annotations

from typing import Any, cast

import pytest

from drills.solve.adaptive import chips, hashes, weights
from drills.solve.operator import Operator
from tests.recorded import Recorded

Set = tuple[str, str, list[tuple[int, int]]]
"""Switch, name, and weight and picks of each of its ports; sets of several switches may have the same name."""


class Tables:
    """Of an operator no more than `show groups`."""

    def __init__(self, *sets: Set) -> None:
        self.groups = [
            {"Switch": switch, "Set": name, "Port": f"{switch}:{k + 1}", "Weight": weight, "Picks": picks}
            for switch, name, ports in sets
            for k, (weight, picks) in enumerate(ports)
        ]

    def rows(self, line: str) -> list[dict[str, Any]]:
        assert line == "show groups"
        return self.groups

    recent = rows


EVEN = [(1, 200), (1, 210), (1, 190)]


def found(rule: Any, *sets: Set) -> list[tuple[str, str]]:
    return [(one.kind, one.place) for one in rule(cast(Operator, Tables(*sets)))]


@pytest.mark.parametrize(
    ("picks", "diagnosis"),
    [
        ((600, 0, 0), [("stuck_choice", "switch:leaf0")]),
        ((20, 290, 290), [("stale_quality", "port:leaf0:1")]),  # whose queue it saw long, once
        ((150, 225, 225), []),
        ((199, 0, 0), []),  # too few to tell
    ],
)
def test_a_chip_is_judged_by_what_each_of_its_sets_took(
    picks: tuple[int, int, int], diagnosis: list[tuple[str, str]]
) -> None:
    ports = [(1, count) for count in picks]
    assert found(chips, ("leaf0", "1", ports), ("leaf1", "1", EVEN), ("leaf1", "2", EVEN)) == diagnosis


def test_weights_are_what_a_port_may_take_and_uneven_everywhere_is_no_chips_fault() -> None:
    heavy = [(4, 400), (1, 100), (1, 100)]
    assert not found(chips, ("leaf0", "1", heavy), ("leaf1", "1", EVEN))
    assert not found(chips, *((leaf, "1", [(1, 500), (1, 50), (1, 50)]) for leaf in ("leaf0", "leaf1")))


def test_the_heavier_port_is_named_where_most_switches_have_even_sets() -> None:
    heavy = [(1, 100), (4, 400), (1, 100)]
    assert found(weights, ("leaf0", "1", heavy), ("leaf1", "1", EVEN)) == [("wrong_group_weights", "port:leaf0:2")]
    assert not found(weights, ("leaf0", "1", heavy), ("leaf1", "1", heavy), ("leaf2", "1", EVEN))


HASHED, CHOSEN = "multipath(symmetric_l4,0,hrw,2,0,reg0)", "group:1"
"""Actions of rules, as Open vSwitch shows them."""


@pytest.mark.parametrize(
    ("actions", "diagnosis"),
    [
        ({"leaf0": HASHED, "leaf1": CHOSEN, "spine0": HASHED}, ["switch:leaf0"]),
        ({"leaf0": HASHED, "leaf1": HASHED, "spine0": HASHED}, []),
        ({"leaf0": CHOSEN, "leaf1": CHOSEN, "spine0": "output:1"}, []),
        ({"leaf0": f"{HASHED} {CHOSEN}", "leaf1": CHOSEN}, []),  # some of its rules have sets
        ({"leaf0": HASHED, "leaf1": "output:2", "spine0": CHOSEN}, []),  # none of its kind has
    ],
)
def test_who_hashes_where_others_of_its_kind_have_sets_is_named_once(
    actions: dict[str, str], diagnosis: list[str]
) -> None:
    rows = [{"switch": switch, "actions": said} for switch, text in actions.items() for said in [*text.split(), "drop"]]
    session = Recorded({"flows": {"flows": rows}})
    assert [str(one) for one in hashes(Operator(session))] == [f"adaptive_off@{place}" for place in diagnosis]
    assert all(one.mend == (f"flow resync {one.place.partition(':')[2]}",) for one in hashes(Operator(session)))
