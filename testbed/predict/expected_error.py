"""How far a prediction, or a run, of an experiment with a cluster's profile may be off what that would measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.base.errors import InputError
from testbed.base.units import format_size
from testbed.logs.row import BUSBW, Point
from testbed.plan.choose import Chooser
from testbed.plan.library import ByLibrary
from workloads.base.entry import NoModel
from workloads.base.vocabulary import LIBRARY
from workloads.library.choice import NoChoice

if TYPE_CHECKING:
    from testbed.cluster.bars import Bar, Bars
    from testbed.experiment import Experiment

BarOf = dict[tuple[int, int], "Bar"]
"""By number of the step in the workload, and size."""


def expected_errors(experiment: Experiment) -> BarOf:
    """Of all collectives that the experiment's library carries out; none without a profile."""
    bars, chooser, found = bars_of(experiment), None, {}
    if bars is None:
        return {}
    for number, step in enumerate(experiment.workload):
        collective = getattr(step, "collective", None)
        if getattr(step, "algorithm", None) != LIBRARY or collective not in BUSBW:
            continue
        chooser = chooser or Chooser(experiment)
        try:
            by = ByLibrary(experiment, chooser, step, experiment.place("workload", number))  # type: ignore[arg-type]
            for size_bytes in by.step.sizes:
                point = Point(collective, by.servers.nodes, by.servers.gpus, size_bytes)
                found[number, size_bytes] = bars.at(point, by.choice(size_bytes))
        except (InputError, NoModel, NoChoice):
            continue
    return found


def bars_of(experiment: Experiment) -> Bars | None:
    """Of its cluster's profile, if it has one."""
    if experiment.cluster is None or experiment.library is None:
        return None
    from testbed.cluster.bars import Bars  # imports numpy
    from testbed.cluster.model import of_profile

    env = {name: str(value) for name, value in experiment.library.env.items()}
    return Bars(experiment.cluster, of_profile(experiment.cluster, env))


def in_words(experiment: Experiment, errors: BarOf) -> Iterator[str]:
    """A line for each step, and one for each way in which it goes beyond what was measured."""
    assert experiment.cluster is not None
    for number, step in enumerate(experiment.workload):
        its = {size: bar for (of, size), bar in errors.items() if of == number}
        if not its:
            continue
        each = ", ".join(f"{format_size(size)} \u00b1 {bar.percent:.0f} %" for size, bar in its.items())
        yield f"{experiment.cluster.cluster}: expected error (90 %) of {step.label}: {each}"
        for beyond in dict.fromkeys(text for bar in its.values() for text in bar.beyond):
            yield f"outside what was measured: {beyond}"
    if experiment.cluster.library.choice != "tuner":
        yield f"{experiment.cluster.cluster}: algorithms as the tuner takes them, not as its logs say"
