"""Fabrics that are too large for any machine to emulate: read as any other, predicted without their graph.

While such a file is read, a small fabric of the same kind stands for the large one, so that all else is checked as
always; `topology.params` keep what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.blocks.fabric import STAND_IN
from testbed.experiment.steps.collective import CollectiveStep
from testbed.experiment.steps.training import TrainStep, layout_of
from testbed.predict.figure import Figure, Tell, step_of
from testbed.predict.ground import Turn
from testbed.predict.large_fabric import LargeFabric
from testbed.predict.training import training_figure
from testbed.predict.wide import library_figures, wide_figures
from topologies import Fabric
from topologies.graph.fabric import OutOfBounds, TopologyError
from topologies.kinds import KINDS, build
from workloads.base.vocabulary import LIBRARY
from workloads.registry import any_of
from workloads.steps.fraction import fewest_messages
from workloads.tasks.replay import MOST_MESSAGES
from workloads.times.wide.peers import ConnectedPairs
from workloads.times.wide.places import places_of

if TYPE_CHECKING:
    from testbed.experiment import Experiment

MOST_RANKS = 1 << 19
SMALL: dict[str, dict[str, Any]] = {
    "star": {"hosts": 4},
    "ring": {"nodes": 4},
    "torus": {"dims": [2, 2]},
    "rail": {"servers": 2},
    "clos": {"leaves": 2, "spines": 1, "hosts_per_leaf": 2, "pods": 1, "cores": 0},
}
"""What stands for a large fabric of each kind; other parameters stay."""


@contextmanager
def of_any_size() -> Iterator[None]:
    """Experiments that are read meanwhile may have a fabric of up to MOST_RANKS."""
    token = STAND_IN.set(_stand_in)
    try:
        yield
    finally:
        STAND_IN.reset(token)


def _stand_in(kind: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], Fabric, int]:
    """The parameters with defaults, the fabric or what stands for it, and the ranks.  Raises TopologyError."""
    try:
        fabric = build(kind, params)
    except OutOfBounds as error:
        if kind not in SMALL:
            raise
        wide = {p.name: replace(p, most=MOST_RANKS) for p in KINDS[kind].parameters()}
        given = {name: wide[name].parse(value) for name, value in params.items()}
        asked = KINDS[kind](**given)
        asked.check()
        whole: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(asked).items()}
        if (ranks := places_of(kind, whole).ranks) > MOST_RANKS:
            raise TopologyError(
                error.key, f"{ranks} ranks are too many", f"at most {MOST_RANKS} are predicted"
            ) from None
        if key := _without_model(kind, whole):
            whose = "servers with several GPUs on a leaf" if key == "gpus" else "NICs with several ports"
            raise TopologyError(key, f"there is no model of {whose} in so large a fabric", "leave it out") from None
        return whole, build(kind, {**whole, **SMALL[kind]}), ranks
    return dict(fabric.params), fabric, fabric.ranks


def _without_model(kind: str, params: Mapping[str, Any]) -> str | None:
    """The parameter that models of large fabrics do not know."""
    if kind == "clos" and params["gpus"] > 1:
        return "gpus"
    return "direct" if params.get("direct") else "links" if int(params.get("links", 1)) > 1 else None


def large_figures(experiment: Experiment, tell: Tell = lambda text: None) -> Iterator[Figure]:
    """The lines of an experiment whose fabric is large.  Raises InputError for what there is no model of."""
    large, job = LargeFabric(experiment), 1
    made = ConnectedPairs(large.places().ranks)
    for k, step in enumerate(experiment.workload):
        turn = Turn(step, k, job, experiment.place("workload", k))
        tell(step_of(experiment, k))
        if isinstance(step, TrainStep):
            if experiment.library is not None:
                what = "there is no model of training steps by a library on so large a fabric"
                raise InputError(what, turn.place, "--set library=null: by the fabric's own algorithms")
            yield training_figure(large, step.train, turn)
            continue
        if not isinstance(step, CollectiveStep):
            what = f"there is no model of {step.kind} on so large a fabric"
            raise InputError(what, turn.place, "collectives and training steps are predicted")
        if step.algorithm == LIBRARY:
            yield from library_figures(experiment, large, step, turn)
            continue
        yield from wide_figures(large, step, turn, made)
        job += any_of(step.collective, step.algorithm).jobs({"trees": step.trees})


def of_too_many(large: LargeFabric, turn: Turn, *, sure: bool = False) -> Figure | None:
    """The line of a training step with more messages than are followed, or None: no, or there is no such model of it.

    `sure`: that there are so many.  Else they are counted by the fewest that any algorithm has, as nobody has looked
    which one it is.
    """
    step, topology = turn.step, large.spec.topology
    if _without_model(topology.kind, topology.params) or large.several_paths:
        return None
    if not isinstance(step, TrainStep) or step.train.checkpoint is not None or step.train.scale is not None:
        return None
    if not sure and fewest_messages(step.training(), layout_of(step.train, large.graph)) <= MOST_MESSAGES:
        return None
    with suppress(InputError):
        return training_figure(large, step.train, turn)
    return None
