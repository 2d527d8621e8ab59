"""Points on other machines: what they say, how they come home, and by what they are known."""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.fabric.fork_server import ControllerSeat
from testbed.machines import known, worker
from testbed.machines import point as of_point
from testbed.machines import processes as of_processes
from testbed.machines.engine import Ended
from testbed.machines.identity import content_hash, file_hashes
from testbed.machines.processes import Processes
from testbed.machines.sweep import OnMachines
from tests.parts.small_sweep import SWEEP, Noted

# -- what a point says


def test_a_mistake_of_a_point_is_that_points_error_at_its_place_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = loads(SWEEP + "sweep: {seed: [1, 2]}\n", "mine.yaml")
    made, said = OnMachines(), Noted()
    said.points(2)
    made._experiment, made._progress = sweep, said
    made._folder = SimpleNamespace(append=lambda *_: None, path=Path("/nowhere"))  # type: ignore[assignment]
    made._places = {"lab1": 1, "lab2": 1}
    point = made._point(1)

    def no_image(*_: Any) -> dict[str, Any]:
        raise InputError("no such thing", "point:1: workload[0].flows")

    monkeypatch.setattr(of_point, "measured", no_image)
    told = of_point._read_and_run(
        {**made._order(point), "folder": "/nowhere"}, of_point.Notices(), NoControllers().seat("os-ken")
    )
    row = made._row(point, Ended(1, told, "lab1"), None)  # type: ignore[arg-type]
    assert row == {"seed": 2, "error": "no such thing (mine.yaml:4: workload[0].flows)"}
    assert made._places == {"lab1": 1, "lab2": 1}  # it is not the machine's fault


@pytest.mark.parametrize("name", ["../../etc", "/etc", "point-2", "point-1/..", "point-1.failed/x", 7])
def test_a_machine_cannot_name_a_folder_elsewhere(name: object) -> None:
    assert not known.run_of(1, name)
    assert all(known.run_of(1, f"point-1{end}") for end in ("", ".failed", ".failed-2", ".partial", "-2"))


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
    import testbed.experiment

    root = Path(testbed.experiment.__file__).parent
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
