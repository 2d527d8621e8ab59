"""Runs against a lab without a machine, whose workers follow a script: they end well, or fail as they should."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results import load
from testbed.base.progress import Progress
from testbed.experiment import Experiment, loads
from testbed.run import run as running
from testbed.run.outcome import RunFailed, RunResult
from tests.parts.fake_lab import FakeLab, Script
from tests.parts.small_run import EXPERIMENT

WAIT = "time.sleep(60)\n"


class Play:
    """Runs the experiment with workers that follow `script`; `prepare` gets the lab before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab: FakeLab | None = None

    def __call__(
        self,
        script: Callable[[int], Script],
        prepare: Callable[[FakeLab], Any] = lambda lab: None,
        text: str = EXPERIMENT,
        progress: Progress | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> RunResult:
        def up(experiment: Experiment) -> Any:
            self.lab = FakeLab(experiment.build_fabric(), self.folder, script)
            prepare(self.lab)
            return self.lab

        try:
            return running.run(loads(text), self.folder / "run", progress, up=up, meanwhile=meanwhile)
        finally:
            assert self.lab is not None
            assert self.lab.downs == 1, "the fabric is taken down once, whatever happened"

    def failing(
        self, script: Callable[[int], Script], prepare: Callable[[FakeLab], Any] = lambda lab: None, **more: Any
    ) -> RunFailed:
        with pytest.raises(RunFailed) as told:
            self(script, prepare, **more)
        failure = told.value
        assert load(failure.folder).state == load(failure.folder).state | {
            "state": "failed",
            "error": failure.to_dict(),
        }
        assert sorted(p.name for p in self.folder.iterdir()) == ["lab", "run.failed"]
        return failure


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def emit(*events: dict[str, Any], when: Callable[[FakeLab], bool] = lambda lab: True) -> Callable[[FakeLab], None]:
    """Lets fabricd say `events` once `when` is true."""

    def prepare(lab: FakeLab) -> None:
        def say() -> None:
            deadline = time.monotonic() + 60
            while not when(lab) and time.monotonic() < deadline:
                time.sleep(0.005)
            for event in events:
                lab.fabricd.say(event)

        threading.Thread(target=say, daemon=True).start()

    return prepare


def all_started(lab: FakeLab) -> bool:
    return any(op == "start" for op, _ in lab.fabricd.requests)
