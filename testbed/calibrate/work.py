"""`testbed calibrate` from end to end: files read, fitted, held against what was held back; profiles checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.errors import InputError
from testbed.calibrate.calibration import Calibration, Tell, calibrate, left_out, modelled
from testbed.calibrate.found import Told, hardware
from testbed.calibrate.held import Predicted, holding, predicted, scores
from testbed.calibrate.made import profile
from testbed.calibrate.measured import Measured, measured, series_of
from testbed.calibrate.ops import gpu_profile
from testbed.cluster.bars import Bars
from testbed.cluster.model import LibraryModel, of_profile
from testbed.cluster.profile import Profile, load
from testbed.logs.read import Source, raw, read
from testbed.logs.row import Log
from testbed.logs.topology import read as read_topology

EACH = "each"
"""Every collective, nodes and GPUs in turn."""


@dataclass(frozen=True)
class Asked:
    """On the command line."""

    logs: Sequence[str]
    told: Told = Told()
    topology: str | None = None
    collective: str | None = None
    hold: Sequence[str] = ()
    name: str | None = None
    about: str = ""
    ops: str | None = None


@dataclass(frozen=True)
class Outcome:
    log: Log
    sources: Sequence[Source]
    made: Calibration
    profile: Profile
    held: list[Predicted] = field(default_factory=list)
    more_nodes: bool = False


def work(asked: Asked, tell: Tell = lambda text: None) -> Outcome:
    """Raises InputError."""
    log, sources = read(asked.logs, asked.collective)
    if not log.rows:
        raise InputError("no row of a collective can be used", asked.logs[0], left_out(log))
    server = read_topology(raw(asked.topology), asked.topology) if asked.topology else None
    its = hardware(log, asked.told, server)
    model = LibraryModel(its, log.library.env, log.library.choices)
    points = modelled(model, measured(log, its, asked.told.nodes, asked.told.gpus), log)
    name = _word(asked.name or Path(asked.logs[0]).stem)
    found: list[Predicted] = []
    more, made = False, None
    for back in _held_back(points, asked.hold):
        fitted = [one for one in points if one not in back]
        made = calibrate(model, fitted, log, tell)
        found += predicted(Bars(profile(name, made, log, sources, {}), model), back)
        more = more or max(one.point.nodes for one in back) > max(one.point.nodes for one in fitted)
    if made is None or EACH in asked.hold:  # the profile itself is of all of them
        made = calibrate(model, points, log, tell)
    result = profile(name, made, log, sources, _said(found, more) if found else {}, asked.about)
    if asked.ops:
        compute, notes = gpu_profile(asked.ops)
        log.warnings += notes
        result = result.model_copy(update={"compute": compute})
    return Outcome(log, sources, made, result, found, more)


def _held_back(points: Sequence[Measured], hold: Sequence[str]) -> Iterator[list[Measured]]:
    """Those of all conditions at once, or `each` line of points in its turn.  Raises InputError."""
    tests = [holding(text) for text in hold if text != EACH]
    back = [one for one in points if any(test(one.point) for test in tests)]
    if tests and not back:
        raise InputError("no point is held back by that", f"--hold {hold[0]}", "all points would be fitted")
    if EACH in hold:
        if tests:
            raise InputError("each holds all points back in turn", "--hold", "give it alone")
        yield from series_of(points)
    elif back:
        yield back


def check(path: str, logs: Sequence[str], told: Told, collective: str | None) -> tuple[Profile, Log, list[Predicted]]:
    """New logs held against a profile.  Raises InputError."""
    its = load(path)
    model = of_profile(its)
    log, _ = read(logs, collective)
    points = modelled(model, measured(log, model.hardware, told.nodes, told.gpus), log)
    if not points:
        raise InputError("no row can be held against the profile", logs[0], left_out(log))
    return its, log, predicted(Bars(its, model), points)


def holds(found: Sequence[Predicted]) -> bool:
    """Whether a profile still does: most points are within their bars, and none is far outside."""
    inside = sum(one.covered for one in found)
    return inside >= 0.8 * len(found) and not lasting(found)


def lasting(found: Sequence[Predicted]) -> list[list[Predicted]]:
    """Series of which at least half is outside of its bars: a part of the cluster has changed, and no single time."""
    series: dict[tuple[str, int, int], list[Predicted]] = {}
    for one in found:
        series.setdefault(one.one.point[:3], []).append(one)
    return [ones for ones in series.values() if 2 * sum(not one.covered for one in ones) >= len(ones)]


def _said(found: Sequence[Predicted], more: bool) -> dict[str, str]:
    said = {
        score.name: f"{score.points} points, {100 * score.median:.1f} % median, {100 * score.worst:.1f} % worst"
        for score in scores(found, more_nodes=more)
    }
    return {**said, "bars hold": f"{sum(one.covered for one in found)} of {len(found)} points"}


def _word(name: str) -> str:
    """As a name of a cluster."""
    text = "".join(c if c.isalnum() and c.isascii() or c in "._-" else "-" for c in name)[:64].strip("._-")
    return text or "cluster"
