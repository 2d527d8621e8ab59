"""A notebook without Jupyter: its cells as a script, and what its outputs say, so that both can be compared."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"

Notebook = dict[str, Any]
Said = list[str]
"""What a cell printed, then what its last line gave, as HTML if it has that. Pictures are not among it."""


def read(path: Path = NOTEBOOK) -> Notebook:
    return dict(json.loads(path.read_text()))


def write(notebook: Mapping[str, Any], path: Path = NOTEBOOK) -> None:
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def code(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kept(cell: Mapping[str, Any]) -> Said:
    """Of the outputs that are stored in it."""
    said: Said = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            said.append(_text(output["text"]))
        elif "image/png" not in (data := output["data"]):
            said.append(_text(data.get("text/html", data.get("text/plain", ""))))
    return said


def as_a_script(notebook: Mapping[str, Any]) -> Iterator[tuple[str, Said]]:
    """Runs the cells one after the other in this process: the source of each, and what it said."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in code(notebook):
        source = _text(cell["source"])
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, "<cell>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None
        shown = [] if value is None else [value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)]
        yield source, [text for text in (printed.getvalue(), *shown) if text]


def _text(written: str | list[str]) -> str:
    return written if isinstance(written, str) else "".join(written)
