"""What is read from a log: measured times, what the library says of itself, and what was left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from testbed.base.errors import InputError
from testbed.base.text import printable

MAX_BYTES = 64 << 20
MAX_ROWS = 200_000
MOST_WARNINGS = 20
MOST_SETTINGS = 500

BUSBW: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send_recv": lambda n: 1.0,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
}
"""Of nccl-tests' programs: bus bandwidth / algorithm bandwidth, among n ranks."""

NAMES = {
    "alltoall": "all_to_all", "all_to_all": "all_to_all", "allreduce": "all_reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter", "bcast": "broadcast", "sendreceive": "send_recv", "sendrecv": "send_recv",
} | {name: name for name in BUSBW}  # fmt: skip


class Point(NamedTuple):
    """What a time is a time of."""

    collective: str
    nodes: int
    gpus: int  # of each node
    size_bytes: int


@dataclass(frozen=True)
class Row:
    """A line of a table.  `time_ns`: of one iteration; `spread`: relative, of its iterations, where the log says it.

    `nodes` and `gpus` (of each node) are None where the log does not say them, `dtype` is nccl-tests' word.
    """

    file: str
    line: int
    collective: str
    size_bytes: int
    time_ns: float
    nodes: int | None
    gpus: int | None
    dtype: str = ""
    spread: float | None = None
    iterations: int | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Link:
    """A point-to-point measurement of NICs: rate in one direction, or one-way latency, of messages of a size."""

    file: str
    line: int
    size_bytes: int
    rate_bps: float | None = None
    latency_ns: float | None = None
    messages_per_s: float | None = None


@dataclass(frozen=True, order=True)
class Choice:
    """What the library said that it took for a size; `ranks`: 0 where it had not said among how many."""

    collective: str
    ranks: int
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int | None = None


@dataclass
class Library:
    """What NCCL has printed of itself; nothing here is guessed."""

    name: str = "nccl"  # or rccl
    version: str = ""
    channels: int | None = None  # of collectives
    p2p_channels: int | None = None
    p2p_per_peer: int | None = None
    nics: set[str] = field(default_factory=set)
    transports: set[str] = field(default_factory=set)
    env: dict[str, str] = field(default_factory=dict)
    choices: dict[tuple[str, int, int], Choice] = field(default_factory=dict)
    table: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    """(collective, algorithm, protocol): latency in us, bandwidth in GB/s, as the tuner has printed them."""

    def set(self, name: str, value: str) -> None:
        """A setting, of at most so many."""
        if name in self.env or len(self.env) < MOST_SETTINGS:
            self.env[printable(name[:60])] = printable(value[:200])


@dataclass
class Log:
    """Everything that was read from one or several files."""

    rows: list[Row] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    library: Library = field(default_factory=Library)
    left_out: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)
    unsaid: int = 0  # warnings that are not shown

    def add(self, row: Row) -> None:
        """Raises InputError if there are too many."""
        if len(self.rows) >= MAX_ROWS:
            what = f"more than {MAX_ROWS:,} rows"
            raise InputError(what, row.place, "give fewer logs, or those of a single campaign")
        self.rows.append(row)

    def leave_out(self, why: str, place: str = "", what: str = "") -> None:
        """Counts a row that is not used; `what` is said of the line at `place`."""
        self.left_out[why] += 1
        if what:
            self.warn(place, what)

    def warn(self, place: str, what: str) -> None:
        text = f"{place}: {what}" if place else what
        if text in self.warnings:
            return
        if len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)
        else:
            self.unsaid += 1


def named(word: str) -> str | None:
    """A collective by any of its names: `all_reduce_perf`, `osu_allreduce`, `AllReduce`."""
    word = word.strip().lower().rsplit("/", 1)[-1].removeprefix("osu_").removeprefix("xccl_")
    for ending in (".exe", "_mpi", "_perf"):
        word = word.removesuffix(ending)
    return NAMES.get(word) or NAMES.get(word.replace("_", ""))


def number(text: str) -> float | None:
    """A finite number that is not negative; None for `N/A` and everything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e18 and len(text) <= 40 and text.isascii() else None


def whole(text: str) -> int | None:
    """Likewise without a fraction."""
    value = number(text)
    return int(value) if value is not None and value == int(value) else None
