"""A user's own controller applications, in whole runs on os-ken and on ryu."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from live_fabric import ROOT
from results import load
from test_run_live import usable

from controllers.flows import MEMBER, ROUTE, Hash, Output, members, reweighted, to_network
from testbed import run as running
from testbed.lab import Lab
from testbed.run import RunFailed, RunResult
from testbed.spec import Experiment, SpecError, loads
from topologies import Fabric

live = pytest.mark.skipif(not usable(), reason="needs root, TAP, runc and Open vSwitch")

EXPERIMENTS = ROOT / "experiments" / "control"
FLOWS = """
name: apps
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}}
workload:
  - {flows: [{from: 0, to: 2, size: 64KB}, {from: 2, to: 0, size: 64KB}]}
"""


@pytest.fixture(scope="session")
def ryu() -> None:
    """ryu's environment is there."""
    subprocess.run([ROOT / "controllers/ryu-env.sh"], check=True)


def experiment(name: str, **control: Any) -> Experiment:
    text = (EXPERIMENTS / name).read_text()
    made = loads(text, name, EXPERIMENTS)
    return made.model_copy(update={"control": made.control.model_copy(update=control)})


def with_app(folder: Path, source: str) -> Experiment:
    (folder / "mine.py").write_text(source)
    return loads(FLOWS + "control: {apps: [mine.py]}\n", "apps.yaml", folder)
