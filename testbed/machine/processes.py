"""Processes by pid and start time. A pid alone may be reused; both together identify a process.

Start times are those of the machine: inside a time namespace the shift is taken off. The processes of a fabric carry
an environment variable, the mark, by which they are found even if their parents have ended. A forked controller has it,
too, but /proc/PID/environ shows what a process was started with, and that is the fork server's: it is found by the
journal, which it waits for, and by its network namespace.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MARK = "RAILBED_FABRIC"
STOPPED = frozenset("Tt")  # states of proc_pid_stat(5)
_PROC = Path("/proc")
_AT_ONCE = 1 << 17  # bytes: of one process, proc gives less only where there is no more
_KTHREADD = 2
_EXITING, _KERNELS = 4, 0x200000  # PF_EXITING, PF_KTHREAD of linux/sched.h, in the flags of proc_pid_stat(5)


@cache
def machine() -> str:
    """This boot of this machine and this pid namespace: the pids that we record are valid in it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third (the state) on. Raises ProcessLookupError."""
    try:
        return _read(f"/proc/{pid}/stat").decode().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None


def _read(path: str) -> bytes:
    """Reads a file of /proc; quicker than a file object, as hundreds are read when a fabric goes down."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(fd, _AT_ONCE)]
        while len(parts[-1]) == _AT_ONCE:
            parts.append(os.read(fd, _AT_ONCE))
        return b"".join(parts)
    finally:
        os.close(fd)


@cache
def _shift() -> int:
    """Clock ticks by which our time namespace shows start times later than they are (time_namespaces(7))."""
    with suppress(FileNotFoundError):
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock in ("boottime", "7"):
                ticks = os.sysconf("SC_CLK_TCK")
                return int(seconds) * ticks + int(nanoseconds) * ticks // 1_000_000_000
    return 0


@dataclass(frozen=True)
class Process:
    """A process by pid and start time (clock ticks since boot)."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now. Raises ProcessLookupError."""
        return cls(pid, int(_stat(pid)[19]) - _shift())

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Process:
        return cls(int(d["pid"]), int(d["start"]))

    def to_dict(self) -> dict[str, int]:
        return {"pid": self.pid, "start": self.start}

    def alive(self) -> bool:
        """Whether it still runs. A zombie does not, nor does a process in the kernel's exit path.

        There Open vSwitch closes a packet socket for each port, 10 ms each, for which nobody need wait.
        """
        try:
            fields = _stat(self.pid)
        except ProcessLookupError:
            return False
        return self._same(fields) and fields[0] not in "ZX" and not int(fields[6]) & _EXITING

    def ended(self) -> bool:
        """Whether it is gone, or its parent can reap it, and its children have another parent."""
        try:
            fields = _stat(self.pid)
        except ProcessLookupError:
            return True
        return fields[0] in "ZX" or not self._same(fields)

    def _same(self, fields: Sequence[str]) -> bool:
        """Whether these are its fields, and not a later process's."""
        return abs(int(fields[19]) - _shift() - self.start) <= 1  # a shift may be no whole number of ticks

    def state(self) -> str:
        """The letter of proc_pid_stat(5), "" if it is gone."""
        with suppress(ProcessLookupError):
            return _stat(self.pid)[0] if self.alive() else ""
        return ""

    def stopped(self) -> bool:
        return self.state() in STOPPED

    def signal(self, number: int) -> bool:
        """Sends a signal; False if the process is gone. Never hits a later process of the same pid."""
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(fd, number)
                    return True
            finally:
                os.close(fd)
        return False


class Running:
    """A process that may not be our child, by the calls of subprocess.Popen that do not need that."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self._process = process

    @classmethod
    def of(cls, pid: int) -> Running:
        """Raises ProcessLookupError."""
        return cls(Process.of(pid))

    def poll(self) -> int | None:
        """None while it runs; how it ended is not known to us."""
        return None if self._process.alive() else -1


def every() -> Iterator[int]:
    """All pids that can be seen from here, but for the kernel's own, which may be most of them."""
    kernels = _kernels()
    return (int(name) for name in os.listdir(_PROC) if name.isdigit() and name not in kernels)


def _kernels() -> set[str]:
    """None where they cannot be seen."""
    with suppress(OSError, IndexError):
        if int(_stat(_KTHREADD)[6]) & _KERNELS:
            return set(Path(f"/proc/{_KTHREADD}/task/{_KTHREADD}/children").read_text().split())
    return set()


def belonging(mark: str, namespaces: Iterable[int]) -> set[Process]:
    """Processes that were started with `RAILBED_FABRIC=mark` in their environment (if there is a mark), or are inside
    these network namespaces (but our own)."""
    wanted = set(namespaces) - {network_namespace(os.getpid())}
    entry = _entry(MARK, mark) if mark else None
    return existing(
        pid
        for pid in every()
        if (wanted and network_namespace(pid) in wanted) or (entry and entry in _environment(pid))
    )


def carrying(name: str, value: str) -> set[Process]:
    """Processes that have this variable in their environment."""
    entry = _entry(name, value)
    return existing(pid for pid in every() if entry in _environment(pid))


def network_namespace(pid: int) -> int:
    """Inode of a process's network namespace, 0 if it has none any more."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def _environment(pid: int) -> bytes:
    """As `_entry` is found in it: with a null byte around each variable."""
    try:
        return b"\0" + _read(f"/proc/{pid}/environ") + b"\0"
    except OSError:
        return b""


def _entry(name: str, value: str) -> bytes:
    return f"\0{name}={value}\0".encode()


def existing(pids: Iterable[int]) -> set[Process]:
    """The processes of these pids, without those that have ended meanwhile."""
    processes = set()
    for pid in pids:
        with suppress(ProcessLookupError):
            processes.add(Process.of(pid))
    return processes


def ancestors() -> set[int]:
    """Our own pid and our parents': never to be killed, even if we were started inside a fabric."""
    pids, pid = set(), os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        try:
            pid = int(_stat(pid)[1])
        except ProcessLookupError:
            break
    return pids


def wait_gone(processes: Iterable[Process], timeout: float) -> set[Process]:
    """Waits until they are gone; returns those that are still there after `timeout` seconds."""
    left = set(processes)

    def gone() -> bool:
        left.difference_update([p for p in left if not p.alive()])
        return not left

    wait_for(gone, timeout, pause=0.002)
    return left


def reap(ended: Iterable[Process]) -> None:
    """Forgets those that have ended and are our children. They must be nobody's who waits for them, as Popen does."""
    for process in ended:
        with suppress(ProcessLookupError, ChildProcessError):
            if process._same(_stat(process.pid)):
                os.waitpid(process.pid, os.WNOHANG)


def ended(code: int) -> str:
    """How a process ended, from its return code (negative or above 128: signal)."""
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code if code < 0 else code - 128).name}"
    return f"ended with exit code {code}"


def wait_for(condition: Callable[[], object], timeout: float, pause: float = 0.005) -> bool:
    """Polls until `condition()` is true; False after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
