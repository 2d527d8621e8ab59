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
from testbed.plan.ideal import costs_with_engines
from testbed.predict.cables import cables_of
from testbed.predict.figure import Figure, Tell, step_of
from testbed.predict.limits import refuse_ports
from testbed.predict.training import training_figures
from testbed.predict.wide import wide_figures
from topologies import Fabric
from topologies.graph.fabric import OutOfBounds, TopologyError
from topologies.kinds import KINDS, build
from workloads.registry import any_of
from workloads.steps.fraction import fewest_messages
from workloads.tasks.replay import MOST_MESSAGES
from workloads.times.messages import Link
from workloads.times.wide.fabric import Wide
from workloads.times.wide.groups import Together
from workloads.times.wide.peers import ConnectedPairs
from workloads.times.wide.places import places_of

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.steps.step import Step

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
        if whole.get("direct") or int(whole.get("links", 1)) > 1:
            what = "there is no model of NICs with several ports in so large a fabric"
            raise TopologyError("direct" if whole.get("direct") else "links", what, "leave it out") from None
        return whole, build(kind, {**whole, **SMALL[kind]}), ranks
    return dict(fabric.params), fabric, fabric.ranks


def large_figures(experiment: Experiment, tell: Tell = lambda text: None) -> Iterator[Figure]:
    """The lines of an experiment whose fabric is large.  Raises InputError for what there is no model of."""
    spec = experiment.fabric
    made = ConnectedPairs(places_of(spec.topology.kind, spec.topology.params).ranks)
    job = 1
    for k, step in enumerate(experiment.workload):
        place = experiment.place("workload", k)
        tell(step_of(experiment, k))
        if isinstance(step, TrainStep):
            yield from training_figures(experiment, step.train, together(experiment), k, place)
            continue
        if not isinstance(step, CollectiveStep):
            what = f"there is no model of {step.kind} on so large a fabric"
            raise InputError(what, place, "collectives and training steps are predicted")
        offloaded = any_of(step.collective, step.algorithm).offloaded
        scale_up = spec.scale_up is not None and not offloaded
        places = places_of(spec.topology.kind, spec.topology.params, scale_up=scale_up)
        yield from wide_figures(experiment, step, places, made, k, job, place)
        job += offloaded


def of_too_many(experiment: Experiment, step: Step, number: int, place: str, *, sure: bool = False) -> Figure | None:
    """The line of a training step with more messages than are followed, or None: no, or there is no such model of it.

    `sure`: that there are so many.  Else they are counted by the fewest that any algorithm has, as nobody has looked
    which one it is.
    """
    if not isinstance(step, TrainStep) or step.train.checkpoint is not None or step.train.scale is not None:
        return None
    t, train = step.training(), step.train
    if not sure and fewest_messages(t, layout_of(train, experiment.build_fabric())) <= MOST_MESSAGES:
        return None
    with suppress(InputError):
        return next(training_figures(experiment, train, together(experiment), number, place))
    return None


def together(experiment: Experiment) -> Together:
    """For what groups of all ranks do at a time.  Raises InputError where there is no such model of the fabric."""
    spec = experiment.fabric
    refuse_ports(experiment)
    within = Link(spec.scale_up.rate, spec.scale_up.delay) if spec.scale_up else None
    places = places_of(spec.topology.kind, spec.topology.params)
    usual = Link(spec.cable.rate, spec.cable.delay)
    nics = Wide(places, usual, spec.switch.latency, own=cables_of(experiment, places))
    inside = places_of(spec.topology.kind, spec.topology.params, scale_up=within is not None)
    both = replace(nics, places=inside, scale_up=within)
    return Together(both, nics, costs_with_engines(experiment), experiment.seed)
