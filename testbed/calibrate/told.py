"""A calibration in words: what was read, what the constants are, how far off the points are, what to measure next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from testbed.base.units import format_size
from testbed.calibrate.calibration import Calibration
from testbed.calibrate.fit import correlated
from testbed.calibrate.held import COVERED, Predicted, Score
from testbed.calibrate.measured import series_of
from testbed.calibrate.work import holds, lasting
from testbed.cluster.gpu import GpuProfile
from testbed.cluster.model import NAMES
from testbed.cluster.profile import Z90, Profile, written
from testbed.cluster.regions import REGIONS, region
from testbed.logs.read import Source
from testbed.logs.row import Log
from testbed.tables.cells import grid

MOST_WORST = 8
STRONG = 0.8
_NEXT = {
    "net.message": "small sizes over one GPU of each node: `sendrecv_perf -b 8 -e 64K`",
    "net.hop": "sizes below 64 KiB over one GPU of each node: `all_gather_perf -b 8 -e 64K`",
    "nic.rate": "sizes above 64 MiB over one GPU of each node: `sendrecv_perf -b 64M -e 1G`, or `ib_write_bw`",
    "cta.rate": "sizes of 1 to 64 MiB, or `NCCL_MAX_CTAS=1`",
    "cta.slice": "sizes of 1 to 64 MiB with several GPUs of each node",
    "nvlink.hop": "sizes below 1 MiB in one node",
    "nvlink.rate": "sizes above 64 MiB in one node: `all_gather_perf -b 64M -e 4G`",
    "launch": "8 bytes in one node: `all_reduce_perf -b 8 -e 1K`",
    "nvls.rate": "large all-reduces with `NCCL_ALGO=NVLS`",
    "nvls.hop": "small all-reduces with `NCCL_ALGO=NVLS`",
    "p2p.rate": "`sendrecv_perf -b 1M -e 1G`",
    "p2p.turn": "`sendrecv_perf -b 1M -e 1G` with `NCCL_NCHANNELS_PER_NET_PEER` of 1, 2 and 4",
}
_OF_PROTOCOL = "sizes at which it is taken, or `NCCL_PROTO={}` from 8 bytes to 16 MiB"


def of_calibration(
    log: Log, sources: Sequence[Source], made: Calibration, profile: Profile, unknown: Sequence[str]
) -> RenderableType:
    """Everything that `testbed calibrate` shows."""
    return Group(*_read(log, sources), *_constants(made, profile), *_points(made), *_next(made, unknown))


def _read(log: Log, sources: Sequence[Source]) -> Iterator[RenderableType]:
    yield Text(f"# {len(log.rows)} rows of {len(sources)} files, {len(log.links)} of single links", style="dim")
    if log.left_out:
        text = ", ".join(f"{n} {why}" for why, n in sorted(log.left_out.items()))
        yield Text(f"# left out: {text}", style="dim")
    for warning in log.warnings:
        yield Text(f"# note: {warning}", style="yellow")
    if log.unsaid:
        yield Text(f"# and {log.unsaid} notes more", style="yellow")


def _constants(made: Calibration, profile: Profile) -> Iterator[RenderableType]:
    hardware = profile.hardware
    assumed = f", assumed: {', '.join(hardware.assumed)}" if hardware.assumed else ""
    yield Text("#")
    yield Text(
        f"# {profile.cluster}: {hardware.gpus} x {hardware.gpu}, {hardware.nics} NICs of a server, NCCL "
        f"{profile.library.version}{assumed}",
        style="bold",
    )
    table = grid(
        ("constant", "", 16), ("value", "", 10), ("90 % from", "", 10), ("to", "", 10), ("told", "", 5),
        ("width", "of prior", 8),
    )  # fmt: skip
    for k, name in enumerate(NAMES):
        x, sd = made.fitted.x[k], made.sd[k]
        low, high = (written(name, exp(x + sign * Z90 * sd)) for sign in (-1, 1))
        told = "yes" if made.told[k] else "no"
        width = f"{min(sd / made.fitted.problem.prior_sigma[k], 1.0):.2f}"
        table.add_row(name, written(name, exp(x)), low, high, told, width)
    yield table


def _points(made: Calibration) -> Iterator[RenderableType]:
    yield Text("#")
    yield Text(
        "# model / measured - 1: of points that were fitted, and predicted without all of their row", style="bold"
    )
    table = grid(
        ("collective", "", 16), ("nodes", "", 6), ("GPUs", "", 5), ("points", "", 7), ("median", "(%)", 7),
        ("worst", "(%)", 7), ("held", "(%)", 7),
    )  # fmt: skip
    number = {one.point: k for k, one in enumerate(made.points)}
    residuals = np.expm1(made.fitted.residuals)
    for series in series_of(made.points):
        rows = [number[one.point] for one in series]
        off = np.abs(residuals[rows])
        held = np.abs(np.expm1(made.held[rows]))
        point = series[0].point
        table.add_row(
            point.collective, str(point.nodes), str(point.gpus), str(len(rows)),
            *(f"{100 * value:.1f}" for value in (np.median(off), np.max(off), np.median(held))),
        )  # fmt: skip
    yield table
    text = ", ".join(f"{name} {100 * made.scatter[name]:.1f} %" for name in REGIONS if _has(made, name))
    yield Text(f"# scatter by size: {text}", style="dim")
    for k in np.argsort(-np.abs(residuals))[:MOST_WORST]:
        if abs(residuals[k]) > 0.05:
            one = made.points[k]
            at = f"{one.point.collective} {one.point.nodes} x {one.point.gpus} {format_size(one.point.size_bytes)}"
            choice = made.model.choice(one.point)
            by = f"{choice.algorithm}/{choice.protocol}, {choice.channels} channels"
            yield Text(f"# worst: {at}: {100 * residuals[k]:+.1f} % ({by}; {one.rows[0].place})", style="dim")


def _has(made: Calibration, name: str) -> bool:
    return any(region(one.point.size_bytes) == name for one in made.points)


def _next(made: Calibration, unknown: Sequence[str]) -> Iterator[RenderableType]:
    """What is not told, and what cannot be told apart."""
    for text in unknown:
        yield Text(f"# not understood: {text}", style="yellow")
    missing = [name for k, name in enumerate(NAMES) if not made.told[k]]
    if missing:
        yield Text(f"# not told: {', '.join(missing)}", style="dim")
        hints: dict[str, list[str]] = {}
        for name in missing:
            protocol = name.split(".")[0]
            hint = _OF_PROTOCOL.format(protocol.upper()) if protocol in ("ll", "ll128") else _NEXT[name]
            hints.setdefault(hint, []).append(name)
        for hint, names in hints.items():
            yield Text(escape(f"#   {', '.join(names)}: {hint}"), style="dim")
    for value, one, other in correlated(made.fitted, NAMES):
        if abs(value) < STRONG:
            break
        if not {one, other} - {*missing}:
            continue  # of what the logs do not tell it was known before
        yield Text(f"# {one} and {other} are told together only (correlation {value:+.2f})", style="dim")


def of_scores(found: Sequence[Predicted], scored: Sequence[Score]) -> RenderableType:
    """Rows that were held back, against the marks."""
    parts: list[RenderableType] = [Text("#"), Text(f"# held back: {len(found)} points", style="bold")]
    table = grid(
        ("size", "", 12), ("points", "", 7), ("median", "(%)", 7), ("worst", "(%)", 7), ("marks", "(%)", 9),
        ("met", "", 4),
    )  # fmt: skip
    for score in scored:
        marks = "/".join(f"{100 * mark:.0f}" for mark in score.marks)
        median, worst = f"{100 * score.median:.1f}", f"{100 * score.worst:.1f}"
        table.add_row(score.name, str(score.points), median, worst, marks, "yes" if score.met else "no")
    covered = sum(one.covered for one in found)
    share = covered / len(found) if found else 0.0
    met = "" if COVERED[0] <= share <= COVERED[1] else f" (good: {100 * COVERED[0]:.0f} to {100 * COVERED[1]:.0f} %)"
    parts += [table, Text(f"# bars hold {covered} of {len(found)} points{met}", style="dim")]
    for one in sorted(found, key=lambda one: -abs(one.error))[:MOST_WORST]:
        choice = f" [{one.choice}]" if one.choice else ""
        parts.append(Text(f"# {one.text}{choice}", style="dim"))
    return Group(*parts)


def of_check(profile: Profile, log: Log, found: Sequence[Predicted]) -> RenderableType:
    """Whether the profile still holds, and where it does not."""
    parts: list[RenderableType] = []
    for warning in log.warnings:
        parts.append(Text(f"# note: {warning}", style="yellow"))
    inside = sum(one.covered for one in found)
    said = "holds" if holds(found) else "does not hold any more"
    parts.append(Text(f"# {profile.cluster}: {inside} of {len(found)} points are within their bars: it {said}", "bold"))
    for ones in lasting(found):
        slower = sum(one.error < 0 for one in ones) * 2 > len(ones)
        point = ones[0].one.point
        ratio = sorted(1 / (1 + one.error) for one in ones)[len(ones) // 2]
        text = f"{point.collective} {point.nodes} x {point.gpus}: {'slower' if slower else 'faster'} than the profile"
        parts.append(Text(f"# {text} says, {ratio:.2f} times as long in the middle", style="yellow"))
    outside = [one for one in found if not one.covered]
    for one in sorted(outside, key=lambda one: -abs(one.error))[:MOST_WORST]:
        parts.append(Text(f"# outside: {one.text} ({one.one.rows[0].place})", style="dim"))
    return Group(*parts)


def of_gpu(profile: GpuProfile, notes: Sequence[str]) -> RenderableType:
    """What a GPU's operations take."""
    parts: list[RenderableType] = [Text(f"# note: {note}", style="yellow") for note in notes[:MOST_WORST]]
    parts.append(Text(f"# {profile.gpu}" + (f" ({profile.about})" if profile.about else ""), style="bold"))
    table = grid(
        ("operation", "", 22), ("rate", "", 12), ("90 % from", "", 12), ("to", "", 12), ("start", "", 10),
        ("rows", "", 5), ("median", "error (%)", 9),
    )  # fmt: skip
    for name, its in profile.kinds.items():
        start = profile.model_dump(mode="json")["kinds"][name]["start"]
        table.add_row(name, its.rate, *its.interval, start, str(its.rows), f"{100 * its.error:.1f}")
    return Group(*parts, table)
