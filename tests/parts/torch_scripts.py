"""Runs a script of PyTorch without anything of ours, over Gloo: what its ranks print is what they must print here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.parts.forking import OF_TORCH
from tests.parts.machine import ROOT
from workloads.torch import launch

Loss = tuple[str, int, float]


def over_gloo(script: Path, args: list[str], ranks: int, folder: Path) -> list[str]:
    """What each rank prints."""
    command = [sys.executable, "-m", "tests.parts.over_gloo", str(ranks), str(folder), str(script), *args]
    plain = subprocess.run(
        [*launch._isolated(), *command],
        env={**os.environ, **OF_TORCH},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert plain.returncode == 0, plain.stderr[-2000:]
    return [(folder / str(rank)).read_text() for rank in range(ranks)]


def losses(printed: str, names: tuple[str, ...]) -> list[Loss]:
    """Lines of a name, a number and a loss."""
    lines = [line.split() for line in printed.splitlines() if line.startswith(names)]
    return [(name, int(step), float(loss)) for name, step, loss in lines]
