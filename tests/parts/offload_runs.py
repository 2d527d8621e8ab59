"""Whole runs of all-reduces that switches carry out: the experiment made of its steps, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.experiment import loads
from testbed.run import run as running
from testbed.run.outcome import RunResult

STAR = "{star: {hosts: %d}}"
CLOS = "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}"
FAULTS = """inject:
  - {fault: loss, on: all, rate: 0.01}
  - {fault: duplication, on: all, rate: 0.01}
  - {fault: reordering, on: all, rate: 0.01}"""


def run(tmp_path: Path, topology: str, *steps: str, more: str = "", switch: str = "{}", fabric: str = "") -> RunResult:
    workload = "\n".join(f"  - {s}" for s in steps)
    hardware = f"{{topology: {topology}, switch: {switch}{fabric}}}"
    text = f"name: offload\nfabric: {hardware}\n{more}\nworkload:\n{workload}\n"
    return running.run(loads(text), tmp_path / "run")


def counters(result: RunResult) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((result.folder / "counters.json").read_text())
    return found


def by_the_network(result: RunResult) -> bool:
    """Whether every result is right, and none of them the hosts'."""
    return all(row["wrong"] == 0 and not row["fallback"] for row in result.results)
