"""Requests that come whether or not earlier ones have been answered: drawn as a Poisson process, or from a file.

Times count from the first request on: it comes at 0.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.graph.mistake import Mistake
from workloads.base import named_file

MOST_BYTES = 64 << 20
COLUMNS = ("arrival", "prompt", "output")
MOST_REQUESTS = 100_000
MOST_TOKENS = 1 << 24
LONGEST_NS = 1e13  # from the first arrival to the last one
_LATEST_NS = 1e19  # of an arrival as it is written: seconds since 1970 are less


class BadRequests(Mistake, ValueError):
    """A file of requests that cannot be read: what is wrong, and in which line."""


@dataclass(frozen=True)
class Request:
    """`prompt` tokens come in, `output` are generated."""

    arrival_ns: float
    prompt: int
    output: int


def poisson(
    count: int, rate_per_s: float, prompt: tuple[int, int], output: tuple[int, int], seed: int
) -> list[Request]:
    """`count` requests, so many in a second on average; tokens are drawn evenly from least to most."""
    rng, at, requests = random.Random(seed), 0.0, []
    for _ in range(count):
        requests.append(Request(round(at, 3), rng.randint(*prompt), rng.randint(*output)))
        at += rng.expovariate(rate_per_s) * 1e9
    return requests


def read(path: Path, time_ns: Callable[[str], float]) -> list[Request]:
    """A CSV file with the columns arrival, prompt and output; `time_ns` reads an arrival.  Raises BadRequests."""
    try:
        rows = list(csv.reader(io.StringIO(named_file.text(path, MOST_BYTES), newline="")))
    except (named_file.Unreadable, csv.Error) as error:
        raise BadRequests(f"{str(path)!r:.200} cannot be read: {error}", "a CSV file") from None
    if not rows or tuple(cell.strip() for cell in rows[0]) != COLUMNS:
        raise BadRequests(f"{path}:1: the first line does not name the columns", ",".join(COLUMNS))
    requests = [_request(path, line, cells, time_ns) for line, cells in enumerate(rows[1:], 2) if cells]
    if not requests:
        raise BadRequests(f"{path}: there are no requests", "a line for each: 0.5ms,512,64")
    if len(requests) > MOST_REQUESTS:
        raise BadRequests(f"{path}: {len(requests)} requests", f"at most {MOST_REQUESTS}")
    first = min(r.arrival_ns for r in requests)
    if (span := max(r.arrival_ns for r in requests) - first) > LONGEST_NS:
        what = f"{path}: the last request comes {span / 1e9:.6g} s after the first"
        raise BadRequests(what, f"at most {LONGEST_NS / 1e9:.0f} s")
    shifted = [Request(round(r.arrival_ns - first, 3), r.prompt, r.output) for r in requests]
    return sorted(shifted, key=lambda r: r.arrival_ns)


def _request(path: Path, line: int, cells: Sequence[str], time_ns: Callable[[str], float]) -> Request:
    where = f"{path}:{line}"
    if len(cells) != len(COLUMNS):
        raise BadRequests(f"{where}: {len(cells)} columns", ",".join(COLUMNS))
    arrival, *counts = (cell.strip() for cell in cells)
    try:
        at = time_ns(arrival)
    except ValueError:
        raise BadRequests(f"{where}: {arrival!r:.40} is no time", "seconds such as 0.25, or 250us") from None
    if at > _LATEST_NS:
        raise BadRequests(f"{where}: {arrival!r:.40} is too late", f"at most {_LATEST_NS / 1e9:.0e} s")
    tokens = []
    for name, cell in zip(COLUMNS[1:], counts, strict=True):
        if not (cell.isascii() and cell.isdecimal() and len(cell) <= 9 and 1 <= int(cell) <= MOST_TOKENS):
            raise BadRequests(f"{where}: {cell!r:.40} is no number of {name} tokens", f"1 to {MOST_TOKENS}")
        tokens.append(int(cell))
    return Request(at, *tokens)
