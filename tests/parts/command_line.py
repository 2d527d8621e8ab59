"""`testbed ARGS` in this process, against a lab without a machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import cli
from testbed.experiment import Experiment
from testbed.fabric.lab import Lab
from testbed.live import standing
from tests.parts.fake_lab import FakeLab
from tests.parts.small_run import EXPERIMENT, whole

Cli = Any


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self.out)


@pytest.fixture
def testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `testbed ARGS` in an empty folder that has small.yaml, against a lab without a machine."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(EXPERIMENT)
    state, fabrics = {"script": whole}, count()

    def up(experiment: Experiment, seat: object = None) -> Any:
        machine = tmp_path / "machine" / str(next(fabrics))
        machine.mkdir(parents=True)
        return FakeLab(experiment.build_fabric(), machine, state["script"])

    monkeypatch.setattr(Lab, "up", up)
    monkeypatch.setattr(standing, "shares", lambda _: False)  # a lab that is none takes no guests

    def call(*args: str, script: Any = whole) -> Outcome:
        state["script"] = script
        with pytest.raises(SystemExit) as ended:
            cli.main(list(args))
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, captured.out, captured.err)

    return call
