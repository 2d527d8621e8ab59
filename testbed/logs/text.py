"""The lines of a log, freed of what launchers put before and between them.

`srun -l` begins a line with `12: `, `mpirun --tag-output` with `[1,0]<stdout>: ` or `[0] `, some put the tag before
every piece that was written, so that it stands in the middle of a line, too. What NCCL prints by itself may come
between the two halves of a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 20_000
"""Characters of a line: a longer one is no row of anything."""

_TAG = re.compile(r"\[\d{1,6}(?:,\d{1,6})?\](?:<std(?:out|err)>)?:?|\d{1,6}: ?")
_STAMP = re.compile(r"(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?Z? +")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x00")
_NCCL = re.compile(r"(?:\S{1,256}:\d+:\d+ )?(?:\[\d+\] )?(?:\S+ \S+ )?NCCL (?:INFO|WARN|TRACE|VERSION) ")


class Line(NamedTuple):
    """`tag` names the process that has written it; `nccl` is what NCCL itself has printed at its end."""

    number: int
    tag: str
    text: str
    nccl: str


def lines(text: str) -> Iterator[Line]:
    """All lines; those that are too long come as empty ones."""
    for number, raw in enumerate(text.split("\n"), 1):
        if len(raw) > LONGEST:
            yield Line(number, "", "", "")
            continue
        line = _ESCAPE.sub("", raw.rstrip("\r")).rsplit("\r", 1)[-1]
        tag = ""
        line = _STAMP.sub("", line, count=1) if _STAMP.match(line) else line
        if found := _TAG.match(line):
            tag = found.group()
            line = line[found.end() :]
            if tag.startswith("["):
                line = line.replace(tag, " ")  # before each piece that was written
        nccl = ""
        if found := _NCCL.search(line):
            line, nccl = line[: found.start()], line[found.end() :]
        yield Line(number, tag, line.rstrip(), nccl.rstrip())


def decoded(raw: bytes) -> str:
    """Text of any encoding that has ASCII in it; UTF-16 by its mark."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")
