"""The same faults, one after the other, on two fabrics: the same times, counts and events to the picosecond."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parts.fault_cases import CASES
from tests.parts.faulty_fabric import faulty_fabric

PLACES = sorted({(case.spines, case.cc) for case in CASES.values()})


def everything(spines: int, cc: str) -> dict[str, Any]:
    """What every fault for such a fabric does, by name."""
    found = {}
    with faulty_fabric(spines, cc) as f:
        for name, case in CASES.items():
            if (case.spines, case.cc) != (spines, cc):
                continue
            needed = f.inject(case.before) if case.before else []
            ids = f.inject(case.fault)
            outcome = f.measure(case.flows)
            hits = f.hits(ids)
            f.heal([*ids, *needed])
            events = [(e["event"], e["time_ns"], e.get("fault")) for e in outcome.events]
            found[name] = (*outcome.figures(), hits, events)
        found["time"] = f.now_ns()
    return found


@pytest.mark.parametrize(("spines", "cc"), PLACES)
def test_every_fault_does_the_same_each_time(spines: int, cc: str) -> None:
    first, second = everything(spines, cc), everything(spines, cc)
    for name in first:
        assert first[name] == second[name], name
