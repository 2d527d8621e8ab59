"""The templates filled, with scripts and styles inside it, so that the file needs no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from results.compare.comparison import Comparison
from results.store.load import Run
from results.store.sweeps import sweep
from testbed.report import document
from testbed.tables.comparison import names, nothing, parts

PAGE = Path(__file__).parent / "page"
_PAGES = Path(__file__).parents[1] / "serve" / "pages"
_MODULES = ("dom", "format", "metrics", "network")
"""Modules of the live page that the report needs too, each after those that it imports."""


def report(path: Path, out: Path) -> Path:
    """Writes the report of the run or sweep in the folder `path`; returns `out`. Raises InputError, StoreError."""
    swept = sweep(path)
    about = document.of(Run(path), _parts()) if swept is None else document.of_sweep(swept, _parts())
    document.write("report.html", out, about, [PAGE])
    return out


def compared(comparison: Comparison, met: Sequence[str], out: Path, *, every: bool) -> None:
    """Writes a comparison; `met` are the limits that it meets, in words. Raises InputError."""
    sides = [
        {**side, "letter": letter}
        for side, letter in zip(comparison.to_dict()["sides"], names(comparison), strict=True)
    ]
    about = {"title": " against ".join(side.path.name for side in comparison.sides), "met": met, "sides": sides}
    tables = {"same": comparison.same, "nothing": nothing(comparison), "parts": parts(comparison, every=every)}
    document.write("compare.html", out, {**about, **tables, **_parts()}, [PAGE])


def styles() -> str:
    """Of a page without scripts."""
    return "\n".join(p.read_text() for p in (_PAGES / "style.css", PAGE / "report.css"))


def _parts() -> dict[str, str]:
    modules = [_plain((_PAGES / "js" / f"{name}.js").read_text()) for name in _MODULES]
    return {
        "styles": "\n".join(p.read_text() for p in (_PAGES / "style.css", _uplot("css"), PAGE / "report.css")),
        "plotting": _uplot("js").read_text(),
        "script": "\n".join([*modules, (PAGE / "report.js").read_text()]),
    }


def _uplot(ending: str) -> Path:
    return _PAGES / "uplot" / ("uPlot.min.css" if ending == "css" else "uPlot.iife.min.js")


def _plain(module: str) -> str:
    """A module's text where all of them are one script: what it exports is told, its own names stay inside."""
    text = re.sub(r"^import .*?;\n", "", module, flags=re.M | re.S)
    exported = ", ".join(re.findall(r"^export (?:async )?(?:const|class|function) (\w+)", text, flags=re.M))
    inside = re.sub(r"^export ", "", text, flags=re.M)
    return f"const {{ {exported} }} = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();"
