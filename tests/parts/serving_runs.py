"""Runs of serving steps beside what the longest path and closed forms expect of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.figures.serving import served
from results.figures.timeline import StepTime, steps
from testbed.experiment import Experiment, loads
from tests.parts.training_runs import checked


@dataclass
class Served:
    """A serving step as it was: what is said of it, and its figures."""

    one: StepTime
    serving: dict[str, Any]
    figures: dict[str, Any]

    @property
    def between_ns(self) -> float:
        return float(self.figures["between_tokens_ns"])

    @property
    def whole_ns(self) -> float:
        """Until all sequences have all their tokens."""
        answers = set(self.serving["answers"])
        return float(max(row["end_ns"] for row in self.one.rows if row["rank"] in answers)) - self.one.span[0] / 1000

    @property
    def off(self) -> float:
        """From the longest path."""
        return self.whole_ns / self.serving["expected_ns"] - 1


def experiment_of(topology: str, serves: Sequence[str], more: str = "") -> Experiment:
    """An experiment of serving steps; `more` are other keys of the fabric."""
    listed = "".join(f"- serve: {serve}\n" for serve in serves)
    return loads(f"name: t\nfabric:\n  topology: {topology}\n  {more}\nworkload:\n{listed}")


def run_of(folder: Path, topology: str, serves: Sequence[str], more: str = "") -> list[Served]:
    """Runs the steps one after the other: right data, exact clock, nothing dropped."""
    done = checked(experiment_of(topology, serves, more), folder)
    found = []
    for one in steps(done.rows("timeline")):
        about = done.steps[one.step]
        found.append(Served(one, about["serving"], served(one, about)))
    return found
