"""A sweep's folder is closed wherever a signal falls, and on a full disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from results.store import folder as store
from results.store.shelf import state_of
from testbed.base import this_process
from testbed.base.errors import MACHINE_CANNOT, Problem
from testbed.base.progress import Progress
from testbed.experiment import Experiment, loads
from testbed.run import run as runs
from testbed.run import sweep as sweeps
from testbed.run.outcome import RunFailed
from tests.parts.incast_experiment import INCAST

FILES = {str(Path(module.__file__ or "")) for module in (sweeps, runs, store, this_process)}
POINTS = 2
DONE = {"fidelity": "exact"}


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """A sweep whose points take no time, by the runner that runs them one after the other."""

    @contextmanager
    def controllers() -> Iterator[Any]:
        yield SimpleNamespace(seat=lambda _: SimpleNamespace(close=lambda: None))

    monkeypatch.setattr(sweeps, "ControllerServer", controllers)
    monkeypatch.setattr(sweeps, "measured", lambda *_: dict(DONE))
    monkeypatch.setattr(sweeps, "require_root", lambda: None)
    monkeypatch.setattr(sweeps, "environment", lambda seed: {})
    monkeypatch.setattr(sweeps, "check", lambda experiment: None)
    monkeypatch.setattr(sweeps, "at", lambda experiment, k: experiment)
    monkeypatch.setattr(sweeps.yaml_writer, "dump", lambda *_: None)
    return loads(INCAST + f"sweep: {{seed: {list(range(POINTS))}}}\n")


class Quiet(Progress):
    def note(self, text: str) -> None:
        pass

    def point(self, text: str) -> None:
        pass


def signalled(do: Callable[[], object], at: int, number: int) -> tuple[bool, BaseException | None]:
    """Does it; at line `at` of FILES the signal comes. Returns whether it did, and what was raised."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                sys.settrace(None)
                signal.raise_signal(number)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except BaseException as error:
        return seen >= at, error
    finally:
        sys.settrace(before)
    return seen >= at, None


@pytest.mark.parametrize(("number", "step"), [(signal.SIGINT, 1), (signal.SIGTERM, 7)])
def test_a_signal_at_any_line_closes_the_folder(swept: Experiment, tmp_path: Path, number: int, step: int) -> None:
    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        at, ended, whole = 1, 0, 0
        while True:
            folder = tmp_path / str(at)
            came, error = signalled(partial(sweeps.run_sweep, swept, folder / "s", Quiet()), at, number)
            if not came:
                assert error is None
                break
            left = list(folder.glob("s*"))
            assert len(left) <= 1, (at, left)
            for path in left:
                state = json.loads((path / "state.json").read_text())
                told = json.loads((path / "sweep.json").read_text()) if path.name == "s" else {}
                assert state_of(state) == ("complete" if path.name == "s" else "failed"), (at, path, state)
                whole += path.name == "s" and len(told["points"]) == POINTS
                if path.name == "s.failed":
                    ended += 1
                    assert isinstance(error, sweeps.SweepEnded), (at, error)
                    assert error.exit_code == 128 + number and error.folder == path
            assert (
                signal.getsignal(signal.SIGINT) is signal.default_int_handler
                and signal.getsignal(signal.SIGTERM) is stop
            )
            at += step
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended > 40 / step and whole > 0


class OneAttempt:
    """A run that measures nothing; as the real one, it stores what it is told."""

    def __init__(self, experiment: Experiment, folder: store.RunFolder, progress: Progress, **_: Any) -> None:
        self.experiment, self.folder, self.progress = experiment, folder, progress
        self.profile = SimpleNamespace(stage=lambda _: None)
        self.tenant, self.goes_on, self.settled, self.stopped = None, False, True, 0
        self.problem: Problem | None = None
        self.counters: dict[str, Any] = {}
        self.left = 0

    def measure(self, lab: Any) -> None:
        lab.up += 1

    def leave(self, lab: Any) -> None:
        lab.up -= 1
        lab.down += 1

    def write_frames(self) -> None:
        pass

    def store(self, code: int) -> Any:
        if self.problem:
            raise RunFailed(self.problem, self.folder.fail(self.problem.to_dict()))
        self.folder.complete()
        return SimpleNamespace(stopped=self.stopped)


def test_a_signal_at_any_line_of_a_run_closes_its_folder_and_is_not_lost(
    swept: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "Attempt", OneAttempt)
    monkeypatch.setattr(runs, "require_root", lambda: None)
    monkeypatch.setattr(runs, "warnings", lambda experiment: ())
    monkeypatch.setattr(runs, "scaled_down", lambda experiment: experiment)
    at, failed, whole = 1, 0, 0
    while True:
        folder, labs, results = tmp_path / str(at), list[Any](), list[Any]()

        def up(_: Experiment, labs: list[Any] = labs) -> Any:
            labs.append(SimpleNamespace(up=0, down=0))
            return labs[-1]

        def do(folder: Path = folder, up: Any = up, results: list[Any] = results) -> None:
            results.append(runs.run(swept, folder / "r", Quiet(), up=up))

        came, error = signalled(do, at, signal.SIGINT)
        left = [(path.name, state_of(json.loads((path / "state.json").read_text()))) for path in folder.glob("r*")]
        assert left in ([], [("r", "complete")], [("r.failed", "failed")]), (at, left)
        if not came:
            assert error is None and left
            break
        assert error is not None or results[0].stopped == 130, (at, left)
        assert not labs or not left or labs[0].down == 1, (at, left)
        failed, whole, at = (
            failed + (left[:1] == [("r.failed", "failed")]),
            whole + (left[:1] == [("r", "complete")]),
            at + 1,
        )
    assert failed > 3 and whole > 10


@pytest.mark.parametrize("file", ["points.jsonl", "sweep.json", "experiment.yaml"])
def test_a_full_disk_ends_it_and_keeps_what_is_there(
    swept: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / file))

    if file == "points.jsonl":
        monkeypatch.setattr(store.RunFolder, "append", full)
    elif file == "sweep.json":
        monkeypatch.setattr(store.RunFolder, "write_json", full)
    else:
        monkeypatch.setattr(sweeps.yaml_writer, "dump", full)
    with pytest.raises(sweeps.SweepEnded, match="No space left on device") as caught:
        sweeps.run_sweep(swept, tmp_path / "s", Quiet())
    assert caught.value.exit_code == MACHINE_CANNOT and "points are kept" in caught.value.hint
    assert json.loads((tmp_path / "s.failed" / "state.json").read_text())["state"] == "failed"
