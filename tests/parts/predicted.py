"""Experiments of one step that are predicted, and what of their times is arithmetic."""

from __future__ import annotations

import json
from typing import Any

from testbed.experiment import Experiment, loads
from testbed.predict import Figure, predict

# With all defaults: 4,096 B of payload take 4,178 B of a cable at 400 Gb/s, 4,198 with RETH and immediate
PCIE, DELAY, LATENCY, POST = 500.0, 500.0, 500.0, 100.0


def wire_ns(nbytes: float) -> float:
    return nbytes * 8 / 400


def pcie_ns(nbytes: float) -> float:
    return nbytes * 8 / 512


def experiment(topology: str, *steps: dict[str, Any] | str, more: str = "") -> Experiment:
    text = "".join(f"  - {step if isinstance(step, str) else json.dumps(step)}\n" for step in steps)
    return loads(f"name: t\nfabric:\n  topology: {topology}\n{more}workload:\n{text}", "t.yaml")


def figures(topology: str, *steps: dict[str, Any] | str, more: str = "") -> tuple[Figure, ...]:
    return predict(experiment(topology, *steps, more=more)).figures


def collective(name: str, algorithm: str, *sizes: str, **more: Any) -> dict[str, Any]:
    return {"collective": name, "algorithm": algorithm, "sizes": list(sizes), **more}


TORUS, RAIL = "{torus: {dims: [3, 4]}}", "{rail: {servers: 4, gpus: 4}}"
