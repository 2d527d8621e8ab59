"""The protocols of fabricd: `python -m hardware.protocol` writes their tables into docs/fabricd-protocol.md.

Workers' commands, requests on the control socket and reported events have one `.def` file each in fabricd's sources.
fabricd's dispatch and checks are made from the same files.
"""

from __future__ import annotations

import re
from pathlib import Path

from hardware.build import SOURCES

DOCUMENT = SOURCES.parents[1] / "docs" / "fabricd-protocol.md"
COMMANDS, REQUESTS, REPORTS = "worker/commands.def", "control/requests.def", "engine/reports.def"
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
ENTRY = re.compile(r"^[A-Z]+\(((?:\"(?:\\.|[^\"\\])*\"|[^\")])*)\)$", re.MULTILINE)


def entries(name: str) -> list[list[str]]:
    """The arguments of each entry of a `.def` file; string literals are joined and unescaped."""
    return [_arguments(m[1]) for m in ENTRY.finditer((SOURCES / name).read_text())]


def _arguments(text: str) -> list[str]:
    found = []
    for part in re.split(r",(?=(?:[^\"\\]|\"(?:\\.|[^\"\\])*\"|\\.)*$)", text):
        pieces = STRING.findall(part)
        found.append("".join(re.sub(r"\\(.)", r"\1", p) for p in pieces) if pieces else part.strip())
    return found


def commands() -> str:
    head = "| op | command | body after the 8-byte header |\n|---|---|---|\n"
    return head + "".join(f"| {n} | {name} | {body} |\n" for n, name, _, _, _, body in entries(COMMANDS))


def requests() -> str:
    head = "| op | arguments | answer |\n|---|---|---|\n"
    rows = entries(REQUESTS)
    return head + "".join(f"| `{op}` | {arguments} | {answer} |\n" for op, _, arguments, answer in rows)


def reports() -> str:
    head = "| event | fields | |\n|---|---|---|\n"
    return head + "".join(f"| `{name}` | {fields} | {meaning} |\n" for _, name, fields, meaning in entries(REPORTS))


def written(document: str) -> str:
    """The document with its tables made anew from the sources."""
    for name, table in (("commands", commands()), ("requests", requests()), ("reports", reports())):
        start, end = f"<!-- {name}: written by python -m hardware.protocol -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = document.partition(start)
        document = before + start + table + end + rest.partition(end)[2]
    return document


def main(document: Path = DOCUMENT) -> None:
    document.write_text(written(document.read_text()))


if __name__ == "__main__":
    main()
