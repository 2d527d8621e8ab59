"""The engine of this machine alone."""

from __future__ import annotations

import errno
import io
import queue
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import MachineError
from testbed.machines import sweep as of_sweep
from testbed.machines.engine import Ended, Here
from testbed.machines.where import HERE


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
