"""Journals, liveness, and cleaning up: all that is a dead fabric's, and nothing else."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import UserError
from testbed.containers.bundle import first_id
from testbed.machine import ownership, processes
from testbed.machine.lockfile import LockFile
from testbed.machine.ownership import Journal, Record
from testbed.machine.processes import Process
from tests.parts.machine import ROOT, marked, run, strangers, traces, wait_until


@contextmanager
def running(*command: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command or ("sleep", "600"), **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def create(alive: bool) -> Record:
    """A fabric of ours, or one whose owner has died."""
    record, journal, lock = ownership.create()
    journal.close()
    if not alive:
        lock.release()
    return record


# -- processes


def test_a_process_is_alive_until_it_ends_also_as_a_zombie() -> None:
    with running() as child:
        me = Process.of(child.pid)
        assert me.alive()
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not me.alive(), "the killed process counts as dead before it is reaped")
        assert Path(f"/proc/{child.pid}").exists()


def test_a_later_process_of_the_same_pid_is_another_one() -> None:
    with running() as child:
        before = Process(child.pid, Process.of(child.pid).start - 5)
        assert not before.alive()
        assert not before.signal(signal.SIGKILL)
        assert child.poll() is None


def test_marked_processes_are_found_and_no_others() -> None:
    mark = f"test-{secrets.token_hex(4)}"
    with (
        running(env={**os.environ, processes.MARK: mark}) as mine,
        running(env={**os.environ, processes.MARK: mark + "0"}),
    ):
        wait_until(
            lambda: processes.belonging(mark, ()) == {Process.of(mine.pid)}, "only the process with this very mark"
        )


def test_what_asks_open_vswitch_is_found_though_nobody_waits_for_it_any_more() -> None:
    """A tool of Open vSwitch waits for minutes on a server that does not answer; who has started it may be killed."""
    record = create(alive=False)
    directory = record.dir / "ovs"
    directory.mkdir()
    asks = "import sys; from testbed.fabric.bringup import own_ovs; from testbed.machine import ownership as o;"
    asks += "own_ovs(o.Record.read(o.RUN_DIR / sys.argv[1])).delete(['sw0'])"
    with (
        socket.socket(socket.AF_UNIX) as silent,
        running(sys.executable, "-c", asks, record.id, cwd=ROOT) as asking,
    ):
        silent.bind(str(directory / "db.sock"))
        silent.listen()
        tools: list[Process] = []
        wait_until(lambda: tools.extend(_children(asking.pid, "ovs-vsctl")) or tools, "the tool that asks")
        asking.kill()
        asking.wait()
        assert [tool.alive() for tool in tools] == [True]
        try:
            assert ownership.clean(record.id)[0].processes == 1
            assert not tools[0].alive()
        finally:
            tools[0].signal(signal.SIGKILL)


def _children(pid: int, program: str) -> list[Process]:
    """Of a process with one thread, those that run this program by now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Process.of(int(c)) for c in children if Path("/proc", c, "comm").read_text().strip() == program]


# -- journals


def record_at(directory: Path, *lines: object) -> Record:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (directory / "journal").write_text(text)
    return Record.read(directory)


def test_a_journal_tells_owner_mark_and_processes(tmp_path: Path) -> None:
    journal, lock = Journal(tmp_path / "journal"), LockFile(tmp_path / "lock")
    me, other = Process.of(os.getpid()), Process(1, 2)
    journal.own(other, lock)
    journal.write("mark", mark="abcd-1")
    journal.made({"fabricd": other, "host h0": me})
    journal.own(me, lock)
    record = Record.read(tmp_path)
    assert (record.owner, record.mark, record.processes) == (me, "abcd-1", {"fabricd": other, "host h0": me})
    assert record.state == "alive"
    assert not record.standing
    lock.release()
    assert record.state == "dead"


@given(cut=st.integers(min_value=0))
def test_a_journal_that_is_cut_off_tells_what_it_had(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(directory / "journal")
    lock = LockFile(directory / "lock")
    journal.own(Process.of(os.getpid()), lock)
    whole_lines = journal.path.stat().st_size
    journal.made({"fabricd": Process(7, 8)})
    text = journal.path.read_bytes()
    journal.path.write_bytes(text[: whole_lines + cut % (len(text) - whole_lines)])
    record = Record.read(directory)
    assert record.state == "alive"
    assert record.processes in ({}, {"fabricd": Process(7, 8)})
    lock.release()


def test_lines_are_on_disk_when_write_returns(tmp_path: Path) -> None:
    """A process that dies at once after `write` has left its line."""
    program = (
        "import os, pathlib, testbed.machine.ownership as o\n"
        f"o.Journal(pathlib.Path({str(tmp_path / 'journal')!r})).write('makes', what='links')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False)
    assert json.loads((tmp_path / "journal").read_text()) == {"do": "makes", "what": "links"}


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "run"
    monkeypatch.setattr(ownership, "RUN_DIR", directory)
    return directory


_OWNER = """
import os, sys, time
from pathlib import Path
from testbed.machine import ownership
ownership.RUN_DIR = Path(sys.argv[1])
record, journal, lock = ownership.create()
print(record.id, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "namespaces",
    [
        [],
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
        ["unshare", "--time", "--fork", "--kill-child", "--boottime", "100000", "--monotonic", "100000"],
    ],
    ids=["here", "pid namespace", "time namespace"],
)
def test_an_owner_is_known_to_live_from_wherever_one_looks(run_dir: Path, namespaces: list[str]) -> None:
    """Pids and start times differ between namespaces; its lock does not."""
    look = (
        "import sys; from pathlib import Path; from testbed.machine import ownership\n"
        "ownership.RUN_DIR = Path(sys.argv[1]); print(ownership.fabrics()[0].state, len(ownership.clean()))"
    )
    root = Path(__file__).parents[2]
    begin = [*namespaces, sys.executable, "-c", _OWNER, str(run_dir)]
    with running(*begin, stdout=subprocess.PIPE, cwd=root) as owner:
        assert owner.stdout is not None
        fabric_id = owner.stdout.readline().decode().strip()
        (record,) = ownership.fabrics()
        assert (record.id, record.state) == (fabric_id, "alive")
        others = [["unshare", "--pid", "--fork", "--mount-proc"]]
        others.append(["unshare", "--time", "--fork", "--boottime", "70000", "--monotonic", "70000"])
        for other in others:
            assert run(*other, sys.executable, "-c", look, str(run_dir), cwd=root) == "alive 0\n"
    wait_until(lambda: record.state == "dead", "its owner's end is seen")
    (removed,) = ownership.clean()
    assert removed.id == fabric_id


def test_a_process_is_the_same_in_another_time_namespace() -> None:
    me = Process.of(os.getpid())
    program = (
        "import sys; from testbed.machine.processes import Process\n"
        "print(Process(int(sys.argv[1]), int(sys.argv[2])).alive(), Process.of(int(sys.argv[1])).start)"
    )
    for shift in ("86400", "-100"):
        said = run(
            "unshare", "--time", "--fork", "--boottime", shift,
            sys.executable, "-c", program, str(me.pid), str(me.start), cwd=Path(__file__).parents[2],
        )  # fmt: skip
        alive, start = said.split()
        assert alive == "True" and abs(int(start) - me.start) <= 1


def test_a_fabric_of_a_testbed_without_locks_is_judged_by_its_owners_pid(tmp_path: Path) -> None:
    me, here = Process.of(os.getpid()).to_dict(), processes.machine()
    boot = here.partition("/")[0]
    assert record_at(tmp_path, {"do": "owner", **me, "machine": here}).state == "alive"
    assert record_at(tmp_path, {"do": "owner", "pid": me["pid"], "start": 1, "machine": here}).state == "dead"
    assert record_at(tmp_path, {"do": "owner", **me, "machine": f"{boot}/1"}).state == "alive"
    assert record_at(tmp_path, "", "not json", {"do": "owner"}).state == "dead"


# -- fabrics


def test_ids_are_four_hexadecimal_digits_that_nothing_uses(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = iter(["ab12", "ab12", "cd34", "ef56"])
    monkeypatch.setattr(secrets, "token_hex", lambda n: next(offered) if n == 2 else "0" * 16)
    used = next(Path("/sys/fs/cgroup").glob("*/cgroup.procs")).parent / "railbed-cd34"
    used.mkdir()
    try:
        assert [create(alive=True).id for _ in range(2)] == ["ab12", "ef56"]
    finally:
        used.rmdir()
    assert (run_dir / "ab12").stat().st_mode & 0o777 == 0o700


def test_no_two_fabrics_have_the_same_range_of_user_ids(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of another fabric are strangers: no signal reaches them, and no file is theirs."""
    offered = iter(["0abc", "1abc", "fabc", "0abd"])
    monkeypatch.setattr(secrets, "token_hex", lambda n: next(offered) if n == 2 else "0" * 16)
    made = [create(alive=True).id for _ in range(2)]
    assert made == ["0abc", "0abd"]
    first = [first_id(name) for name in made]
    assert first[0] and first[1] and abs(first[0] - first[1]) >= 65536


def test_many_fabrics_at_once_get_different_ids(run_dir: Path) -> None:
    ids: list[str] = []

    def make() -> None:
        for _ in range(10):
            record, journal, lock = ownership.create()
            locks.append(lock)
            journal.close()
            ids.append(record.id)

    locks: list[LockFile] = []
    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 40
    assert {r.id for r in ownership.fabrics() if r.state == "alive"} == set(ids)
    for lock in locks:
        lock.release()


def test_find(run_dir: Path) -> None:
    with pytest.raises(UserError, match="no fabric is up"):
        ownership.find(None)
    first = create(alive=True)
    create(alive=False)
    assert ownership.find(None).id == ownership.find(first.id).id == first.id
    second = create(alive=True)
    with pytest.raises(UserError, match="several") as error:
        ownership.find(None)
    assert first.id in error.value.hint
    assert second.id in error.value.hint
    with pytest.raises(UserError, match="no fabric zzzz"):
        ownership.find("zzzz")


def stand(record: Record) -> LockFile:
    """As `testbed up` leaves it: its fabricd is its owner."""
    lock, me = LockFile(record.dir / "fabricd.lock"), processes.Process.of(os.getpid())
    record.journal.made({"fabricd": me})
    record.journal.own(me, lock)
    return lock


def test_the_fabric_of_a_run_is_meant_only_where_none_was_left_up(run_dir: Path) -> None:
    runs, left_up = [create(alive=True) for _ in range(2)], [create(alive=True) for _ in range(2)]
    locks = [stand(left_up[0])]
    assert ownership.find(None).id == left_up[0].id
    locks.append(stand(left_up[1]))
    with pytest.raises(UserError, match="several") as error:
        ownership.find(None)
    first, second = sorted(record.id for record in left_up)
    assert error.value.hint == f"such as --fabric {first} (fabrics that are up: {first}, {second})"
    assert ownership.find(runs[0].id).id == runs[0].id
    for lock in locks:
        lock.release()


# -- cleaning


def namespace(process: subprocess.Popen[bytes]) -> int:
    return processes.network_namespace(process.pid)


@contextmanager
def leftovers(alive: bool = False) -> Iterator[Record]:
    """A fabric with one of everything: marked and grouped processes, a held namespace, a mount."""
    record, journal, lock = ownership.create()
    fabric_id = record.id
    own_mark = {**os.environ, processes.MARK: record.mark}
    started: list[subprocess.Popen[bytes]] = []
    fabricd = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    started.append(fabricd)
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    started.append(holder)
    for each in (holder, fabricd):
        wait_until(lambda each=each: namespace(each) != processes.network_namespace(os.getpid()), "namespace")  # type: ignore[misc]
    journal.made({"fabricd": Process.of(fabricd.pid), "host h0": Process.of(holder.pid)})
    journal.close()
    started.append(subprocess.Popen(["sleep", "600"], env=own_mark))
    for each in (holder, fabricd):
        started.append(subprocess.Popen(["nsenter", f"--net=/proc/{each.pid}/ns/net", "sleep", "600"]))
        wait_until(lambda each=each: namespace(started[-1]) == namespace(each), "nsenter")  # type: ignore[misc]
    grouped = subprocess.Popen(["sleep", "600"])
    started.append(grouped)
    for hierarchy in ("cpu", "memory", "unified"):
        group = Path("/sys/fs/cgroup", hierarchy, f"railbed-{fabric_id}", "r0")
        if group.parent.parent.is_dir():
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text(str(grouped.pid))
    (record.dir / "mounted").mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", str(record.dir / "mounted"))
    if not alive:
        lock.release()
    try:
        yield record
        assert all(p.poll() is not None or p.wait(60) for p in started), "processes are left"
    finally:
        for process in started:
            process.kill()
            process.wait()
        lock.release()
        subprocess.run(["umount", str(record.dir / "mounted")], capture_output=True, check=False)
        for path in Path("/sys/fs/cgroup").glob(f"*/railbed-{fabric_id}"):
            for group in (*path.glob("*/"), path):
                group.rmdir()
        subprocess.run(["rm", "-rf", str(record.dir)], check=False)


def test_clean_removes_all_of_a_dead_fabric_and_nothing_of_others() -> None:
    with strangers() as all_there, leftovers() as record:
        (removed,) = ownership.clean(record.id)
        assert traces(record.id) == []
        assert removed.to_dict() | {"control_groups": 0} == {
            "id": record.id, "processes": 6, "control_groups": 0, "mounts": 1,
        }  # fmt: skip
        all_there()


def test_a_fabric_in_use_is_cleaned_only_by_force() -> None:
    with leftovers(alive=True) as record:
        before = traces(record.id)
        with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
            ownership.clean(record.id)
        assert record.id not in [r.id for r in ownership.clean()]
        assert traces(record.id) == before
        ownership.clean(record.id, force=True)
        assert traces(record.id) == []


def test_two_cleans_at_once() -> None:
    with leftovers() as record:
        threads = [threading.Thread(target=ownership.undo, args=(record,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert traces(record.id) == []


def test_a_directory_whose_maker_died_before_it_had_an_id(run_dir: Path) -> None:
    (run_dir / ".new-ab12").mkdir(parents=True)
    alive = create(alive=True)
    ownership.clean()
    assert os.listdir(run_dir) == [alive.id]


def test_clean_removes_folders_however_deep_and_goes_on_past_what_it_cannot_remove(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabrics = sorted((create(alive=False) for _ in range(3)), key=lambda record: record.id)
    at = fabrics[0].dir
    for _ in range(1100):
        at = at / "d"
        at.mkdir()
    whole = ownership.undo

    def undo(record: Record) -> ownership.Removed:
        if record.id == fabrics[1].id:
            raise PermissionError(1, "not permitted", "its file")
        return whole(record)

    monkeypatch.setattr(ownership, "undo", undo)
    with pytest.raises(ownership.CleanFailed, match=f"fabric {fabrics[1].id}: PermissionError.*its file") as failed:
        ownership.clean()
    assert [removed.id for removed in failed.value.removed] == [fabrics[0].id, fabrics[2].id]
    assert os.listdir(run_dir) == [fabrics[1].id]


def test_clean_inside_a_fabric_does_not_kill_itself() -> None:
    """A `testbed clean` started from a host's shell carries the fabric's mark."""
    record = create(alive=False)
    environment = {**os.environ, processes.MARK: record.mark}
    command = [sys.executable, "-m", "testbed", "clean", record.id]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert traces(record.id) == []
    assert marked(record.id) == []


def test_clean_in_another_pid_namespace_leaves_what_it_cannot_reach(run_dir: Path) -> None:
    """A fabric whose owner is dead, but not all of its processes: their pids mean nothing there."""
    clean = (
        "import sys; from pathlib import Path; from testbed.machine import ownership\n"
        "ownership.RUN_DIR, ownership._GONE_S = Path(sys.argv[1]), 0.2\n"
        "try: print(len(ownership.clean()))\n"
        "except ownership.CleanFailed as failed: print(failed.what)"
    )
    there = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", clean, str(run_dir)]
    record = create(alive=False)
    living = LockFile(record.dir / f"1{ownership.PROCESSES}")
    with running(env={**os.environ, processes.MARK: record.mark}, pass_fds=[living.fd]) as left:
        living.release()
        said = run(*there, cwd=Path(__file__).parents[2])
        assert said == f"fabric {record.id} still has processes in another pid namespace, out of reach from here\n"
        assert record.dir.exists()
        left.kill()
        wait_until(lambda: not record.running, "its end is seen by the lock")
        assert run(*there, cwd=Path(__file__).parents[2]) == "1\n"
    assert not record.dir.exists()
