"""Who owns what on the machine: each fabric writes down what it is about to make, so that all of it can be undone.

A fabric has a directory /run/railbed/<id> with a journal: JSON lines, on disk before the thing they speak of is made.
It names the owner (pid and start time); while the owner lives, nobody else touches the fabric. Once it is dead, `clean`
removes what the journal and the tags say is the fabric's, and nothing else:

- processes: written down after their start, and before that known by a mark in their environment; also whatever runs
  in the fabric's control groups and in the network namespaces that its hosts hold;
- bridges: those with the fabric's id in their external_ids;
- links: those in the fabric's link group whose names start with its prefix;
- control groups, mounts below the directory, and the directory itself.
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

from testbed import ovs, processes, teardown
from testbed.errors import MachineError, UserError
from testbed.processes import Process
from testbed.trees import remove_tree

RUN_DIR = Path("/run/railbed")
_ID = re.compile(r"[0-9a-f]{4}")
_NEW = re.compile(r"\.new-([0-9a-f]{4})-(\d+)-(\d+)")
HOST = "host "  # what the names of processes that hold a host's namespace start with
_LINK_GROUP = 0x52420000  # "RB" and the id: links of one fabric can be deleted in one go


def prefix(fabric_id: str) -> str:
    """What the names of a fabric's links and bridges start with."""
    return f"rb{fabric_id}-"


def link_group(fabric_id: str) -> int:
    return _LINK_GROUP | int(fabric_id, 16)


def control_group(fabric_id: str) -> str:
    """The parent of the fabric's control groups, below the root of each hierarchy."""
    return f"railbed-{fabric_id}"


@dataclass
class Journal:
    """Appends lines to a fabric's journal; each is on disk when `write` returns."""

    path: Path
    _file: IO[str] | None = None

    def write(self, do: str, **fields: Any) -> None:
        """Writes down what is about to be made (or, for processes, what has just been started)."""
        if self._file is None:
            self._file = self.path.open("a")
        self._file.write(json.dumps({"do": do, **fields}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def own(self, owner: Process) -> None:
        """From now on the fabric is this process's: it lives as long as that does."""
        self.write("owner", **owner.to_dict(), machine=processes.machine())

    def made(self, started: Mapping[str, Process]) -> None:
        """Processes of the fabric have been started (they also carry the mark)."""
        self.write("processes", processes={name: process.to_dict() for name, process in started.items()})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass
class Record:
    """A fabric as its journal tells it."""

    id: str
    dir: Path
    mark: str = ""
    machine: str = ""
    owner: Process | None = None
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Record:
        """Reads a journal; a last line that was cut off does not count, what it spoke of was not made."""
        record = cls(directory.name, directory)
        with suppress(FileNotFoundError):
            for line in (directory / "journal").read_text(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    record._take(json.loads(line))
        return record

    def _take(self, line: dict[str, Any]) -> None:
        if line["do"] == "owner":
            self.owner, self.machine = Process.from_dict(line), line["machine"]
        elif line["do"] == "processes":
            self.processes |= {name: Process.from_dict(d) for name, d in line["processes"].items()}
        elif line["do"] == "mark":
            self.mark = line["mark"]

    @property
    def state(self) -> str:
        """`alive`; `dead`; `elsewhere`: the owner's pid means nothing in our pid namespace, so it may live."""
        if self.owner is None:
            return "dead"
        boot, _, _ = self.machine.partition("/")
        here, _, _ = processes.machine().partition("/")
        if boot != here:
            return "dead"
        if self.machine != processes.machine():
            return "elsewhere"
        return "alive" if self.owner.alive() else "dead"

    @property
    def standing(self) -> bool:
        """Whether it was left up, and so belongs to its own fabricd."""
        return self.owner is not None and self.owner == self.processes.get("fabricd")

    @property
    def journal(self) -> Journal:
        return Journal(self.dir / "journal")


def create(owner: Process) -> tuple[Record, Journal]:
    """A new fabric's directory with its journal: a random id that nothing here uses yet. Raises MachineError."""
    for _ in range(1000):
        fabric_id = secrets.token_hex(2)
        if _in_use(fabric_id):
            continue
        with suppress(FileNotFoundError, FileExistsError):  # not found: the parent went away with the last fabric
            return _create(fabric_id, owner)
    raise MachineError("no free fabric id", hint="too many fabrics: testbed list, testbed clean")


def _create(fabric_id: str, owner: Process) -> tuple[Record, Journal]:
    try:
        RUN_DIR.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        hint = "run it as root" if os.geteuid() else ""
        raise MachineError(f"cannot write {RUN_DIR.parent}: {error.strerror}", hint=hint) from None
    # Made under a name that tells its owner, so that there is no moment without one.
    new = RUN_DIR / f".new-{fabric_id}-{owner.pid}-{owner.start}"
    new.mkdir(mode=0o700)
    journal = Journal(new / "journal")
    mark = f"{fabric_id}-{secrets.token_hex(8)}"
    journal.own(owner)
    journal.write("mark", mark=mark)
    final = RUN_DIR / fabric_id
    try:
        os.rename(new, final)
    except OSError:  # somebody has taken the id meanwhile
        remove_tree(new)
        raise FileExistsError(final) from None
    journal.path = final / "journal"
    return Record.read(final), journal


def _in_use(fabric_id: str) -> bool:
    if (RUN_DIR / fabric_id).exists() or any(teardown.control_group_paths(control_group(fabric_id))):
        return True
    return any(name.startswith(prefix(fabric_id)) for name in os.listdir("/sys/class/net"))


def fabrics() -> list[Record]:
    """All fabrics that have a directory, sorted by id."""
    try:
        names = sorted(os.listdir(RUN_DIR))
    except FileNotFoundError:
        return []
    return [Record.read(RUN_DIR / name) for name in names if _ID.fullmatch(name)]


def find(fabric_id: str | None) -> Record:
    """The fabric of this id, or the only one that is alive. Raises UserError."""
    known = fabrics()
    if fabric_id is not None:
        for record in known:
            if record.id == fabric_id:
                return record
        raise UserError(f"there is no fabric {fabric_id}", hint=_known(known), exit_code=2)
    alive = [record for record in known if record.state == "alive"]
    if len(alive) == 1:
        return alive[0]
    what = "no fabric is up" if not alive else "several fabrics are up: say which"
    raise UserError(what, hint=_known(alive), exit_code=2)


def _known(records: Iterable[Record]) -> str:
    ids = ", ".join(record.id for record in records)
    return f"fabrics: {ids}" if ids else "bring one up: testbed up FILE"


@dataclass
class Removed:
    """What was removed of one fabric."""

    id: str
    processes: int = 0
    bridges: int = 0
    links: int = 0
    control_groups: int = 0
    mounts: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def undo(record: Record) -> Removed:
    """Removes everything of a fabric, also of one that is alive: the caller has decided that.

    Safe to repeat and to run twice at once. Raises MachineError if something could not be removed; the directory then
    stays, for the next try.
    """
    removed = Removed(record.id)
    with _locked(record.dir):
        errors: list[str] = []
        # As long as hosts are held, what runs inside them is found. Then the devices go, many at once, while fabricd
        # still has them open: closed one by one, each takes 10 ms.
        known = Record.read(record.dir).processes
        holders = [p for name, p in known.items() if name.startswith(HOST)]
        for_later = {p.pid for name, p in known.items() if name in ("fabricd", "holder")} | {p.pid for p in holders}
        removed.processes += _kill(record, for_later)
        removed.processes += _dismiss(holders)
        mine = _bridges_of(record.id, errors)
        with teardown.short_grace_periods(active=bool(mine)):
            removed.links = len(teardown.links(prefix(record.id)))  # Open vSwitch is about to delete some itself
            deletions = ovs.delete(mine)
            teardown.delete_links(link_group(record.id), prefix(record.id), also=mine)
            removed.processes += _kill(record, set())
            try:
                ovs.finish(deletions)
                removed.bridges = len(mine)
            except UserError as error:
                errors.append(error.what)
        removed.control_groups = teardown.remove_control_groups(control_group(record.id), errors)
        removed.mounts = teardown.unmount_below(record.dir, errors)
        left = teardown.wait_for_links(prefix(record.id), timeout=2)
        if left:
            errors.append(f"links are still there: {', '.join(left[:4])}")
        if errors:
            raise MachineError(f"fabric {record.id} is not all gone: {'; '.join(errors)}", hint="testbed clean again")
        try:
            remove_tree(record.dir)
        except FileNotFoundError:  # somebody else was faster
            pass
        except OSError as error:
            raise MachineError(f"fabric {record.id} is not all gone: {error.strerror}", str(error.filename)) from None
    with suppress(OSError):
        RUN_DIR.rmdir()  # only if this was the last one
    return removed


def _dismiss(holders: list[Process]) -> int:
    """Has the hosts' holders delete their interfaces, all at once, and end; returns how many did."""
    asked = [p for p in holders if p.signal(15)]
    return len(asked) - len(processes.wait_gone(asked, timeout=5))


def _bridges_of(fabric_id: str, errors: list[str]) -> list[str]:
    try:
        return [name for name, ids in ovs.tagged().items() if ids[ovs.TAG] == fabric_id]
    except MachineError as error:
        errors.append(error.what)
        return []


def _kill(record: Record, keep: set[int]) -> int:
    """Kills what is the fabric's, except the pids in `keep`, until no more of it turns up."""
    killed: set[Process] = set()
    spare = keep | processes.ancestors()
    for _ in range(100):
        found = {p for p in _processes(record) if p.pid not in spare and p.alive()}
        if not found:
            return len(killed)
        for process in found:
            process.signal(9)
        killed |= found
        processes.wait_gone(found, timeout=2)
    return len(killed)


def _processes(record: Record) -> set[Process]:
    record = Record.read(record.dir)  # it may still be coming up
    found = set(record.processes.values())
    if record.mark:
        found |= processes.marked(record.mark)
    found |= teardown.in_control_groups(control_group(record.id))
    holders = [p for name, p in record.processes.items() if name.startswith(HOST) and p.alive()]
    return found | processes.in_network_namespaces(processes.network_namespace(p.pid) for p in holders)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One at a time."""
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
    """Not everything could be removed; `removed` is what was."""

    def __init__(self, failures: Sequence[str], removed: list[Removed]) -> None:
        super().__init__("; ".join(failures), hint="mend that, then testbed clean again")
        self.removed = removed


def clean(fabric_id: str | None = None, force: bool = False) -> list[Removed]:
    """Removes dead fabrics, or only this one; `force` also removes it if it is alive.

    One that cannot be removed does not keep the others. Raises UserError.
    """
    if fabric_id is not None:
        record = find(fabric_id)
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
    with _noted(failures, "stray bridges"):
        removed += _remove_stray_bridges()
    if failures:
        raise CleanFailed(failures, removed)
    return removed


@contextmanager
def _noted(failures: list[str], what: str) -> Iterator[None]:
    """Whatever goes wrong with one thing is written down, and must not keep us from the next."""
    try:
        yield
    except UserError as error:
        failures.append(f"{error.what} ({error.where})" if error.where else error.what)
    except Exception as error:
        failures.append(f"{what}: {type(error).__name__}: {error}")


def _remove_unfinished() -> None:
    """Directories of fabrics whose owner died before they had an id."""
    with suppress(FileNotFoundError):
        for name in os.listdir(RUN_DIR):
            new = _NEW.fullmatch(name)
            if new and not Process(int(new[2]), int(new[3])).alive():
                with suppress(OSError):
                    remove_tree(RUN_DIR / name)
        with suppress(OSError):
            RUN_DIR.rmdir()


def _remove_stray_bridges() -> list[Removed]:
    """Bridges of fabrics without a directory: Open vSwitch's data base outlives a reboot, /run does not."""
    known = {record.id for record in fabrics()}
    try:
        stray = {name: ids for name, ids in ovs.tagged().items() if ids[ovs.TAG] not in known and _owner_dead(ids)}
    except MachineError:
        return []
    removed: dict[str, Removed] = {}
    for ids in stray.values():
        removed.setdefault(ids[ovs.TAG], Removed(ids[ovs.TAG])).bridges += 1
    ovs.finish(ovs.delete(list(stray)))
    return list(removed.values())


def owner_tag(owner: Process) -> str:
    """What a bridge says of its owner."""
    return f"{processes.machine()}/{owner.pid}/{owner.start}"


def _owner_dead(ids: dict[str, str]) -> bool:
    try:
        boot, namespace, pid, start = ids.get(ovs.OWNER_TAG, "").split("/")
        owner = Process(int(pid), int(start))
    except ValueError:
        return False  # not written by us
    here = processes.machine()
    return boot != here.partition("/")[0] or (f"{boot}/{namespace}" == here and not owner.alive())
