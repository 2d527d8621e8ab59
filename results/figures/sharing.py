"""Who gets what, where senders of one step send by different controls.

A share is what those that send alike got together, of what all of the step got, while all were under way. Where they
never were, or it is not known (groups of a collective), each counts with its mean rate: there the loser of two gets a
third at least, as it has all for itself at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from results.figures.values import jain, percentile


@dataclass(frozen=True)
class Share:
    """Of those that send alike, within a step.  `even`: the share that as many of all would have."""

    step: int
    sends_by: str
    count: int
    rate_Bps: float  # mean of one
    share: float
    even: float
    jain: float  # among themselves
    time_p50_ns: float
    time_p99_ns: float

    def row(self) -> dict[str, Any]:
        """As in a run's JSON."""
        return asdict(self)


def shares(results: Iterable[Mapping[str, Any]]) -> list[Share]:
    """Of all steps whose rows of `results` say what is sent by, in the order of the rows."""
    steps: dict[int, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in results:
        if row.get("sends_by") and rate(row):
            steps[row.get("step", 0)][row["sends_by"]].append(row)
    return [_share(step, name, rows, groups) for step, groups in steps.items() for name, rows in groups.items()]


def rate(row: Mapping[str, Any]) -> float:
    """While all were under way, if they were, else its mean."""
    together = row.get("together_Bps")
    return (row["algbw_Bps"] or 0.0) if together is None or together != together else float(together)


def _share(step: int, name: str, rows: list[Mapping[str, Any]], groups: Mapping[str, list[Mapping[str, Any]]]) -> Share:
    rates = [rate(row) for row in rows]
    every = [rate(row) for other in groups.values() for row in other]
    times = [row["time_ns"] for row in rows]
    return Share(
        *(step, name, len(rows), fmean(rates), sum(rates) / sum(every), len(rows) / len(every), jain(rates)),
        *(percentile(times, 0.5), percentile(times, 0.99)),
    )
