"""Tables in files of the user's own: distributions of sizes, and lists of flows.

A line for each entry, columns apart by commas, blanks or tabs; empty lines and what stands behind `#` say nothing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.base import yaml_reader
from testbed.base.types import mistake, mistakes
from testbed.base.units import UnitError, parse_size, parse_time
from testbed.experiment.steps.step import Found
from workloads.base import named_file
from workloads.traffic import MOST_ENTRIES, BadTable, checked

MOST_BYTES = 16 << 20
MOST_FLOWS = 100_000
MOST_TOLD = 10
"""Mistakes of a file that are told at a time."""
COLUMNS = ("start", "from", "to", "size", "class", "transport")
_NEEDED = ("from", "to", "size")
_APART = re.compile(r"[,;\s]+")
_NAME = re.compile(r"[A-Za-z_]")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.[0-9]+")


class Row(dict[str, Any]):
    """A flow as a mapping, and where it stands: `FILE:LINE`."""

    place: str = ""


def sizes_of(path: Path) -> list[list[float]]:
    """Bytes, and the percentage of flows up to that size.  Raises what a validator raises."""
    rows = list(_rows(path))
    if rows and _NAME.match(rows[0][1][0]):
        del rows[0]  # what the columns are called
    if not rows:
        raise mistake(f"{path} is empty", "a line for each size: its bytes, and the percentage of flows up to it")
    _bounded(path, rows, MOST_ENTRIES)
    table, found = [], list[Found]()
    for line, cells in rows:
        try:
            if len(cells) != 2:
                raise UnitError(f"{len(cells)} columns", "two: bytes, and the percentage of flows up to that size")
            table.append([float(_size(cells[0])), _percent(cells[1])])
        except UnitError as error:
            found.append(((), f"{path}:{line}: {error.what}", error.hint))
    if found:
        raise mistakes(found[:MOST_TOLD])
    if table[-1][1] == 1:  # shares
        table = [[nbytes, round(100 * share, 10)] for nbytes, share in table]
    try:
        checked(table)
    except BadTable as error:
        raise mistake(f"{path}:{rows[error.entry][0]}: {error.what}", error.hint) from None
    return table


def flows_of(path: Path) -> list[Row]:
    """Mappings as a list of flows in the experiment has them.  Raises what a validator raises."""
    rows = list(_rows(path))
    columns: Sequence[str] = COLUMNS
    if rows and _NAME.match(rows[0][1][0]):
        line, columns = rows.pop(0)
        if wrong := [name for name in columns if name not in COLUMNS or columns.count(name) > 1]:
            raise mistake(
                f"{path}:{line}: unknown or repeated column {wrong[0]!r:.40}", f"there are {', '.join(COLUMNS)}"
            )
        if missing := [name for name in _NEEDED if name not in columns]:
            raise mistake(f"{path}:{line}: there is no column {missing[0]}", f"there are {', '.join(COLUMNS)}")
    if not rows:
        raise mistake(f"{path} is empty: there are no flows", f"a line for each: {','.join(COLUMNS)}")
    _bounded(path, rows, MOST_FLOWS)
    made, found = [], list[Found]()
    for line, cells in rows:
        least = max(i for i, name in enumerate(columns, 1) if name in _NEEDED)
        if not least <= len(cells) <= len(columns):
            found.append(((), f"{path}:{line}: {len(cells)} columns", ",".join(columns)))
            continue
        row = Row()
        row.place = f"{path}:{line}"
        for name, cell in zip(columns, cells, strict=False):
            try:
                if cell:
                    row[name] = _READ[name](cell)
                elif name in _NEEDED:
                    raise UnitError("nothing stands there", _ALLOWED[name])
            except UnitError as error:
                found.append(((), f"{row.place}: column {name}: {error.what}", error.hint))
        made.append(row)
        if len(found) >= MOST_TOLD:
            break
    if found:
        raise mistakes(found[:MOST_TOLD])
    return made


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that says something."""
    for number, line in enumerate(_text(path).splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        apart = next(csv.reader([said], skipinitialspace=True)) if "," in said else _APART.split(said)
        yield number, [cell.strip().strip('"') for cell in apart]


def _text(path: Path) -> str:
    try:
        return named_file.text(path, MOST_BYTES)
    except named_file.Unreadable as error:
        line = f":{error.line}" if error.line else ""
        what = f"{str(path)!r:.200}{line} cannot be read: {error.what}"
        raise mistake(what, "a text file of one line for each entry") from None


def _bounded(path: Path, rows: Sequence[tuple[int, list[str]]], most: int) -> None:
    if len(rows) > most:
        raise mistake(f"{path}:{rows[most][0]}: there are more entries than {most:,}", "a shorter file")


def _size(cell: str) -> int | float:
    """Bytes, if there is no unit."""
    return float(cell) if _NUMBER.fullmatch(cell) else parse_size(cell)


def _percent(cell: str) -> float:
    if not _NUMBER.fullmatch(cell.removesuffix("%")):
        raise UnitError(f"{cell!r:.40} is no percentage", "0 to 100")
    return float(cell.removesuffix("%"))


def _whole_size(cell: str) -> str:
    if _NUMBER.fullmatch(cell) and not cell.isdecimal():
        raise UnitError(f"{cell!r:.40} is no whole number of bytes", _ALLOWED["size"])
    parse_size(text := f"{cell}B" if cell.isdecimal() else cell)
    return text


def _start(cell: str) -> str:
    """Seconds, if there is no unit, as simulators write them."""
    ns = float(cell) * 1e9 if _NUMBER.fullmatch(cell) else parse_time(cell)
    if not 0 <= ns <= 1e13:
        raise UnitError(f"{cell!r:.40} is out of range", "at most 10000s")
    return f"{ns:.3f}ns"


def _end(cell: str) -> int | str:
    if not cell.isascii() or (cell[0].isdigit() and not cell.isdecimal()) or len(cell) > 20:
        raise UnitError(f"{cell!r:.40} is no rank", _ALLOWED["from"])
    return int(cell) if cell.isdecimal() else cell


def _class(cell: str) -> int:
    if cell not in tuple("01234567"):
        raise UnitError(f"{cell!r:.40} is no traffic class", _ALLOWED["class"])
    return int(cell)


def _transport(cell: str) -> dict[str, Any]:
    """A control's name, or keys as in the experiment file."""
    if not cell.startswith("{"):
        return {"cc": cell}
    try:
        value = yaml_reader.value(cell)
    except yaml_reader.YamlProblem as error:
        raise UnitError(f"{cell!r:.60} cannot be read: {error.what}", _ALLOWED["transport"]) from None
    if not isinstance(value, dict):
        raise UnitError(f"{cell!r:.60} is no mapping", _ALLOWED["transport"])
    return value


_READ = {"start": _start, "from": _end, "to": _end, "size": _whole_size, "class": _class, "transport": _transport}
_ALLOWED = {
    "start": "a time such as 10us, or seconds", "from": "a number, or nic:RANK.complex", "size": "64KiB, or bytes",
    "to": "a number, or nic:RANK.complex", "class": "0 to 7",
    "transport": 'a control such as dctcp, or keys in quotes: "{cc: dctcp, recovery: selective_repeat}"',
}  # fmt: skip
