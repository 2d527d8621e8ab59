"""Who owns what on the machine: each fabric records what it is about to make, so that all of it can be undone.

A fabric has a directory /run/railbed/<id> with a journal: JSON lines, each on disk before the thing it names is made.
It names the owner, and a file that the owner keeps locked as long as it lives (lockfile.py). Until then nobody else
touches the fabric. Once the owner is dead, `clean` removes what the journal says is the fabric's, and nothing else:

- processes: recorded after their start, and until then known by a mark in their environment (a forked controller does
  nothing until it is recorded); also all processes in the fabric's control groups, in its own network namespace and in
  those of its hosts;
- with them their namespaces, and all devices inside;
- control groups, mounts below the directory, and the directory itself.

From another pid namespace not all of these processes can be seen. They keep a file locked, too: as long as one is left
that cannot be killed from here, the directory stays, for a `clean` that can reach it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from testbed.base.errors import InputError, MachineError, UserError
from testbed.machine import processes, teardown
from testbed.machine.directories import lay_apart, remove_tree
from testbed.machine.lockfile import LockFile, is_locked
from testbed.machine.maker import Maker
from testbed.machine.processes import Process

RUN_DIR = Path("/run/railbed")
_ID = re.compile(r"[0-9a-f]{4}")
_NEW = ".new-"
ID_RANGES = 4096
"""Ranges of user ids for ranks. No two fabrics have the same one: they cannot signal each other."""
_TRIES = 10 * ID_RANGES  # to draw one that is free, even if few are
_GONE_S = 5.0  # until killed processes are gone: Open vSwitch then closes a socket for each port
PROCESSES = ".processes"  # suffix of the files that a fabric's processes keep locked
HOST = "host "  # prefix of the names of processes that keep a host's namespace alive
KEEPER = "keeper"
SWITCHES = ("holder", "fabricd", "ovs-vswitchd", "ovsdb-server", "controller")  # they are in the fabric's namespace


def id_range(fabric_id: str) -> int:
    """The number of the range of user ids that a fabric's ranks have."""
    return int(fabric_id, 16) % ID_RANGES


def control_group(fabric_id: str) -> str:
    """The parent of the fabric's control groups, below the root of each hierarchy."""
    return f"railbed-{fabric_id}"


@dataclass
class Journal:
    """Appends lines to a fabric's journal; each survives us, whoever is killed, when `write` returns.

    It need not survive the machine: nothing of a fabric does.
    """

    path: Path
    _file: IO[str] | None = None

    def write(self, do: str, **fields: Any) -> None:
        """Records what is about to be made (or, for processes, what has just been started)."""
        if self._file is None:
            self._file = self.path.open("a")
        self._file.write(json.dumps({"do": do, **fields}) + "\n")
        self._file.flush()

    def own(self, owner: Process, lock: LockFile) -> None:
        """Makes this process the owner; the fabric is alive as long as the file is locked."""
        self.write("owner", **owner.to_dict(), machine=processes.machine(), lock=lock.name)

    def made(self, started: Mapping[str, Process]) -> None:
        """Records processes that have been started (all but a forked controller also have the mark)."""
        by_name = {name: process.to_dict() for name, process in started.items()}
        self.write("processes", processes=by_name, machine=processes.machine())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass
class Record:
    """A fabric, as read from its journal.

    `processes` are those that were started in our pid namespace: pids of others are not valid here.
    """

    id: str
    dir: Path
    mark: str = ""
    machine: str = ""
    lock: str = ""
    owner: Process | None = None
    processes: dict[str, Process] = field(default_factory=dict)
    endings: dict[int, str] = field(default_factory=dict)
    """How processes have ended, by pid, as far as somebody has seen it."""
    by: Maker = Maker()
    """Empty of a fabric that an older version has brought up."""
    gone: str = ""
    """Why its keeper has given it up."""
    drill: bool = False
    """A drill is played on it: whoever looks into it by another way sees more than the player may."""

    @classmethod
    def read(cls, directory: Path) -> Record:
        """Reads a journal. A last line that was cut off is ignored: what it names was not made."""
        record = cls(directory.name, directory)
        with suppress(FileNotFoundError):
            for line in (directory / "journal").read_text(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    record._take(json.loads(line))
        return record

    def _take(self, line: dict[str, Any]) -> None:
        if line["do"] == "owner":
            self.owner, self.machine, self.lock = Process.from_dict(line), line["machine"], line.get("lock", "")
        elif line["do"] == "processes" and line.get("machine", self.machine) == processes.machine():
            self.processes |= {name: Process.from_dict(d) for name, d in line["processes"].items()}
        elif line["do"] == "mark":
            self.mark = line["mark"]
        elif line["do"] == "by":
            self.by = Maker(str(line["user"]), str(line["checkout"]))
        elif line["do"] == "drill":
            self.drill = True
        elif line["do"] == "ended":
            self.endings[int(line["pid"])] = str(line["how"])
        elif line["do"] == "gone":
            self.gone = str(line["why"])

    @property
    def name(self) -> str:
        """Its experiment's name; empty while it is coming up."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads((self.dir / "experiment.json").read_text())["name"])
        return ""

    @property
    def state(self) -> str:
        """`alive` or `dead`, as its owner is, in whatever pid or time namespace that is."""
        if self.lock:
            return "alive" if is_locked(self.dir / self.lock) else "dead"
        # a journal from before there were locks
        return "alive" if self.owner and (not self.in_our_namespace or self.owner.alive()) else "dead"

    @property
    def running(self) -> bool:
        """Whether any of its processes is left, in whatever pid namespace (but workers: see their control groups)."""
        return any(is_locked(lock) for lock in self.dir.glob("*" + PROCESSES))

    @property
    def in_our_namespace(self) -> bool:
        """Whether its owner is in our pid namespace, so that its pids are valid here."""
        return self.machine == processes.machine()

    @property
    def standing(self) -> bool:
        """Whether it was left up (`testbed up`): its owner is then its own fabricd, or its keeper."""
        return self.owner is not None and self.owner in (self.processes.get("fabricd"), self.keeper)

    @property
    def keeper(self) -> Process | None:
        """The process that holds its clock and has a job repeated on it (`testbed up --job`)."""
        return self.processes.get(KEEPER)

    @property
    def journal(self) -> Journal:
        return Journal(self.dir / "journal")


def create() -> tuple[Record, Journal, LockFile]:
    """A new fabric with a free random id, owned by this process. Raises MachineError."""
    for _ in range(_TRIES):
        fabric_id = secrets.token_hex(2)
        with suppress(FileExistsError):
            return _create(fabric_id)
    raise MachineError("no free fabric id", hint="too many fabrics: testbed status --all, testbed clean")


def _create(fabric_id: str) -> tuple[Record, Journal, LockFile]:
    with run_directory(make=True):
        if _in_use(fabric_id):
            raise FileExistsError(fabric_id)
        # It has owner and lock before it gets its final name, so that it is never without them.
        new, final = RUN_DIR / f"{_NEW}{fabric_id}", RUN_DIR / fabric_id
        if new.exists():
            remove_tree(new)
        new.mkdir(mode=0o700)
        lock, journal = LockFile(new / "owner.lock"), Journal(new / "journal")
        journal.own(Process.of(os.getpid()), lock)
        journal.write("mark", mark=f"{fabric_id}-{secrets.token_hex(8)}")
        journal.write("by", **asdict(Maker.here()))
        try:
            os.rename(new, final)
        except OSError:  # somebody has taken the id meanwhile
            lock.release()
            remove_tree(new)
            raise FileExistsError(final) from None
    journal.path = final / "journal"
    return Record.read(final), journal, lock


@contextmanager
def run_directory(*, make: bool = False) -> Iterator[None]:
    """Locks RUN_DIR. Raises MachineError if it cannot be made, FileNotFoundError if it is not there."""
    while True:
        if make:
            try:
                RUN_DIR.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                hint = "run it as root" if os.geteuid() else ""
                raise MachineError(f"cannot write {RUN_DIR.parent}: {error.strerror}", hint=hint) from None
        try:
            fd = os.open(RUN_DIR, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # it went away with the last fabric
            if make:
                continue
            raise
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:  # else it went away while we waited
                if make:
                    lay_apart(fd)
                yield
                return
        finally:
            os.close(fd)


def _in_use(fabric_id: str) -> bool:
    """Whether the id or its range of user ids is another fabric's, or some of it is left on the machine."""
    taken = {id_range(name) for name in os.listdir(RUN_DIR) if _ID.fullmatch(name)}
    return id_range(fabric_id) in taken or any(teardown.control_group_paths(control_group(fabric_id)))


def fabrics() -> list[Record]:
    """All fabrics that have a directory, sorted by id."""
    try:
        names = sorted(os.listdir(RUN_DIR))
    except FileNotFoundError:
        return []
    return [Record.read(RUN_DIR / name) for name in names if _ID.fullmatch(name)]


def mark_as_drill(record: Record) -> None:
    """From here on only its drill, and what takes it down, finds this fabric."""
    journal = record.journal
    journal.write("drill")
    journal.close()


def find(fabric_id: str | None, *, drills: bool = False) -> Record:
    """The fabric of this id, or the only one that was left up. Raises InputError.

    If none was left up, the fabric of a run counts, too. Fabrics on which drills are played only with `drills`.
    """
    records = {record.id: record for record in fabrics() if drills or not record.drill or record.id == fabric_id}
    if fabric_id in records:
        if records[fabric_id].drill and not drills:
            raise InputError(f"fabric {fabric_id} belongs to a drill", "command line", _BY_DRILL)
        return records[fabric_id]
    if fabric_id is not None:
        raise InputError(f"there is no fabric {fabric_id}", "command line", _list("fabrics", records.values()))
    alive = [record for record in records.values() if record.state == "alive"]
    alive = [record for record in alive if record.standing] or alive
    if len(alive) == 1:
        return alive[0]
    if not alive:
        raise InputError("no fabric is up", hint=_BRING_UP)
    hint = f"such as --fabric {alive[0].id} ({_list('fabrics that are up', alive)})"
    raise InputError("several fabrics are up: say which", hint=hint)


_BRING_UP = "bring one up: testbed up FILE"
_BY_DRILL = "testbed drill --help: it has its own show, config, probe; give-up ends it"


def _list(head: str, records: Iterable[Record]) -> str:
    ids = ", ".join(f"{record.id} ({record.name})" if record.name else record.id for record in records)
    return f"{head}: {ids}" if ids else _BRING_UP


@dataclass
class Removed:
    id: str
    processes: int = 0
    control_groups: int = 0
    mounts: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def undo(record: Record) -> Removed:
    """Removes everything of a fabric, even if it is alive: that is the caller's decision.

    Safe to repeat and to run twice at once. Raises MachineError if something could not be removed; the directory then
    stays, for the next try.
    """
    removed = Removed(record.id)
    with _locked(record.dir):
        errors: list[str] = []
        # The processes that keep namespaces alive go last: until then the others inside are found.
        before = Record.read(record.dir)
        last = {p.pid for name, p in before.processes.items() if name == "holder" or HOST in name}
        removed.processes += _kill(before, last)
        now = Record.read(record.dir)
        if not now.in_our_namespace and now.state == "alive":
            raise MachineError(
                f"fabric {record.id} lives in another pid namespace: its processes cannot be reached from here",
                hint=f"testbed down {record.id} there",
            )
        if not now.in_our_namespace and not processes.wait_for(lambda: not now.running, _GONE_S):
            raise MachineError(
                f"fabric {record.id} still has processes in another pid namespace, out of reach from here",
                hint=f"testbed clean {record.id} there",
            )
        removed.control_groups = teardown.remove_control_groups(control_group(record.id), errors)
        removed.mounts = teardown.unmount_below(record.dir, errors)
        if errors:
            raise MachineError(f"fabric {record.id} is not all gone: {'; '.join(errors)}", hint="testbed clean again")
        try:
            remove_tree(record.dir)
        except FileNotFoundError:  # somebody else was faster
            pass
        except OSError as error:
            raise MachineError(f"fabric {record.id} is not all gone: {error.strerror}", str(error.filename)) from None
    forget_run_directory()
    return removed


def _kill(record: Record, last: set[int]) -> int:
    """Kills the fabric's processes until no more are found, and the pids in `last` only then; returns how many.

    Those of hosts and in containers may have become our children, when their parents ended, and would stay in the
    kernel's table as long as we live: they are reaped.
    """
    killed: set[Process] = set()
    inherited = {p for name, p in record.processes.items() if HOST in name}
    spare = processes.ancestors()
    for _ in range(100):
        contained = teardown.in_control_groups(control_group(record.id))
        alive = {p for p in _processes(record) | contained if p.pid not in spare and p.alive()}
        if not alive:
            break
        targets = {p for p in alive if p.pid not in last} or alive
        for process in targets:
            process.signal(9)
        killed |= targets
        inherited |= contained
        processes.wait_gone(targets, timeout=2)
        if targets == alive and all(p.pid in last for p in alive):  # which start nothing
            break
    waited_for = {p for p in killed if p.pid in last or p in inherited}  # not Open vSwitch, which takes its time
    processes.wait_for(lambda: all(p.ended() for p in waited_for), _GONE_S)
    processes.reap(inherited)
    return len(killed)


def _processes(record: Record) -> set[Process]:
    recorded = Record.read(record.dir).processes  # it may still be starting some
    inside = [p for name, p in recorded.items() if (name.startswith(HOST) or name in SWITCHES) and p.alive()]
    marked = processes.belonging(record.mark, (processes.network_namespace(p.pid) for p in inside))
    return marked | set(recorded.values())


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        fd = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:  # somebody else was faster
        yield
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class CleanFailed(MachineError):
    """Not everything could be removed; `removed` lists what was."""

    def __init__(self, failures: Sequence[str], removed: list[Removed]) -> None:
        super().__init__("; ".join(failures), hint="mend that, then testbed clean again")
        self.removed = removed


def clean(fabric_id: str | None = None, force: bool = False) -> list[Removed]:
    """Removes dead fabrics, or only this one; `force` also removes it if it is alive.

    If one cannot be removed, it goes on with the others. Raises UserError.
    """
    if fabric_id is not None:
        record = find(fabric_id, drills=True)
        if record.state != "dead" and not force:
            raise UserError(
                f"fabric {record.id} is in use by process {record.owner.pid if record.owner else '?'}",
                hint=f"testbed down {record.id}, or testbed clean {record.id} --force",
            )
        return [undo(record)]
    removed: list[Removed] = []
    failures: list[str] = []
    for record in fabrics():
        if record.state == "dead":
            with _noted(failures, f"fabric {record.id}"):
                removed.append(undo(record))
    with _noted(failures, str(RUN_DIR)):
        _remove_unfinished()
    if failures:
        raise CleanFailed(failures, removed)
    return removed


@contextmanager
def _noted(failures: list[str], what: str) -> Iterator[None]:
    """Collects an error, so that the next thing can still be done."""
    try:
        yield
    except UserError as error:
        failures.append(f"{error.what} ({error.where})" if error.where else error.what)
    except Exception as error:
        failures.append(f"{what}: {type(error).__name__}: {error}")


def _remove_unfinished() -> None:
    """Removes directories of fabrics whose maker died before it had given them their names."""
    with suppress(FileNotFoundError), run_directory():
        for name in os.listdir(RUN_DIR):
            if name.startswith(_NEW):
                remove_tree(RUN_DIR / name)
    forget_run_directory()


def forget_run_directory() -> None:
    with suppress(OSError), run_directory():
        RUN_DIR.rmdir()
