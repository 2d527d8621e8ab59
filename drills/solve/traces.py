"""A player who does not look for the fault but for traces of those who have put it in.

He is root, and reads what lies about: the files of the drill's fabric, its processes in /proc (arguments, environment,
names, open files), their logs, how long the session takes to say things, and all of its words that are no view. Of that
he takes what is not said of every class or every place alike. In a drill that keeps its truth to itself there is no
such thing, and he does not beat `loudest`. The memory of the drill's server he leaves alone: root could read that.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from drills.session import Session
from drills.sheet.truth import HEALTHY
from testbed.faults import CATALOGUE
from testbed.machine import ownership, processes
from testbed.machine.ownership import Record
from topologies.graph.fabric import Fabric

LINES = (
    "ticket", "status", "help", "show nothing", "show faults", "inject", "heal all", "report",
    "submit nonsense@nowhere", "truth", "config nothing",
)  # fmt: skip
COMPLETED = ("", "show ", "config ", "help ", "hint ")
WORD = re.compile(r"\b[a-z_]+\b(?!\"?:)")
"""No key of JSON: every cable has its `delay`, and runc knows a `cpu_quota`."""
FEW = 3
"""A text that names more classes is a list of them."""
ASKED = 5
SLOWER = 5.0
MOST_OCTETS = 4 << 20


def traces(session: Session) -> str:
    """The class and the cable that stand out in all that is no view, or `healthy` if none does."""
    told = [*_said(session), *(text for record in _fabrics(session) for text in _lying_about(record))]
    kind = _named(told) or _slow(session)
    if not kind:
        return HEALTHY
    plan = Fabric.from_dict(session.state()["topology"])
    return f"{kind}@cable:{_marked(told, [cable.name for cable in plan.cables])}"


def _said(session: Session) -> Iterator[str]:
    for line in LINES:
        yield session.command(line).text
    for line in COMPLETED:
        yield " ".join(session.complete(line))


def _fabrics(session: Session) -> list[Record]:
    """Its own: a client knows which, and beside a game in this process it is ours."""
    own = getattr(session, "fabric", None)
    return [
        record
        for record in ownership.fabrics()
        if record.id == own or (not isinstance(own, str) and record.owner and record.owner.pid == os.getpid())
    ]


def _lying_about(record: Record) -> Iterator[str]:
    """Each file and each process of a fabric, with its name."""
    for path in sorted(record.dir.rglob("*")):
        yield path.name
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    yield file.read(MOST_OCTETS).decode(errors="replace")
    found = processes.belonging(record.mark, ()) | set(record.processes.values())
    found |= {record.owner} if record.owner else set()
    for process in sorted(found, key=lambda one: one.pid):
        if process.pid != os.getpid():
            yield from about(process.pid).values()


def about(pid: int) -> dict[str, str]:
    """What /proc says of a process."""
    directory, found = Path("/proc", str(pid)), {}
    for name in ("cmdline", "environ", "comm", "cgroup"):
        with suppress(OSError):
            found[name] = (directory / name).read_bytes().decode(errors="replace")
    with suppress(OSError):
        found["open files"] = "\n".join(sorted(_targets(directory / "fd")))
    with suppress(OSError):
        found["threads"] = "\n".join(sorted(_names(directory / "task")))
    return found


def _targets(directory: Path) -> Iterator[str]:
    for name in os.listdir(directory):
        with suppress(OSError):
            yield os.readlink(directory / name)


def _names(directory: Path) -> Iterator[str]:
    for name in os.listdir(directory):
        with suppress(OSError):
            yield (directory / name / "comm").read_text().strip()


def _named(told: Iterable[str]) -> str:
    """The class that is named most, where not many are."""
    count: Counter[str] = Counter()
    for text in told:
        there = {kind for kind in set(WORD.findall(text)) if kind in CATALOGUE}
        if len(there) <= FEW:
            count.update(there)
    return max(sorted(count), key=lambda kind: count[kind], default="")


def _slow(session: Session) -> str:
    """The class about whose answers the session thinks longest, if it is far longer than about any other.

    They are asked about in turns: a machine that has something else to do for a while slows the answers of a turn, and
    not those about one class. What a class takes is its quickest answer.
    """
    took = dict.fromkeys(CATALOGUE, math.inf)
    for _ in range(ASKED):
        for kind in CATALOGUE:
            began = time.perf_counter()
            session.complete(f"submit {kind}@cable:")
            took[kind] = min(took[kind], time.perf_counter() - began)
    first, second = sorted(took, key=lambda kind: -took[kind])[:2]
    return first if took[first] > SLOWER * took[second] else ""


def _marked(told: Iterable[str], places: Iterable[str]) -> str:
    """The place that is named most."""
    text = "\n".join(told)
    return max(sorted(places), key=text.count)
