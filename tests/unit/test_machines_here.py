"""Engines: how points are handed out to places, here and elsewhere."""

from __future__ import annotations

import errno
import queue
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import MachineError
from testbed.machines import known
from testbed.machines.engine import Backend, BackendLost, Dispatcher, Ended, Here
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


def engine(slow: Any, memory: float, points: int = 3) -> Dispatcher:
    return Dispatcher([Here(slow, points, memory)])


def test_points_here_run_as_far_as_memory_reaches() -> None:
    slow = Slow()
    here = engine(slow, 100)
    for number, (name, memory) in enumerate({"a": 60, "b": 30, "c": 20}.items()):
        here.submit(number, {"run": name}, memory)
    assert {slow.began.get(timeout=60) for _ in range(2)} == {"a", "b"}  # these two at a time
    slow.go["b"].set()
    assert slow.began.get(timeout=60) == "c"
    for name in "ac":
        slow.go[name].set()
    assert {here.events.get(timeout=60).number for _ in range(3)} == {0, 1, 2}  # type: ignore[union-attr]


def test_points_of_lower_numbers_run_first_here() -> None:
    slow = Slow()
    here = engine(slow, 100)
    here.submit(0, {"run": "a"}, 60)
    assert slow.began.get(timeout=60) == "a"
    here.submit(1, {"run": "b"}, 80)
    here.submit(2, {"run": "c"}, 30)  # there is room for it, but it is not its turn
    slow.go["a"].set()
    assert here.events.get(timeout=60) == Ended(0, {"row": "a"}, HERE)
    assert slow.began.get(timeout=60) == "b"
    slow.go["b"].set()
    assert slow.began.get(timeout=60) == "c"
    slow.go["c"].set()
    assert {here.events.get(timeout=60).number for _ in range(2)} == {1, 2}  # type: ignore[union-attr]


def test_after_cancel_nothing_begins_here_that_has_waited() -> None:
    slow = Slow()
    here = engine(slow, 100)
    here.submit(0, {"run": "a"}, 100)
    assert slow.began.get(timeout=60) == "a"
    here.submit(1, {"run": "b"}, 100)
    here.cancel()
    slow.go["a"].set()
    assert here.events.get(timeout=60) == Ended(0, {"row": "a"}, HERE)
    assert slow.began.empty() and here.events.empty()


def test_what_goes_wrong_before_a_point_has_a_process_is_its_error() -> None:
    def run(_point: dict[str, Any]) -> dict[str, Any]:
        raise BlockingIOError("no process left")

    here = engine(SimpleNamespace(run=run), 100)
    here.submit(0, {"run": "a"}, 1)
    assert here.events.get(timeout=60) == Ended(0, {}, HERE, "BlockingIOError: no process left")


class Elsewhere:
    """A place whose points end when they are let go."""

    def __init__(self, name: str, points: int, memory: float = 100) -> None:
        self.name, self.points, self.memory = name, points, memory
        self.began: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.go = threading.Event()
        self.lost = False

    def run(self, number: int, point: dict[str, Any]) -> dict[str, Any]:
        self.began.put(number)
        assert self.go.wait(60)
        if self.lost:
            raise BackendLost("its plug was pulled")
        return {"row": number}


def test_each_place_has_as_many_as_it_may_and_the_emptiest_comes_first() -> None:
    large, small = Elsewhere("large", 2), Elsewhere("small", 1)
    made = Dispatcher(list[Backend]([large, small]))
    for number in range(4):
        made.submit(number, {}, 10)
    assert [large.began.get(timeout=60) for _ in range(2)] == [0, 1] and small.began.get(timeout=60) == 2
    assert large.began.empty() and small.began.empty()
    large.go.set()
    assert large.began.get(timeout=60) == 3


def test_a_point_avoids_a_place_if_there_is_another_and_holds_nobody_up() -> None:
    one, other = Elsewhere("one", 1), Elsewhere("other", 1)
    made = Dispatcher(list[Backend]([one, other]))
    made.submit(0, {}, 10, frozenset({"one"}))
    assert other.began.get(timeout=60) == 0
    made.submit(1, {}, 10, frozenset({"one"}))  # waits for the other one
    made.submit(2, {}, 10)
    assert one.began.get(timeout=60) == 2 and one.began.empty()
    one.go.set()
    made.retire("other")
    assert one.began.get(timeout=60) == 1  # there is no other any more


def test_what_is_lost_with_a_place_says_so() -> None:
    one = Elsewhere("one", 1)
    one.lost = True
    one.go.set()
    made = Dispatcher([one])
    made.submit(0, {}, 10)
    assert made.events.get(timeout=60) == Ended(0, {}, "one", "its plug was pulled", gone=True)


def test_a_disk_that_is_full_here_ends_the_sweep_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: zipfile.ZipFile, folder: Path) -> None:
        (folder / "half").mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    files = tmp_path / "files.zip"
    zipfile.ZipFile(files, "w").close()
    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(MachineError) as error:
        known.brought_home(files, tmp_path / "point-0")
    assert error.value.what == "a point's run cannot be written: No space left on device"
    assert error.value.where == str(tmp_path / "point-0") and not (tmp_path / "point-0").exists()
