"""The processes of a fabric: which run, which stand still, which have ended, and how; why one is dead.

All are in the fabric's journal, each by the name of its part. A command looks them up in /proc (`trouble`). The process
that has started them also watches them (`Supervision`), and records how they ended. fabricd watches those without which
a fabric cannot go on, and ends with them (hardware/fabricd/control/parts.c), so that a fabric that nobody uses is dead
then, too.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware.client import FabricdError, FabricdLost
from testbed.base.errors import UserError
from testbed.base.text import printable
from testbed.machine.ownership import HOST, KEEPER, Record, control_group
from testbed.machine.processes import STOPPED, Process, ended, wait_for
from testbed.machine.teardown import control_group_paths

CONTROLLER = "controller"
"""The only part without which a fabric goes on; faults end it, and hold it."""
_SHOWN = 4
_END_S = 2.0


@dataclass(frozen=True)
class Part:
    """A process of a fabric; `how` it ended, if somebody has seen it."""

    name: str
    process: Process
    state: str  # running, stopped, ended
    how: str = ""

    @property
    def needed(self) -> bool:
        return self.name != CONTROLLER

    @property
    def hinders(self) -> bool:
        """Whether commands would wait for it in vain. Who only holds namespaces may stand still."""
        holds = self.name == "holder" or self.name.startswith(HOST)
        return self.needed and (self.state == "ended" or (self.state == "stopped" and not holds))

    @property
    def text(self) -> str:
        if self.state == "ended":
            return f"{self.name} (process {self.process.pid}) {self.how or 'has ended'}"
        return f"{self.name} (process {self.process.pid}) {'is stopped' if self.state == 'stopped' else 'runs'}"

    def to_dict(self) -> dict[str, Any]:
        return {"part": self.name, "pid": self.process.pid, "state": self.state, "how": self.how}


def parts(record: Record) -> list[Part]:
    """All that were started in our pid namespace, in that order."""
    states = {"": "ended", **dict.fromkeys(STOPPED, "stopped")}
    return [
        Part(name, process, states.get(process.state(), "running"), record.endings.get(process.pid, ""))
        for name, process in record.processes.items()
    ]


def stopped_programs(record: Record) -> list[Part]:
    """Programs in ranks' containers that stand still, a rank each. Faults may have stopped them."""
    stopped: dict[int, Part] = {}
    for group in control_group_paths(control_group(record.id)):
        for procs in group.glob("r[0-9]*/cgroup.procs"):
            rank = procs.parent.name.removeprefix("r").partition("-")[0]
            with suppress(OSError, ValueError):
                for pid in map(int, procs.read_text().split()):
                    if (process := Process.of(pid)).stopped():
                        stopped[pid] = Part(f"a program of rank {rank}", process, "stopped")
    return list(stopped.values())


@dataclass(frozen=True)
class Trouble:
    """Why a fabric whose owner lives cannot go on. `over`: it never will."""

    what: str
    hint: str
    over: bool


def trouble(record: Record) -> Trouble | None:
    hinders = [part for part in parts(record) if part.hinders]
    if not hinders:
        return None
    over = [part for part in hinders if part.state == "ended"]
    down = f"testbed down {record.id} takes it down"
    if over:
        reason = last_word(record) if any(part.name == "fabricd" for part in over) else ""
        return Trouble(in_words(over) + (f"; {reason}" if reason else ""), down, over=True)
    pids = " ".join(str(part.process.pid) for part in hinders)
    return Trouble(in_words(hinders), f"kill -CONT {pids} lets it go on, {down}", over=False)


def failed(error: FabricdError, directory: Path) -> UserError:
    """Why a request has failed: the fabric cannot go on, or what fabricd answered."""
    record = Record.read(directory)
    what, hint = str(error), f"testbed show logging {record.id}"
    if isinstance(error, FabricdLost) and directory.exists():  # a connection closes before its process has ended
        wait_for(lambda: trouble(record) or record.state == "dead", _END_S)
        if record.state == "dead":
            what, hint = f"fabric {record.id} is dead: {why_dead(Record.read(directory))}", f"testbed clean {record.id}"
        elif reason := trouble(record):
            what, hint = f"fabric {record.id} cannot go on: {reason.what}", reason.hint
    return UserError(what, str(directory), hint)


def last_word(record: Record) -> str:
    """The last line of fabricd's log, which says why it has ended, if it could."""
    with suppress(OSError):
        lines = (record.dir / "fabricd.log").read_text(errors="replace").strip().splitlines()
        return f"its last word: {printable(lines[-1].strip()[:300])}" if lines else ""
    return ""


def in_words(shown: Sequence[Part]) -> str:
    more = f", and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(part.text for part in shown[:_SHOWN]) + more


def why_dead(record: Record) -> str:
    """The reason in words; to be asked when the fabric's owner has ended."""
    pid = record.owner.pid if record.owner else "?"
    if not record.standing:
        return f"the process whose it was ({pid}) has ended without taking it down"
    if record.gone:
        return record.gone
    if record.keeper == record.owner:
        return f"its keeper (process {pid}), which held its clock, has ended without taking it down{_others(record)}"
    if reason := last_word(record):
        return f"its fabricd (process {pid}) has ended; {reason}{_others(record)}"
    log = record.dir / "fabricd.log"
    return f"its fabricd (process {pid}) has ended without a word in {log}: killed, or told to stop{_others(record)}"


def _others(record: Record) -> str:
    """Who of the other parts has ended as well."""
    dead = [part for part in parts(record) if part.state == "ended" and part.name not in ("fabricd", KEEPER)]
    return f"; besides, {in_words(dead)}" if dead else ""


def needed(record: Record) -> dict[str, int]:
    """The pids of those that fabricd is to watch, by name."""
    own = (CONTROLLER, KEEPER, "fabricd")
    return {name: process.pid for name, process in record.processes.items() if name not in own}


class Supervision:
    """Watches a fabric's processes for whoever has started them; its descriptor is readable when one has ended.

    Those that are our children do not stay in the kernel's table.
    """

    def __init__(self, record: Record, children: Sequence[subprocess.Popen[Any]]) -> None:
        self._record = record
        self._children = children
        self._poll = select.epoll()
        self._watched: dict[int, tuple[str, Process]] = {}
        for name, process in record.processes.items():
            with suppress(ProcessLookupError):
                fd = os.pidfd_open(process.pid)
                self._watched[fd] = name, process
                self._poll.register(fd, select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def look(self) -> None:
        """Writes down who has ended since, and how, and reaps it."""
        for fd, _ in self._poll.poll(0):
            name, process = self._watched.pop(fd)
            how = _how(fd)
            self._poll.unregister(fd)
            os.close(fd)
            self._record.endings[process.pid] = how
            with suppress(OSError):  # the fabric is being taken down
                self._record.journal.write("ended", name=name, pid=process.pid, how=how)
        for child in self._children:
            child.poll()

    def settle(self) -> None:
        """As `look`, and waits for those that are about to end, so that it is known how."""

        def settled() -> bool:
            self.look()
            return all(process.alive() for _, process in self._watched.values())

        wait_for(settled, _END_S)

    def close(self) -> None:
        for fd in self._watched:
            os.close(fd)
        self._watched.clear()
        self._poll.close()


def _how(fd: int) -> str:
    """How a process has ended, without reaping it; who is not its parent knows only when."""
    at = time.strftime("at %H:%M:%S UTC", time.gmtime())
    with suppress(ChildProcessError):
        if info := os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
            return f"{ended(code)} {at}"
    return f"has ended {at}"
