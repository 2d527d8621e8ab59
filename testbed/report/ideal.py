"""What share of the rate that they have alone the flows of a run had, step by step."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.store.load import Run


def shares(run: Run) -> list[dict[str, Any]]:
    """A row for the flows of each step, and of what they were sent by: how many, and their shares of ideal."""
    found: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for row in run.rows("results"):
        if row.get("ideal_ns") and row.get("time_ns"):
            found[row.get("step"), row.get("sends_by") or ""].append(row["ideal_ns"] / row["time_ns"])
    return [
        {"step": step, "by": by, "flows": len(of), "mean": _said(fmean(of)), "median": _said(median(of)),
         "least": _said(min(of)), "most": _said(max(of))}
        for (step, by), of in found.items()
    ]  # fmt: skip


def _said(share: float) -> str:
    return f"{share:.3f}"
