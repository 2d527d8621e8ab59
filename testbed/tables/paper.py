"""The tables of a terminal for a paper or a page: Markdown, or LaTeX (booktabs). What stands between them is kept as
text, in LaTeX as comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_OF_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", **{c: f"\\{c}" for c in "&%$#_{}"},
}  # fmt: skip
_NUMBER = re.compile(r"|-|[-+]?[0-9.,]+(e[-+]?\d+)?[x%*]?|nan")


def markdown(renderable: RenderableType) -> str:
    return _written(renderable, lambda text: f"{text}\n", _pipes)


def latex(renderable: RenderableType) -> str:
    return _written(renderable, lambda text: f"% {text}", _tabular)


FORMS: dict[str, Callable[[RenderableType], str]] = {".md": markdown, ".tex": latex}


def write(renderable: RenderableType, out: Path) -> None:
    """As the ending of `out` says."""
    out.write_text(FORMS[out.suffix.lower()](renderable))


def _written(
    renderable: RenderableType,
    said: Callable[[str], str],
    drawn: Callable[[Sequence[str], Sequence[str], Sequence[Sequence[str]]], str],
) -> str:
    blocks: list[str] = []
    for part in _parts(renderable):
        if isinstance(part, Table):
            if part.show_header:
                blocks.append(drawn(*_content(part)) + "\n")
                continue
            part = Text("".join(_plain(cell) for column in part.columns for cell in column.cells))
        if text := part.plain.lstrip("# ").rstrip():
            blocks.append(said(text))
    return "\n".join(blocks).rstrip() + "\n"


def _parts(renderable: RenderableType) -> Iterator[Text | Table]:
    if isinstance(renderable, Group):
        for part in renderable.renderables:
            yield from _parts(part)
    elif isinstance(renderable, Table):
        yield renderable
    else:
        text = renderable if isinstance(renderable, Text) else Text.from_markup(str(renderable))
        yield from text.split("\n", allow_blank=True)


def _content(table: Table) -> tuple[list[str], list[str], list[list[str]]]:
    """Heads, with the unit behind the name; how columns are aligned; rows."""
    heads = [re.sub(r"\s+", " ", _plain(column.header).replace("#", " " * (k == 0) or "#")).strip()
             for k, column in enumerate(table.columns)]  # fmt: skip
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    aligned = ["r" if all(_NUMBER.fullmatch(cell) for cell in column) else "l" for column in columns]
    return heads, aligned, [list(row) for row in zip(*columns, strict=True)]


def _plain(cell: RenderableType) -> str:
    return (cell if isinstance(cell, Text) else Text.from_markup(str(cell))).plain


def _pipes(heads: Sequence[str], aligned: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, [{"r": "---:", "l": "---"}[a] for a in aligned], *rows]
    escaped = [[cell if n == 1 else cell.replace("|", "\\|") for cell in line] for n, line in enumerate(lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _tabular(heads: Sequence[str], aligned: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"{' & '.join(''.join(_OF_LATEX.get(c, c) for c in cell) for cell in cells)} \\\\"

    begin = f"\\begin{{tabular}}{{{''.join(aligned)}}}"
    return "\n".join([begin, "\\toprule", line(heads), "\\midrule", *map(line, rows), "\\bottomrule", "\\end{tabular}"])
