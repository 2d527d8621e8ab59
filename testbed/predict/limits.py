"""What is not predicted: refused with the reason, or, where it only may change the figures, said beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from testbed.base.errors import InputError, Problem
from testbed.experiment.basis import Basis
from testbed.faults.cable import CableFault
from testbed.plan.hardware import hardware_of
from testbed.plan.ideal import sprays
from testbed.plan.thresholds import names_of, narrow_pcie
from testbed.predict.figure import LONGEST_PATH, ONE_PIPELINE, Figure
from testbed.predict.ground import CABLE_KEYS
from topologies.ranks.hops import Hops

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.faults import Injection
    from topologies.ranks.hops import Hop

EVENLY = ("random", "round_robin")
BY_QUEUES = ("two_choices", "shortest")
"""Choices among equal ports that take every port as often, at least where all are alike."""

_RUN = "`testbed run` emulates it"


def refuse(experiment: Experiment, swept: Iterable[str] = ()) -> None:
    """Raises InputError for what there is no model of, all of it at once.  `swept`: the keys of the sweep it is of."""
    found = list(_refused(experiment, swept))
    if found:
        raise InputError(found[0].what, found[0].where, found[0].hint, found[1:])


def _refused(experiment: Experiment, swept: Iterable[str]) -> Iterator[Problem]:
    if not experiment.workload:
        yield Problem("there is nothing to predict", experiment.place("workload"), "give it a step")
    without = "--set 'inject=[]'"
    if any(key.partition(".")[0] == "inject" for key in swept):
        without = f"--set 'sweep={{}}' {without}"
    for k, injection in enumerate(experiment.inject):
        what, hint = f"there is no model of {injection.fault.name}", f"{_RUN}; {without} leaves it out"
        if _is_of_cables(injection):
            if _lasts(injection) and not experiment.fabric.topology.is_large:
                continue
            what = f"{injection.fault.name} does not last for the whole run, and only then there is a model of it"
            if experiment.fabric.topology.is_large:
                what = "there is no model of faults on so large a fabric"
                hint = f"fabric.cables gives a cable another rate or delay from the beginning; {without} leaves it out"
            else:
                hint = f"from the beginning to the end (no `at`, `for`, `every`) it is predicted; {hint}"
        yield Problem(what, experiment.place("inject", k), hint)
    yield from _adaptive(experiment)
    if experiment.fabric.nic.complex is not None:
        what = "there is no model of off-path SmartNICs"
        yield Problem(what, experiment.place("fabric", "nic", "kind"), _RUN)
    if experiment.fabric.topology.is_large and sprays(experiment.transport):
        what = "there is no model of queue pairs that spray on so large a fabric"
        yield Problem(what, experiment.place("transport", "multipath"), "leave it out")
    if experiment.fabric.topology.is_large and experiment.fabric.switch.scheduler.shapers:
        what = "there is no model of shapers in so large a fabric"
        yield Problem(what, experiment.place("fabric", "switch", "scheduler", "shapers"), "leave them out")
    if experiment.fabric.topology.is_large and experiment.transport.qps > 1:
        what = "there is no model of several queue pairs of a connection on so large a fabric"
        yield Problem(what, experiment.place("transport", "qps"), "leave it out")
    basis = Basis(experiment)
    if experiment.fabric.topology.is_large and experiment.fabric.switch.cut_through:
        what = "there is no model of cut-through switches in so large a fabric"
        yield Problem(what, experiment.place("fabric", "switch", "cut_through"), "leave it out")
    if experiment.fabric.topology.is_large and any(basis.share(cable) < 1 for cable in basis.graph.cables):
        what = "there is no model of rooms and replay buffers that hold up a full rate in so large a fabric"
        yield Problem(what, experiment.place("fabric", "cable"), "leave `room` and `buffer` out")
    for k, step in enumerate(experiment.workload):
        for path, why, hint in step.not_predicted():
            yield Problem(why, experiment.place("workload", k, *path), f"{_RUN}; {hint}" if hint else _RUN)


def _adaptive(experiment: Experiment) -> Iterator[Problem]:
    """What of switches that take one of several ports there is no model of."""
    adaptive, large = experiment.control.routing.adaptive, experiment.fabric.topology.is_large
    if adaptive is None or not (large or Hops(experiment.build_fabric()).chooses):
        return
    what = ""
    if large:
        what = "there is no model of switches that take one of several ports on so large a fabric"
    elif adaptive.flowlet is not None:
        what = "there is no model of flowlets: when one ends follows from gaps that queues make"
    elif adaptive.policy.name not in (*EVENLY, *BY_QUEUES):
        what = "there is no model of a choice of one's own"
    elif not _alike(experiment) and (adaptive.weights != "equal" or adaptive.policy.name not in EVENLY):
        what = "there is no model of how switches share cables that differ"
    if what:
        hint = "of `routing: ecmp` there is one"
        yield Problem(what, experiment.place("control", "routing"), f"{_RUN}; {hint}")


def _alike(experiment: Experiment) -> bool:
    """Whether all cables between switches are."""
    fabric = experiment.build_fabric()
    between = [c for c in fabric.cables if {c.a.node, c.b.node} <= fabric.switch_by_name.keys()]
    return len({(c.rate_bps, c.delay_ns) for c in between if c.name not in fabric.inside}) <= 1


def _is_of_cables(injection: Injection) -> bool:
    """Whether it changes cables' rates or delays, and nothing else."""
    return isinstance(injection.fault, CableFault) and injection.fault.values().keys() <= CABLE_KEYS.keys()


def _lasts(injection: Injection) -> bool:
    """From the beginning to the end."""
    return injection.at == 0 and injection.lasts is None


def refuse_some(step: CollectiveStep, place: str) -> None:
    """Raises InputError where not all ranks take part."""
    if step.ranks is not None or step.groups is not None:
        what = "of so large a fabric all ranks take part"
        raise InputError(what, f"{place}.{'groups' if step.ranks is None else 'ranks'}", "leave it out")


def left_out(experiment: Experiment, figures: Sequence[Figure]) -> tuple[str, ...]:
    """What may make this experiment's run differ from these figures, most of all first."""
    return tuple(_left_out(experiment, figures))


def _left_out(experiment: Experiment, figures: Sequence[Figure]) -> Iterator[str]:
    if names := dict.fromkeys(name for figure in figures for name in figure.no_model):
        yield f"what a run may choose and there is no model of on so large a fabric: {', '.join(names)}"
    looked = all(figure.paused is not None for figure in figures)
    yield "losses" if looked else "losses, full buffers and the pauses that they make"
    yield from _pauses(figures)
    sent_by = [sending.cc for _, sending in experiment.senders()]
    if any(cc.name != sent_by[0].name for cc in sent_by) and any("credit" in cc.control.hears for cc in sent_by):
        yield "that not all senders go by the same credit"
    if any("credit" in cc.control.hears for cc in sent_by):
        yield from _of_credit(experiment)
    controls = dict.fromkeys(cc.short for cc in sent_by if cc.control.hears != ("credit",))
    if some := [name for name in controls if name != "none"]:
        yield f"what {' and '.join(some)} {'does' if len(some) == 1 else 'do'} to rates"
    if any(sending.multipath != experiment.transport.multipath for _, sending in experiment.senders()):
        yield "that not all senders take the same number of paths"
    if not experiment.fabric.switch.pfc:
        yield "what is lost without PFC"
    if experiment.fabric.switch.trimming is not None:
        yield "what switches trim, and is sent again"
    if sprays(experiment.transport):
        yield "how unevenly the hash spreads entropies over the paths, and which of them marks keep empty"
    if experiment.control.routing.adaptive is not None:
        yield "how unevenly switches spread packets, and those that overtake others"
    if any(shaper.min for shaper in experiment.fabric.switch.scheduler.shapers.values()):
        yield "what other classes have of a port in any case"
    if experiment.fabric.switch.cut_through and experiment.fabric.switch.accelerator:
        yield "what cut-through saves where switches add up"
    if any(figure.how == LONGEST_PATH for figure in figures):
        yield "what tasks that share cables, NICs or hosts do to each other"
    if any(figure.how == ONE_PIPELINE for figure in figures):
        yield "what different groups of a rank do to each other's messages"
    hows, topology = {figure.how for figure in figures}, experiment.fabric.topology
    if topology.kind in ("clos", "rail") and topology.params.get("spines", 0) > 1:
        if LONGEST_PATH in hows:
            yield "ECMP's hash on a longest path: the spine is drawn, as unevenly as the hash does, but not the same"
        if ONE_PIPELINE in hows:
            yield "the numbers of the tasks' queue pairs: ECMP's hash takes other spines, as unevenly"


def _of_credit(experiment: Experiment) -> Iterator[str]:
    """What the model of credit does not follow, and takes a run up to two fifths longer."""
    if any(True for _ in narrow_pcie(experiment)):
        yield "credit for what PCIe has still to fetch when the first one comes: a run may take two fifths longer"
    params = hardware_of(experiment).nic["cc"].get("params", {})
    if params.get("window_bytes", 0) < params.get("initial_bytes", 0):
        yield "round trips of credit where `window` is less than `initial`: a run may take a fifth longer"


def _pauses(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each step and algorithm in which somebody is paused."""
    some = [figure for figure in figures if figure.paused]
    by = groupby(some, key=lambda f: (f.step, f.name, f.algorithm, f.holds_up))
    for (_, name, algorithm, holds_up), alike in by:
        rows = list(alike)
        sizes = dict.fromkeys(f"{f.size_bytes} B" for f in rows if f.size_bytes is not None)
        what = f"{name} by {algorithm}, {', '.join(sizes)}" if sizes else name
        hops = dict.fromkeys(hop for f in rows for hop in f.paused or ())
        yield f"PFC, in {what}: {_who(list(hops))}; {_SO[bool(holds_up)]}"


_SO = {
    True: "that holds up what goes elsewhere, too, and is in the time",
    False: "all that waits there goes the same way, and takes no longer",
}


def _who(hops: Sequence[Hop]) -> str:
    by: dict[str, list[str]] = {}
    for sender, node in hops:
        by.setdefault(node, []).append(sender)
    said = [f"{node} would pause {names_of(senders, ', ')}" for node, senders in by.items()]
    return names_of(said, "; ")
