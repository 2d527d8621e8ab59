"""The gallery's figures as they are kept, so that the page and its pictures can be written without a run."""

from __future__ import annotations

import json
from pathlib import Path

from railbed.gallery.entry import PAPERS, Curve, Made

FIGURES = PAPERS / "figures.json"


def kept(path: Path = FIGURES) -> dict[str, Made]:
    """By entry; empty before the first."""
    if not path.exists():
        return {}
    return {
        name: Made(
            one["values"],
            tuple(Curve(label, tuple((x, y) for x, y in points)) for label, points in one["curves"].items()),
        )
        for name, one in json.loads(path.read_text()).items()
    }


def keep(made: dict[str, Made], path: Path = FIGURES) -> None:
    """Each entry in a few lines, so that a difference shows what moved."""
    blocks = []
    for name, one in sorted(made.items()):
        curves = {curve.label: curve.points for curve in one.curves}
        values = ",\n   ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in one.values.items())
        lines = ",\n   ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in curves.items())
        blocks.append(f'{json.dumps(name)}: {{\n "values": {{\n   {values}}},\n "curves": {{\n   {lines}}}}}')
    path.write_text("{" + ",\n".join(blocks) + "}\n")
