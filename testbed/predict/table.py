"""A prediction on the terminal: nccl-tests' columns, and how each time was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from results.figures.report import gigabytes
from testbed.predict.figure import HOW, Figure, Prediction
from testbed.tables.cells import grid, microseconds
from testbed.tables.results import of_auto, of_busbw


def of_prediction(prediction: Prediction, title: str) -> RenderableType:
    """Everything that `testbed predict` shows."""
    return Group(*_parts(prediction, title))


def _parts(prediction: Prediction, title: str) -> Iterator[RenderableType]:
    yield Text(f"# {title}: predicted, not run", style="dim")
    for _, rows in groupby(prediction.figures, key=lambda f: (f.step, f.name)):
        yield from _step(list(rows))
    yield Text("#")
    for how in dict.fromkeys(f.how for f in prediction.figures):
        yield Text(f"# {how}: {HOW[how]}", style="dim")
    if any(f.paused is None for f in prediction.figures):
        yield Text("# ?: whether PFC would pause somebody is seen only where every message is followed", style="dim")
    yield Text("# Left out:", style="dim")
    for text in prediction.left_out:
        yield Text(f"#   - {text}", style="dim")


Column = tuple[tuple[str, str, int], Callable[[Figure], str]]

_GROUP: list[Column] = [(("grp", "", 4), lambda f: str(f.group))]
_TIME: list[Column] = [
    (("size", "(B)", 12), lambda f: "-" if f.size_bytes is None else str(f.size_bytes)),
    (("time", "(us)", 9), lambda f: microseconds(f.time_ns)),
]
_COLLECTIVE: list[Column] = [
    (("algbw", "(GB/s)", 7), lambda f: gigabytes(f.algbw_bps)),
    (("busbw", "(GB/s)", 7), lambda f: gigabytes(f.busbw_bps)),
]
_TRAINING: list[Column] = [
    (("MFU", "(%)", 6), lambda f: "-" if f.mfu is None else f"{100 * f.mfu:.1f}"),
    (("tokens", "(1/s)", 9), lambda f: "-" if f.tokens_per_s is None else f"{f.tokens_per_s:.4g}"),
    (("memory", "(GB)", 8), lambda f: "-" if f.memory_bytes is None else f"{f.memory_bytes / 1e9:.4g}"),
]
_PAUSES: list[Column] = [(("PFC", "pauses", 6), lambda f: "?" if f.paused is None else "some" if f.paused else "none")]
_BAR: list[Column] = [(("error", "\u00b1 (%)", 6), lambda f: "-" if f.bar is None else f"{f.bar.percent:.0f}")]
_HOW: list[Column] = [(("algorithm", "", 16), lambda f: escape(f.algorithm)), (("how", "", 12), lambda f: f.how)]


def _step(rows: list[Figure]) -> Iterator[RenderableType]:
    yield Text("#")
    columns = [
        *_TIME,
        *(_TRAINING if rows[0].tokens_per_s else _COLLECTIVE),
        *(_BAR if any(f.bar for f in rows) else ()),
        *_HOW,
    ]
    columns += _PAUSES if any(f.paused != () for f in rows) else []
    columns = [*(_GROUP if rows[0].group is not None else ()), *columns]
    table = grid(*(head for head, _ in columns))
    yield Text(f"# {rows[0].name}, {' + '.join(dict.fromkeys(str(f.ranks) for f in rows))} ranks", style="bold")
    for f in rows:
        table.add_row(*(cell(f) for _, cell in columns))
    yield table
    for line in of_busbw(rows[0].name):
        yield Text(line, style="dim")
    for line in of_auto({str(f.size_bytes): f.chosen for f in rows if f.chosen}):
        yield Text(line, style="dim")
    for beyond in dict.fromkeys(text for f in rows if f.bar for text in f.bar.beyond):
        yield Text(f"# outside what was measured: {beyond}", style="yellow")
    if names := dict.fromkeys(name for f in rows for name in f.no_model):
        yield Text(f"# without {', '.join(names)}: no model, and `auto` may take it", style="dim")
