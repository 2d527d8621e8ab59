"""A prediction on the terminal: nccl-tests' columns, and how each time was found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from results.figures.report import gigabytes
from testbed.predict.figure import HOW, Figure, Prediction
from testbed.tables.cells import grid, microseconds


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
    yield Text("# Left out:", style="dim")
    for text in prediction.left_out:
        yield Text(f"#   - {text}", style="dim")


def _step(rows: list[Figure]) -> Iterator[RenderableType]:
    yield Text("#")
    groups = rows[0].group is not None
    table = grid(
        *((("grp", "", 4),) if groups else ()),
        ("size", "(B)", 12), ("time", "(us)", 9), ("algbw", "(GB/s)", 7), ("busbw", "(GB/s)", 7),
        ("algorithm", "", 16), ("how", "", 12),
    )  # fmt: skip
    yield Text(f"# {rows[0].name}, {' + '.join(dict.fromkeys(str(f.ranks) for f in rows))} ranks", style="bold")
    for f in rows:
        table.add_row(
            *((str(f.group),) if groups else ()),
            "-" if f.size_bytes is None else str(f.size_bytes),
            microseconds(f.time_ns),
            gigabytes(f.algbw_bps),
            gigabytes(f.busbw_bps),
            f.algorithm,
            f.how,
        )
    yield table
    if names := dict.fromkeys(name for f in rows for name in f.no_model):
        yield Text(f"# without {', '.join(names)}: no model, and `auto` may take it", style="dim")
