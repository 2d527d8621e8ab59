"""A player who does not look for the fault but for leaks of the truth.

He is root, and reads the files of the drill's fabric, its processes in /proc (arguments, environment, names, open
files), their logs, all answers of the session that are no view, and how long they take. He answers the class and the
place that stand out there. A drill without leaks has neither, so he does not beat `loudest`. The memory of the drill's
server he does not read, though root could.
"""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
"""No key of JSON: every cable has a `delay`, and runc a `cpu_quota`."""
FEW = 3
"""A text that names more classes is a list of all."""
ASKED, MOST_ASKED = 5, 50
SLOWER = 5.0
MOST_OCTETS = 4 << 20


def traces(session: Session) -> str:
    """The class and the cable that stand out in all that is no view, or `healthy` if none does."""
    texts = [*_answers(session), *(text for record in _fabrics(session) for text in _files_and_processes(record))]
    kind = _named(texts) or _slow(session)
    if not kind:
        return HEALTHY
    count = "\n".join(texts).count
    cables = sorted(cable.name for cable in Fabric.from_dict(session.state()["topology"]).cables)
    return f"{kind}@cable:{max(cables, key=count)}"


def _answers(session: Session) -> Iterator[str]:
    for line in LINES:
        yield session.command(line).text
    for line in COMPLETED:
        yield " ".join(session.complete(line))


def _fabrics(session: Session) -> list[Record]:
    """Its own: a client knows its id, that of a game in this process is ours."""
    own = getattr(session, "fabric", None)
    return [
        record
        for record in ownership.fabrics()
        if record.id == own or (not isinstance(own, str) and record.owner and record.owner.pid == os.getpid())
    ]


def _files_and_processes(record: Record) -> Iterator[str]:
    """Each file and each process of a fabric, with its name."""
    for path in sorted(record.dir.rglob("*")):
        yield path.name
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    yield file.read(MOST_OCTETS).decode(errors="replace")
    of_fabric = processes.belonging(record.mark, ()) | set(record.processes.values())
    of_fabric |= {record.owner} if record.owner else set()
    for process in sorted(of_fabric, key=lambda one: one.pid):
        if process.pid != os.getpid():
            yield from about(process.pid).values()


def about(pid: int) -> dict[str, str]:
    """What /proc has of a process."""
    directory, texts = Path("/proc", str(pid)), {}
    for name in ("cmdline", "environ", "comm", "cgroup"):
        with suppress(OSError):
            texts[name] = (directory / name).read_bytes().decode(errors="replace")
    with suppress(OSError):
        texts["open files"] = "\n".join(sorted(_of_each(directory / "fd", os.readlink)))
    with suppress(OSError):
        texts["threads"] = "\n".join(sorted(_of_each(directory / "task", lambda d: (d / "comm").read_text().strip())))
    return texts


def _of_each(directory: Path, read: Callable[[Path], str]) -> Iterator[str]:
    for name in os.listdir(directory):
        with suppress(OSError):
            yield read(directory / name)


def _named(texts: Iterable[str]) -> str:
    """The class that is named most, in texts that name few."""
    count: Counter[str] = Counter()
    for text in texts:
        kinds = set(WORD.findall(text)) & set(CATALOGUE)
        if len(kinds) <= FEW:
            count.update(kinds)
    return max(sorted(count), key=lambda kind: count[kind], default="")


def _slow(session: Session) -> str:
    """The class whose completions take far longer than those of any other.

    Classes are asked in rounds, so that a busy machine slows all of a round and not one class, each in an order of its
    own: else what comes again and again, as turns of others for the processor do, may meet one class each time. The
    quickest answer of a class counts. Whichever stands out is asked for longer: what it takes stays, chance does not.
    """
    took = dict.fromkeys(CATALOGUE, math.inf)
    first = ""
    for number in range(MOST_ASKED):
        for kind in random.Random(number).sample([*CATALOGUE], len(CATALOGUE)):
            began = time.perf_counter()
            session.complete(f"submit {kind}@cable:")
            took[kind] = min(took[kind], time.perf_counter() - began)
        first, second = sorted(took, key=lambda kind: -took[kind])[:2]
        if number + 1 >= ASKED and took[first] <= SLOWER * took[second]:
            return ""
    return first
