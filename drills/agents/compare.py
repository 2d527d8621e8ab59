"""Two players on the very same worlds, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drills.agents.bench import CaseResult, read
from drills.agents.figures import paired
from testbed.base.errors import InputError

MEASURES = {"score": "score", "rca_f1": "f1", "where": "where", "what": "what", "calls": "calls"}
OF_FAULTS = ("rca_f1", "where", "what")


def compared(first: Path, second: Path) -> dict[str, Any]:
    """What they differ by, the second less the first. Raises InputError if their worlds are not the same."""
    (head, mine), (other_head, others) = read(first), read(second)
    if head["version"] != other_head["version"]:
        what = f"version {head['version']} there, {other_head['version']} here"
        raise InputError(f"these are worlds of different programs: {what}", f"{first}, {second}", "play both by one")
    pairs = _pairs(mine, others, first, second)
    left_out = sum(bool(a.left_out or b.left_out) for a, b in pairs)
    counted = [(a, b) for a, b in pairs if not (a.left_out or b.left_out)]
    rows = [
        found
        for name, attribute in MEASURES.items()
        if (found := _row(name, attribute, [p for p in counted if name not in OF_FAULTS or p[0].truth != "healthy"]))
    ]
    return {"first": head["agent"], "second": other_head["agent"], "n": len(counted), "left_out": left_out,
            "rows": rows}  # fmt: skip


def _pairs(
    mine: Sequence[CaseResult], others: Sequence[CaseResult], first: Path, second: Path
) -> list[tuple[CaseResult, CaseResult]]:
    of = {case.world: case for case in others}
    missing = [case.drill for case in mine if case.world not in of]
    more = {case.world for case in others} - {case.world for case in mine}
    if missing or more or not mine:
        what = f"{len(missing)} of {len(mine)} worlds are only in the first, {len(more)} only in the second"
        raise InputError(
            f"these are not the same worlds: {what}", f"{first}, {second}", "the same suite, --seeds and --secret"
        )
    pairs = [(case, of[case.world]) for case in mine]
    for a, b in pairs:
        if not (a.left_out or b.left_out) and (a.began_ns, a.healthy_step_ns) != (b.began_ns, b.healthy_step_ns):
            raise InputError(f"the worlds of {a.drill}, seed {a.seed}, went different ways", f"{first}, {second}",
                             "play both by one version, on one kind of machine")  # fmt: skip
    return pairs


def _row(name: str, attribute: str, pairs: Sequence[tuple[CaseResult, CaseResult]]) -> dict[str, Any] | None:
    if not pairs:
        return None
    mine = [float(getattr(a, attribute)) for a, _ in pairs]
    others = [float(getattr(b, attribute)) for _, b in pairs]
    found = paired([a.drill for a, _ in pairs], mine, others)
    return {
        "measure": name,
        "first": round(sum(mine) / len(mine), 4),
        "second": round(sum(others) / len(others), 4),
        "difference": {key: round(value, 4) for key, value in asdict(found.difference).items()},
        "drills_better": found.better,
        "drills_worse": found.worse,
        "p_sign": round(found.p, 6),
    }
