"""Journals, liveness, and cleaning up: all that is a dead fabric's, and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import fabric_ids, marked, run, strangers, traces, wait_until

from testbed import ovs, ownership, processes
from testbed.errors import UserError
from testbed.ownership import Journal, Record
from testbed.processes import Process

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="needs root and TAP")


@contextmanager
def running(*command: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command or ("sleep", "600"), **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def dead() -> Process:
    """The owner of a fabric that has died."""
    with running() as process:
        return Process.of(process.pid)


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
        before = Process(child.pid, Process.of(child.pid).start - 1)
        assert not before.alive()
        assert not before.signal(signal.SIGKILL)
        assert child.poll() is None


def test_marked_processes_are_found_and_no_others() -> None:
    mark = f"test-{secrets.token_hex(4)}"
    with (
        running(env={**os.environ, processes.MARK: mark}) as mine,
        running(env={**os.environ, processes.MARK: mark + "0"}),
    ):
        wait_until(lambda: processes.marked(mark) == {Process.of(mine.pid)}, "only the process with this very mark")


# -- journals


def record_at(directory: Path, *lines: object) -> Record:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (directory / "journal").write_text(text)
    return Record.read(directory)


def test_a_journal_tells_owner_mark_and_processes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    me, other = Process.of(os.getpid()), Process(1, 2)
    journal.own(other)
    journal.write("mark", mark="abcd-1")
    journal.made({"fabricd": other, "host h0": me})
    journal.own(me)
    record = Record.read(tmp_path)
    assert (record.owner, record.mark, record.processes) == (me, "abcd-1", {"fabricd": other, "host h0": me})
    assert record.state == "alive"
    assert not record.standing


@given(cut=st.integers(min_value=0))
def test_a_journal_that_is_cut_off_tells_what_it_had(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(directory / "journal")
    journal.own(Process.of(os.getpid()))
    whole_lines = journal.path.stat().st_size
    journal.made({"fabricd": Process(7, 8)})
    text = journal.path.read_bytes()
    journal.path.write_bytes(text[: whole_lines + cut % (len(text) - whole_lines)])
    record = Record.read(directory)
    assert record.state == "alive"
    assert record.processes in ({}, {"fabricd": Process(7, 8)})


def test_lines_are_on_disk_when_write_returns(tmp_path: Path) -> None:
    """A process that dies at once after `write` has left its line."""
    program = (
        "import os, pathlib, testbed.ownership as o\n"
        f"o.Journal(pathlib.Path({str(tmp_path / 'journal')!r})).write('makes', what='links')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[1], check=False)
    assert json.loads((tmp_path / "journal").read_text()) == {"do": "makes", "what": "links"}


def test_liveness(tmp_path: Path) -> None:
    me, here = Process.of(os.getpid()).to_dict(), processes.machine()
    boot, namespace = here.split("/")
    assert record_at(tmp_path, {"do": "owner", **me, "machine": here}).state == "alive"
    assert record_at(tmp_path, {"do": "owner", **dead().to_dict(), "machine": here}).state == "dead"
    assert record_at(tmp_path, {"do": "owner", **me, "machine": f"before/{namespace}"}).state == "dead"
    assert record_at(tmp_path, {"do": "owner", **me, "machine": f"{boot}/1"}).state == "elsewhere"
    assert record_at(tmp_path, "", "not json", {"do": "owner"}).state == "dead"


# -- fabrics


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "run"
    monkeypatch.setattr(ownership, "RUN_DIR", directory)
    return directory


def test_ids_are_four_hexadecimal_digits_that_nothing_uses(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = iter(["ab12", "ab12", "cd34", "ef56"])
    monkeypatch.setattr(secrets, "token_hex", lambda n: next(offered) if n == 2 else "0" * 16)
    run("ip", "link", "add", "rbcd34-n0", "type", "veth", "peer", "name", "rbcd34-n1")
    try:
        owner = Process.of(os.getpid())
        assert [ownership.create(owner)[0].id for _ in range(2)] == ["ab12", "ef56"]
    finally:
        run("ip", "link", "delete", "rbcd34-n0")
    assert (run_dir / "ab12").stat().st_mode & 0o777 == 0o700


def test_many_fabrics_at_once_get_different_ids(run_dir: Path) -> None:
    ids: list[str] = []
    owner = Process.of(os.getpid())

    def make() -> None:
        for _ in range(10):
            record, journal = ownership.create(owner)
            journal.close()
            ids.append(record.id)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 40
    assert {r.id for r in ownership.fabrics() if r.state == "alive"} == set(ids)


def test_find(run_dir: Path) -> None:
    with pytest.raises(UserError, match="no fabric is up"):
        ownership.find(None)
    first, _ = ownership.create(Process.of(os.getpid()))
    ownership.create(dead())
    assert ownership.find(None).id == ownership.find(first.id).id == first.id
    second, _ = ownership.create(Process.of(os.getpid()))
    with pytest.raises(UserError, match="several") as error:
        ownership.find(None)
    assert first.id in error.value.hint
    assert second.id in error.value.hint
    with pytest.raises(UserError, match="no fabric zzzz"):
        ownership.find("zzzz")


# -- cleaning


def open_tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH14x", name.encode(), 0x1002))
    return fd


@contextmanager
def leftovers(owner: Process) -> Iterator[Record]:
    """A fabric with one of everything: links, bridges, marked and grouped processes, a held namespace, a mount."""
    record, journal = ownership.create(owner)
    fabric_id = record.id
    taps = [f"rb{fabric_id}-0-1", f"rb{fabric_id}-0-2"]
    program = (
        "import os, sys, time, fcntl, struct\n"
        f"for name in {taps!r}:\n"
        "    fcntl.ioctl(os.open('/dev/net/tun', 2), 0x400454CA, struct.pack('16sH14x', name.encode(), 0x1002))\n"
        "print('open', flush=True)\ntime.sleep(600)"
    )
    own_mark = {**os.environ, processes.MARK: record.mark}
    started: list[subprocess.Popen[bytes]] = []
    fabricd = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    started.append(fabricd)
    assert fabricd.stdout is not None
    assert fabricd.stdout.readline() == b"open\n"
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    started.append(holder)
    wait_until(lambda: processes.network_namespace(holder.pid) != processes.network_namespace(os.getpid()), "namespace")
    journal.made({"fabricd": Process.of(fabricd.pid), "host h0": Process.of(holder.pid)})
    journal.close()
    started.append(subprocess.Popen(["sleep", "600"], env=own_mark))
    started.append(subprocess.Popen(["nsenter", f"--net=/proc/{holder.pid}/ns/net", "sleep", "600"]))
    wait_until(
        lambda: processes.network_namespace(started[-1].pid) == processes.network_namespace(holder.pid), "nsenter"
    )
    grouped = subprocess.Popen(["sleep", "600"])
    started.append(grouped)
    for hierarchy in ("cpu", "memory", "unified"):
        group = Path("/sys/fs/cgroup", hierarchy, f"railbed-{fabric_id}", "r0")
        if group.parent.parent.is_dir():
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text(str(grouped.pid))
    for tap in taps:
        run("ip", "link", "set", tap, "group", str(ownership.link_group(fabric_id)), "up")
    bridge = ovs.Bridge(f"rb{fabric_id}-s0", 0x99, tuple(taps))
    ovs.finish(ovs.create([bridge], {ovs.TAG: fabric_id, ovs.OWNER_TAG: ownership.owner_tag(owner)}))
    (record.dir / "mounted").mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", str(record.dir / "mounted"))
    try:
        yield record
        assert all(p.poll() is not None or p.wait(5) for p in started), "processes are left"
    finally:
        for process in started:
            process.kill()
            process.wait()
        subprocess.run(["ovs-vsctl", "--if-exists", "del-br", bridge.name], check=False)
        subprocess.run(["umount", str(record.dir / "mounted")], capture_output=True, check=False)
        for path in Path("/sys/fs/cgroup").glob(f"*/railbed-{fabric_id}"):
            for group in (*path.glob("*/"), path):
                group.rmdir()
        subprocess.run(["rm", "-rf", str(record.dir)], check=False)


def test_clean_removes_all_of_a_dead_fabric_and_nothing_of_others() -> None:
    with strangers() as all_there, leftovers(dead()) as record:
        (removed,) = ownership.clean(record.id)
        assert traces(record.id) == []
        assert removed.to_dict() | {"control_groups": 0} == {
            "id": record.id, "processes": 5, "bridges": 1, "links": 3, "control_groups": 0, "mounts": 1,
        }  # fmt: skip
        all_there()


def test_a_fabric_in_use_is_cleaned_only_by_force() -> None:
    with running() as owner, leftovers(Process.of(owner.pid)) as record:
        before = traces(record.id)
        with pytest.raises(UserError, match=f"in use by process {owner.pid}"):
            ownership.clean(record.id)
        assert record.id not in [r.id for r in ownership.clean()]
        assert traces(record.id) == before
        ownership.clean(record.id, force=True)
        assert traces(record.id) == []
        assert owner.poll() is None, "the owner itself is not the fabric's"


def test_two_cleans_at_once() -> None:
    with leftovers(dead()) as record:
        threads = [threading.Thread(target=ownership.undo, args=(record,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert traces(record.id) == []


def test_a_strangers_bridge_with_our_name_stays() -> None:
    record, _ = ownership.create(dead())
    name = f"rb{record.id}-s0"
    run("ovs-vsctl", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev")
    try:
        with pytest.raises(UserError, match="links are still there"):
            ownership.clean(record.id)  # it says so: it cannot know whose that is
        assert name in run("ovs-vsctl", "list-br").split()
    finally:
        run("ovs-vsctl", "del-br", name)
        ownership.clean(record.id)
    assert traces(record.id) == []


def test_a_strangers_link_in_our_group_stays() -> None:
    name = f"rbm{secrets.token_hex(3)}"
    with leftovers(dead()) as record:
        run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}b")
        try:
            run("ip", "link", "set", name, "group", str(ownership.link_group(record.id)))
            ownership.clean(record.id)
            assert run("ip", "-o", "link", "show", name)
            assert traces(record.id) == []
        finally:
            run("ip", "link", "delete", name)


@pytest.mark.parametrize(("owner", "stays"), [("dead", False), ("alive", True), ("elsewhere", True), ("", True)])
def test_bridges_that_outlived_their_directory(owner: str, stays: bool) -> None:
    """As after a reboot: Open vSwitch's data base is kept, /run is not."""
    fabric_id = next(i for i in iter(lambda: secrets.token_hex(2), "") if i not in fabric_ids())
    boot, namespace = processes.machine().split("/")
    tag = {
        "dead": ownership.owner_tag(dead()),
        "alive": ownership.owner_tag(Process.of(os.getpid())),
        "elsewhere": f"{boot}/1{namespace}/1/1",
        "": "",
    }[owner]
    name = f"rb{fabric_id}-s0"
    ovs.finish(ovs.create([ovs.Bridge(name, 0x77, ())], {ovs.TAG: fabric_id, ovs.OWNER_TAG: tag}))
    try:
        ownership.clean()
        assert (name in run("ovs-vsctl", "list-br").split()) == stays
    finally:
        run("ovs-vsctl", "--if-exists", "del-br", name)


def test_a_directory_whose_maker_died_before_it_had_an_id(run_dir: Path) -> None:
    gone, me = dead(), Process.of(os.getpid())
    for owner in (gone, me):
        (run_dir / f".new-ab12-{owner.pid}-{owner.start}").mkdir(parents=True)
    ownership.clean()
    assert os.listdir(run_dir) == [f".new-ab12-{me.pid}-{me.start}"]


def test_clean_removes_folders_however_deep_and_goes_on_past_what_it_cannot_remove(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabrics = sorted((ownership.create(dead())[0] for _ in range(3)), key=lambda record: record.id)
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
    record, _ = ownership.create(dead())
    environment = {**os.environ, processes.MARK: record.mark}
    command = [sys.executable, "-m", "testbed", "clean", record.id]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[1], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert traces(record.id) == []
    assert marked(record.id) == []
