"""The protocols of fabricd: `python -m hardware.protocol` writes their tables into docs/fabricd-protocol.md.

Workers' commands and their replies, requests on the control socket, faults' primitives and reported events have one
table each in fabricd's sources. fabricd's dispatch and checks are made from the same tables.

It also writes the part that a worker's client needs into workloads/verbs/wire.py (hardware/wire.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hardware import wire
from hardware.tables import FABRICD, entries
from hardware.wire import COMMANDS, RECORDS, REPLIES, STATUSES

DOCUMENT = FABRICD.parents[1] / "docs" / "fabricd-protocol.md"
REQUESTS, REPORTS = "control/requests.def", "engine/reports.def"
PRIMITIVES, EFFECTS = "fault/primitives.def", "fault/effects.c"


def _table(head: str, rows: Sequence[Sequence[str]]) -> str:
    columns = head.count("|") + 1
    return "".join((f"| {head} |\n", f"|{'---|' * columns}\n", *(f"| {' | '.join(row)} |\n" for row in rows)))


def commands() -> str:
    rows = [(n, name, body) for n, name, _, _, _, body in entries(COMMANDS)]
    return _table("op | command | body after the 8-byte header", rows)


def replies() -> str:
    return _table("kind | packet | body", [(n, name, body) for n, name, _, _, body in entries(REPLIES)])


def records() -> str:
    return _table("kind | record | what has happened | behind it", entries(RECORDS))


def statuses() -> str:
    return _table("status | as in ibv_wc_status", [(n, words) for n, _, words in entries(STATUSES)])


def requests() -> str:
    rows = [(f"`{op}`", arguments, answer) for op, _, arguments, answer in entries(REQUESTS)]
    return _table("op | arguments | answer", rows)


def reports() -> str:
    rows = [(f"`{name}`", fields, meaning) for _, name, fields, meaning in entries(REPORTS)]
    return _table("event | fields |", rows)


def primitives() -> str:
    effects = ", ".join(f"`{name}`" + (f" ({keys})" if keys else "") for name, keys in entries(EFFECTS, "EFFECT"))
    rows = [(f"`{name}`", keys.replace("EFFECTS", effects)) for _, name, _, keys in entries(PRIMITIVES)]
    return _table("primitive | keys", rows)


TABLES: tuple[Callable[[], str], ...] = (requests, reports, primitives, commands, replies, records, statuses)


def written(document: str) -> str:
    """The document with its tables made anew from the sources."""
    for table in TABLES:
        name = table.__name__
        start, end = f"<!-- {name}: written by python -m hardware.protocol -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = document.partition(start)
        document = before + start + table() + end + rest.partition(end)[2]
    return document


def main(document: Path = DOCUMENT) -> None:
    document.write_text(written(document.read_text()))
    wire.main()


if __name__ == "__main__":
    main()
