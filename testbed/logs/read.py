"""Files of any of the kinds, told apart by what stands in them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from testbed.base.errors import InputError
from testbed.logs import nccl_json, table
from testbed.logs.nccl_debug import NcclDebug
from testbed.logs.nccl_tests import NcclTests
from testbed.logs.osu import Osu
from testbed.logs.perftest import Perftest
from testbed.logs.row import MAX_BYTES, Log
from testbed.logs.text import decoded, lines
from workloads.base import named_file
from workloads.library.settings import RCCL

_AS_NCCL = (
    "RCCL is followed as NCCL's rings and trees, with RCCL's threads and buffers; what it takes for a size is known if "
    "the log says so (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING)"
)
_OSU = re.compile(r"#\s*OSU \S+ ")


class Source(NamedTuple):
    """A file that was read: its name without folders, hash, and how many rows it has."""

    name: str
    sha256: str
    rows: int


def raw(path: str) -> bytes:
    """What stands in a file.  Raises InputError."""
    if not path:
        raise InputError("the name of the file is empty", "command line", "name a log of nccl-tests")
    try:
        return named_file.read(path, MAX_BYTES)
    except named_file.Unreadable as error:
        raise InputError(error.what, path, "a log of nccl-tests, OSU, perftest or NCCL_DEBUG=INFO") from None


def read(paths: Sequence[str], collective: str | None = None) -> tuple[Log, list[Source]]:
    """All files as one log.  Raises InputError for one in which nothing is found.

    `collective`: of tables that do not say it.
    """
    log, sources = Log(), []
    for path in paths:
        content = raw(path)
        before = len(log.rows)
        if not _into(log, content, path, collective):
            hint = "tables of nccl-tests, OSU or perftest, lines of NCCL_DEBUG=INFO, CSV with collective,nodes,.."
            raise InputError("nothing in it is a measurement", path, hint)
        hashed = sha256(content).hexdigest()
        sources.append(Source(path.rsplit("/", 1)[-1], hashed, len(log.rows) - before))
    if log.library.name == "rccl":
        log.library.env = {**RCCL, **log.library.env}
        log.warn("", _AS_NCCL)
    return log, sources


def _into(log: Log, content: bytes, path: str, collective: str | None) -> int:
    """How much was found."""
    text = decoded(content)
    if text.lstrip()[:1] == "{":
        try:
            return nccl_json.read(json.loads(text), path, log, collective)
        except RecursionError:
            raise InputError("nested too deeply", path) from None
        except ValueError as error:
            raise InputError(f"no JSON: {error}", path, "the program that wrote it may not have ended") from None
    of_nccl = NcclDebug(path, log)
    all_lines = []
    for line in lines(text):
        if line.nccl:
            of_nccl.read(line.number, line.nccl)
        all_lines.append(line)
    if any(table.columns(line.text) for line in all_lines[:200]):
        return table.read(all_lines, path, log)
    readers = NcclTests(path, log, collective), Osu(path, log), Perftest(path, log)
    readers[0].read(all_lines)
    if any(_OSU.match(line.text) for line in all_lines):
        readers[1].read(all_lines)
    if any(line.text.lstrip().startswith("#bytes") for line in all_lines):
        readers[2].read(all_lines)
    return of_nccl.found + sum(reader.found for reader in readers)
