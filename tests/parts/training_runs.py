"""Runs of training steps beside what closed forms and the longest path expect of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import results
from results.store.load import Run
from testbed.experiment import Experiment, loads
from testbed.experiment.steps.train import Train
from testbed.experiment.steps.training import TrainStep, layout_of, settings_of, training_of
from testbed.plan.choose import Chooser
from testbed.plan.expected import expected
from testbed.plan.steps.plan import plan
from testbed.run.run import run
from topologies import Fabric
from workloads.steps.build import step_graph
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import Times, step_ns


@dataclass
class Compared:
    """A training step, as it was and as it should have been."""

    rows: list[dict[str, Any]]
    graph: Graph
    times: Times
    fabric: Fabric

    @property
    def measured_ns(self) -> float:
        return float(max(row["end_ns"] for row in self.rows) - min(row["start_ns"] for row in self.rows))

    @property
    def off(self) -> float:
        return self.measured_ns / step_ns(self.times) - 1


def experiment_of(topology: str, trains: Sequence[str], more: str = "", rest: str = "") -> Experiment:
    """An experiment of training steps; `more` are other keys of the fabric, `rest` of the file."""
    steps = "".join(f"- train: {train}\n" for train in trains)
    return loads(f"name: t\nfabric:\n  topology: {topology}\n  {more}\nworkload:\n{steps}{rest}\n")


def graph_of(train: Train, experiment: Experiment) -> Graph:
    return step_graph(training_of(train), layout_of(train, experiment.build_fabric()), settings_of(train))


def trains_of(experiment: Experiment) -> list[Train]:
    return [step.train for step in experiment.workload if isinstance(step, TrainStep)]


def checked(experiment: Experiment, folder: Path) -> Run:
    """Runs it: right data, exact clock, nothing dropped."""
    run(experiment, folder)
    done = results.load(folder)
    assert done.summary["fidelity"]["verdict"] == "exact" and done.summary["counters"]["drops"] == {}
    assert {row["wrong"] for row in done.rows("results")} == {0}
    return done


def compared(folder: Path, topology: str, trains: Sequence[str], more: str = "", rest: str = "") -> list[Compared]:
    """Runs the steps one after the other."""
    experiment = experiment_of(topology, trains, more, rest)
    fabric, planned = experiment.build_fabric(), plan(experiment).told()["steps"]
    rows, chooser = checked(experiment, folder).rows("timeline"), Chooser(experiment)
    graphs = [graph_of(train, experiment) for train in trains_of(experiment)]
    return [
        Compared([row for row in rows if row["step"] == k], graph, expected(graph, planned[k], chooser), fabric)
        for k, graph in enumerate(graphs)
    ]
