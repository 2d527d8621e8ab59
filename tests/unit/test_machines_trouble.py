"""What can go wrong with other machines, each with a fake in the place of what goes wrong."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
import queue
import re
import socket
import threading
import zipfile
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from results.store.folder import RunFolder
from testbed.base.errors import InputError, MachineError
from testbed.experiment import loads
from testbed.fabric.fork_server import ControllerSeat
from testbed.machine.processes import machine
from testbed.machines import known, ssh, worker
from testbed.machines import point as of_point
from testbed.machines import processes as of_processes
from testbed.machines import sweep as of_sweep
from testbed.machines.cluster import Cluster
from testbed.machines.engine import Ended, Here
from testbed.machines.identity import content_hash, file_hashes
from testbed.machines.processes import Processes
from testbed.machines.remote import Remote, all_of
from testbed.machines.sweep import OnMachines
from testbed.machines.where import HERE, Machine, Other, where
from tests.parts.machine import wait_until
from tests.parts.small_sweep import SWEEP, Noted

OTHER = Other("lab1", Machine(host="lab1"), "machines.yaml:2: machines[0].host")


# -- points that come home


class Result:
    """A future of Dask's, as far as we ask it."""

    def __init__(self, status: str, told: dict[str, Any]) -> None:
        self.status, self.told, self.ready = status, told, threading.Event()

    def result(self) -> dict[str, Any]:
        assert self.ready.wait(10)
        return self.told


def test_a_result_that_was_lost_is_waited_for_and_holds_up_no_other() -> None:
    engine = Cluster.__new__(Cluster)
    engine.said = queue.SimpleQueue()
    lost, finished, cancelled = Result("lost", {"a": 1}), Result("finished", {"b": 2}), Result("cancelled", {})
    finished.ready.set()
    for number, future in enumerate((cancelled, lost, finished)):
        engine._ended(number, future)
    assert engine.said.get(timeout=10) == Ended(2, {"b": 2})
    lost.ready.set()
    assert engine.said.get(timeout=10) == Ended(1, {"a": 1}) and engine.said.empty()


# -- ssh's own files


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh, "_SYSTEM_KNOWN", ())
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh"


def test_host_keys_are_read_line_by_line(home: Path) -> None:
    keys = [paramiko.ECDSAKey.generate() for _ in range(3)]
    lines = [f"{key.get_name()} {key.get_base64()}" for key in keys]
    file = home / "known_hosts"
    file.write_text(
        f"# ours\n@cert-authority * {lines[0]}\nlab1 {lines[1]}\nlab2 {lines[2]}\n@revoked lab2 {lines[2]}\n"
    )
    client = paramiko.SSHClient()
    assert ssh._learn(client, [str(file)]) == {keys[2].asbytes()}
    assert list(client.get_host_keys().keys()) == ["lab1"]
    refuse = ssh._Refuse({keys[2].asbytes()})
    for key, kind in ((keys[2], ssh._Revoked), (keys[0], ssh._Unknown)):
        with pytest.raises(ssh._Unknown) as error:
            refuse.missing_host_key(client, "lab2", key)
        assert type(error.value) is kind
    file.write_text(f"lab1 {lines[1]}\nlab2 ssh-ed25519 AAAAC\n")
    with pytest.raises(InputError) as wrong:
        ssh.connect(OTHER)
    assert wrong.value.what == "lab1: this host key cannot be read" and wrong.value.where == f"{file}:2"


def test_keys_that_are_not_there_are_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text(f"Host lab1\n  IdentityFile {home}/none\n  IdentityFile {home}/one\n")
    asked: list[dict[str, Any]] = []

    def connect(self: paramiko.SSHClient, *_: Any, **how: Any) -> None:
        asked.append(how)
        raise EOFError

    monkeypatch.setattr(paramiko.SSHClient, "connect", connect)
    for _ in range(2):
        with pytest.raises(MachineError, match="cannot be reached"):
            ssh.connect(OTHER)
        (home / "one").touch()
    assert [(how["key_filename"], how["look_for_keys"]) for how in asked] == [
        (None, True),
        ([f"{home}/one"], False),
    ]


def test_a_file_that_cannot_be_read_is_no_machine_that_cannot_be_reached(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config() -> paramiko.SSHConfig:
        raise PermissionError(13, "Permission denied", str(home / "config"))

    monkeypatch.setattr(ssh, "_config", config)
    with pytest.raises(InputError, match=rf"lab1: {home}/config: Permission denied"):
        ssh.connect(OTHER)


def test_a_proxy_command_does_not_hear_the_terminals_interrupt() -> None:
    command = ssh._Command("cat")
    try:
        assert os.getsid(command.process.pid) == command.process.pid
    finally:
        command.close()
        command.process.wait(10)


# -- machines that are lost, or do not end


class Machines(Noted):
    def warn(self, text: str) -> None:
        self.notes.append(text)


def runner(*names: str) -> tuple[OnMachines, Machines]:
    made, said = OnMachines(), Machines()
    made._progress = said
    made._remotes = {name: _remote(name) for name in names}
    made._places = dict.fromkeys(names, 1)
    return made, said


def _remote(name: str) -> Any:
    one = SimpleNamespace(name=name, other=OTHER, lost=False, end=lambda: False, tidied=lambda: None)
    one.tidy_later = lambda note: setattr(one, "lost", True)
    return one


def test_the_last_machine_is_tidied_up_too() -> None:
    made, _ = runner("lab1")
    with pytest.raises(MachineError, match="no other machine left"):
        made._lost("lab1")
    assert made._remotes["lab1"].lost


def test_a_machine_that_is_not_known_to_have_ended_is_named() -> None:
    made, said = runner("lab1", "lab2", "lab3")
    made._remotes["lab1"].lost = True  # says itself what became of it
    setattr(made._remotes["lab2"], "end", lambda: True)  # noqa: B010
    slow = SimpleNamespace(stop=lambda: None, wait=lambda: 2)
    engine = SimpleNamespace(cancel=lambda: None)
    made._end(engine, slow, list(made._remotes.values()))  # type: ignore[arg-type]
    assert said.notes[0] == "lab3: not known to have ended; testbed clean there"
    assert said.notes[1].startswith("2 points here did not end") and len(said.notes) == 2


def test_a_machine_that_gets_no_more_points_ends_at_once_and_it_is_said_if_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(Remote, "close", lambda self: None)
    monkeypatch.setattr(Remote, "tidy", lambda self: "what was left there is removed")
    for code, says in ((0, []), (1, ["lab1: its worker did not end as it should; what was left there is removed"])):
        one = Remote.__new__(Remote)
        one.name, one._said, one._client = "lab1", "", SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
        asked = threading.Event()
        one._channel = SimpleNamespace(  # type: ignore[assignment]
            shutdown_write=asked.set, status_event=SimpleNamespace(wait=lambda _: True), exit_status=code
        )
        one.end_later(notes.append)
        assert one.lost  # nobody else ends it
        assert one._tidying is not None
        one._tidying.join(60)
        assert asked.is_set() and notes == says
        one.tidied()
        assert notes == says


def test_a_retired_machine_is_ended_while_the_sweep_goes_on() -> None:
    made, _ = runner("lab1", "lab2")
    made._again = deque()
    done: list[str] = []
    made._remotes["lab1"].end_later = lambda note: done.append("ended")  # type: ignore[method-assign]
    engine = SimpleNamespace(retire=lambda machine: done.append(f"{machine} retired"))
    point = SimpleNamespace(values={"seed": 1})
    told = {"machine": "lab1", "problem": {"what": "no room", "where": "", "hint": "", "exit_code": 3}}
    assert made._row(point, Ended(0, told), engine) is None  # type: ignore[arg-type]
    assert done == ["lab1 retired", "ended"] and list(made._again) == [point] and list(made._places) == ["lab2"]


def test_one_machine_under_two_names_is_a_mistake_of_the_file() -> None:
    made = OnMachines(here=2)
    places = [
        ("localhost", machine(), 2),
        ("lab1", "a boot/1", 3),
        ("lab2", "a boot/2", 4),
        ("lab1.net", "a boot/1", 5),
    ]
    made._reached = [
        SimpleNamespace(
            name=name, machine=its, close=lambda: None, other=SimpleNamespace(place=f"machines.yaml:{line}")
        )
        for name, its, line in places
    ]  # type: ignore[misc]
    with pytest.raises(InputError) as error:
        made._each_once()
    said = [(error.value.what, error.value.where), *((p.what, p.where) for p in error.value.also)]
    assert said == [
        ("localhost is this machine, which runs 2 points already", "machines.yaml:2"),
        ("lab1.net is the same machine as lab1", "machines.yaml:5"),
    ]
    made.here = 0  # then it may be reached by SSH
    made._reached = made._reached[:3]
    made._each_once()


def test_an_interrupt_waits_for_no_machine_and_closes_those_that_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, goes_on = [], threading.Event()

    def made(self: Remote, name: str) -> None:
        self.name = name
        if name == "slow":
            assert goes_on.wait(10)
        if name == "broken":
            raise KeyboardInterrupt

    monkeypatch.setattr(Remote, "__init__", made)
    monkeypatch.setattr(Remote, "close", lambda self: closed.append(self.name))
    with pytest.raises(KeyboardInterrupt):
        all_of(Remote, ["good", "broken", "slow"])
    assert closed == ["good"]
    goes_on.set()
    wait_until(lambda: closed == ["good", "slow"], "the slow one's end")


def test_what_a_shell_prints_first_is_not_the_workers() -> None:
    one = Remote.__new__(Remote)
    one.other, one.name = OTHER, "lab1"
    one._channel = SimpleNamespace(settimeout=lambda s: None)  # type: ignore[assignment]
    one._lines = io.StringIO('42\nWelcome\n{"a": 1}\n\n{"versions": {}, "problems": []}\n')  # type: ignore[assignment]
    assert one._hello() == {"versions": {}, "problems": []}


# -- what a point says


def test_a_mistake_of_a_point_is_that_points_error_at_its_place_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = loads(SWEEP + "sweep: {seed: [1, 2]}\n", "mine.yaml")
    made, said = OnMachines(), Machines()
    said.points(2)
    made._experiment, made._progress = sweep, said
    made._folder = SimpleNamespace(append=lambda *_: None, path=Path("/nowhere"))  # type: ignore[assignment]
    made._places = {"lab1": 1, "lab2": 1}
    point = made._point(1)

    def no_image(*_: Any) -> dict[str, Any]:
        raise InputError("no such thing", "point:1: workload[0].flows")

    monkeypatch.setattr(of_point, "measured", no_image)
    told = of_point._told({**made._told(point), "folder": "/nowhere"}, of_point.Heard(), NoControllers().seat("os-ken"))
    row = made._row(point, Ended(1, {**told, "machine": "lab1"}), None)  # type: ignore[arg-type]
    assert row == {"seed": 2, "error": "no such thing (mine.yaml:4: workload[0].flows)"}
    assert made._places == {"lab1": 1, "lab2": 1}  # it is not the machine's fault


@pytest.mark.parametrize("name", ["../../etc", "/etc", "point-2", "point-1/..", "point-1.failed/x", 7])
def test_a_machine_cannot_name_a_folder_elsewhere(name: object) -> None:
    assert not of_sweep._run_of(1, name)
    assert all(of_sweep._run_of(1, f"point-1{end}") for end in ("", ".failed", ".failed-2", ".partial", "-2"))


def test_a_point_that_is_dead_before_it_is_known_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        pid, exitcode = 1 << 30, -9

        def start(self) -> None:
            pass

        def join(self) -> None:
            pass

    processes = Processes.__new__(Processes)
    processes.folder, processes._running = tmp_path, set()
    processes._lock, processes._stopped = threading.Condition(), False
    processes._controllers = NoControllers()  # type: ignore[assignment]
    pipe = multiprocessing.Pipe
    processes._context = SimpleNamespace(Pipe=pipe, Process=lambda **_: Dead())  # type: ignore[assignment]
    monkeypatch.setattr(of_processes, "take_down", lambda owners: [])
    assert processes.run({"library": "os-ken"}) == {"killed": 9} and processes.wait() == 0


class NoControllers:
    """A server of controllers whose seats are empty."""

    def seat(self, library: str) -> ControllerSeat:
        ours, its = socket.socketpair()
        its.close()
        return ControllerSeat(ours)

    def close(self) -> None:
        pass


def test_points_that_do_not_end_are_killed() -> None:
    killed: list[int] = []
    processes = Processes.__new__(Processes)
    processes._lock = threading.Condition()
    processes._controllers = NoControllers()  # type: ignore[assignment]
    processes._running = {type("P", (), {"signal": lambda self, n: killed.append(n)})()}
    assert processes.wait(0.01) == 1 and killed == [9]


# -- by what a point is known


def test_what_a_script_imports_from_beside_it_counts(tmp_path: Path) -> None:
    for name in ("train.py", "model.py", "parts/__init__.py", "parts/deep/layers.py", "data/notes.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 65 << 20)
    step = {"torch": str(tmp_path / "train.py"), "gpu": {"flops": "1TFLOPS", "memory": "1TB/s"}}
    args = [str(tmp_path), str(tmp_path / "notes.txt"), str(tmp_path / "large"), "/" + "x" * 300]
    said = SimpleNamespace(resolved=lambda: {"workload": [{**step, "args": args}]})
    found = {os.path.relpath(path, tmp_path): sha for path, sha in file_hashes(said).items()}  # type: ignore[arg-type]
    assert sorted(found) == ["model.py", "notes.txt", "parts/__init__.py", "parts/deep/layers.py", "train.py"]
    assert content_hash(str(tmp_path / "none")) == "" != content_hash("/dev/null") != found["train.py"]


def test_all_traces_that_begin_so_count(tmp_path: Path) -> None:
    for name in ("gpt.0.et", "gpt.1.et", "bert.0.et"):
        (tmp_path / name).write_text(name)
    for named, count in ((tmp_path / "gpt", 2), (tmp_path, 3)):
        said = SimpleNamespace(resolved=lambda named=named: {"chakra": str(named)})
        assert len(file_hashes(said)) == count  # type: ignore[arg-type]


def test_every_key_that_names_a_file_is_known_to_name_one() -> None:
    """Those whose text begins at the experiment file's folder."""
    from testbed.experiment.reference import __file__ as page  # what documents them

    root = Path(page).parents[1] / "experiment"
    texts = [path.read_text() for path in root.rglob("*.py")]
    made = {name for text in texts for name in _validated(text)}
    from testbed.machines.identity import FILE_KEYS

    assert made and made <= set(FILE_KEYS)


def _validated(text: str) -> list[str]:
    """Fields whose validator is `_from_the_files_folder`."""
    fields = re.findall(r"@field_validator\(([^)]*)\)\n    @classmethod\n    def _from_the_files_folder", text)
    return [name for one in fields for name in re.findall(r'"(\w+)"', one)]


def test_an_old_fabricd_makes_a_machine_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hardware import client

    fabricd, source = tmp_path / "fabricd", tmp_path / "port.c"
    for path in (fabricd, source):
        path.touch()
    monkeypatch.setattr(client, "BINARY", fabricd)
    monkeypatch.setattr(client, "CHECKOUT", tmp_path)
    monkeypatch.setattr(client, "newer_source", lambda binary: source)
    assert [one["what"] for one in worker._old_fabricd()] == [f"fabricd: older than {source}"]


# -- earlier starts, and lists of machines


def test_a_sweep_that_still_runs_is_no_earlier_start(tmp_path: Path) -> None:
    runs = RunFolder.create("s", tmp_path / "s")
    runs.append(known.RUN_POINTS, {})
    ended = RunFolder.create("s", tmp_path / "s")
    ended.append(known.RUN_POINTS, {})
    ended.fail({"what": "x"})
    ours = RunFolder.create("s", tmp_path / "s")
    assert known.earlier(ours, "s") == [ended.path]
    state = json.loads((runs.path / "state.json").read_text())
    (runs.path / "state.json").write_text(json.dumps({**state, "pid": 1 << 30}))  # killed
    assert set(known.earlier(ours, "s")) == {ended.path, runs.path}
    assert known.done_in(tmp_path / "gone") == {}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("machines:\n  - {local: 1}\n  - {host: here}\n", 3, "is what a sweep calls this machine"),
        ("machines:\n  - {host: a}\n  - {host: a, port: 22}\n", 3, "a stands twice"),
    ],
)
def test_a_machine_counts_once(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = tmp_path / "machines.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=what) as error:
        where(str(path))
    assert error.value.where.startswith(f"{path}:{line}: machines[1]")


# -- the engine of this machine alone


class Slow:
    """Processes whose points last until they are told to end."""

    def __init__(self) -> None:
        self.began: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.go = {name: threading.Event() for name in "abc"}

    def run(self, point: dict[str, Any]) -> dict[str, Any]:
        self.began.put(point["run"])
        assert self.go[point["run"]].wait(60)
        return {"row": point["run"]}


def test_points_here_run_as_far_as_memory_reaches() -> None:
    slow = Slow()
    here = Here(slow, 100)  # type: ignore[arg-type]
    for number, (name, memory) in enumerate({"a": 60, "b": 30, "c": 20}.items()):
        here.submit(number, {"run": name}, memory)
    assert {slow.began.get(timeout=60) for _ in range(2)} == {"a", "b"}  # these two at a time
    slow.go["b"].set()
    assert slow.began.get(timeout=60) == "c"
    for name in "ac":
        slow.go[name].set()
    assert {here.said.get(timeout=60).number for _ in range(3)} == {0, 1, 2}  # type: ignore[union-attr]


def test_points_of_lower_numbers_run_first_here() -> None:
    slow = Slow()
    here = Here(slow, 100)  # type: ignore[arg-type]
    here.submit(0, {"run": "a"}, 60)
    assert slow.began.get(timeout=60) == "a"
    here.submit(1, {"run": "b"}, 80)
    here.submit(2, {"run": "c"}, 30)  # there is room for it, but it is not its turn
    slow.go["a"].set()
    assert here.said.get(timeout=60) == Ended(0, {"row": "a", "machine": HERE})
    assert slow.began.get(timeout=60) == "b"
    slow.go["b"].set()
    assert slow.began.get(timeout=60) == "c"
    slow.go["c"].set()
    assert {here.said.get(timeout=60).number for _ in range(2)} == {1, 2}  # type: ignore[union-attr]


def test_after_cancel_nothing_begins_here_that_has_waited() -> None:
    slow = Slow()
    here = Here(slow, 100)  # type: ignore[arg-type]
    here.submit(0, {"run": "a"}, 100)
    assert slow.began.get(timeout=60) == "a"
    here.submit(1, {"run": "b"}, 100)
    waiting = next(thread for thread in threading.enumerate() if thread.name == "point-1")
    here.cancel()
    slow.go["a"].set()
    assert here.said.get(timeout=60) == Ended(0, {"row": "a", "machine": HERE})
    waiting.join(60)
    assert not waiting.is_alive() and slow.began.empty() and here.said.empty()


def test_what_goes_wrong_before_a_point_has_a_process_is_its_error() -> None:
    def run(_point: dict[str, Any]) -> dict[str, Any]:
        raise BlockingIOError("no process left")

    here = Here(SimpleNamespace(run=run), 100)  # type: ignore[arg-type]
    here.submit(0, {"run": "a"}, 1)
    assert here.said.get(timeout=60) == Ended(0, {}, "BlockingIOError: no process left")


def test_a_disk_that_is_full_here_ends_the_sweep_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: zipfile.ZipFile, folder: Path) -> None:
        (folder / "half").mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    files = io.BytesIO()
    zipfile.ZipFile(files, "w").close()
    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(MachineError) as error:
        of_sweep._brought_home(files.getvalue(), tmp_path / "point-0")
    assert error.value.what == "a point's run cannot be written: No space left on device"
    assert error.value.where == str(tmp_path / "point-0") and not (tmp_path / "point-0").exists()
