"""All checks over an experiment, or over every point of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import testbed.checklist.gpus
import testbed.checklist.hardware
import testbed.checklist.hosts
import testbed.checklist.mixed
import testbed.checklist.network  # noqa: F401  # each registers its checks
from testbed.checklist.finding import CHECKS, Case, Finding
from testbed.run.sweep import points

if TYPE_CHECKING:
    from testbed.experiment import Experiment

MOST_POINTS = 100


def review(experiment: Experiment) -> list[Finding]:
    """Everything that is found; what several points of a sweep have in common once. Raises InputError for a point."""
    if not experiment.sweep:
        return _review(experiment)
    found: dict[Finding, tuple[int, str]] = {}
    looked = 0
    for point in points(experiment):
        if looked == MOST_POINTS:
            break
        looked += 1
        point.experiment._place = experiment._place
        values = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in point.values.items())
        for finding in _review(point.experiment):
            count, first = found.get(finding, (0, values))
            found[finding] = count + 1, first
    order = list(CHECKS)
    told = [_of_points(finding, *at, looked) for finding, at in found.items()]
    return sorted(told, key=lambda f: order.index(f.check))


def figures(experiment: Experiment) -> dict[str, list[str]]:
    """What checks can say of any experiment, by check; of a sweep of its first point."""
    one = next(iter(points(experiment))).experiment if experiment.sweep else experiment
    case = Case(one)
    told = {name: list(check.figures(case)) for name, check in CHECKS.items() if check.figures}
    return {name: lines for name, lines in told.items() if lines}


def _review(experiment: Experiment) -> list[Finding]:
    case = Case(experiment)
    return [finding for check in CHECKS.values() for finding in check(case)]


def _of_points(finding: Finding, count: int, first: str, of: int) -> Finding:
    if count == of:
        return finding
    which = f"the point {first}" if count == 1 else f"{count} of {of} points, first {first}"
    return Finding(finding.check, f"{finding.what} [{which}]", finding.where, finding.hint)
