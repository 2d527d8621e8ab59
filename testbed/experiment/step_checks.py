"""Checks of single steps of a workload against the fabric and the registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.base.types import unknown
from testbed.base.units import format_size
from testbed.experiment import program_checks
from testbed.experiment.blocks import known
from testbed.experiment.blocks.fabric import dscp_of
from topologies.graph import endpoint
from topologies.graph.fabric import Fabric

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec
    from testbed.experiment.steps.flows import Flow, Load
    from testbed.experiment.steps.steps import CollectiveStep
    from workloads.base.entry import Algorithm

Path = tuple[str | int, ...]
Found = tuple[Path, str, str]  # path, what, hint


def rank_out_of_range(rank: int, ranks: int) -> tuple[str, str] | None:
    if 0 <= rank < ranks:
        return None
    return f"there is no rank {rank}", f"this fabric has ranks 0 to {ranks - 1}"


def _end(end: int) -> str:
    return str(end) if isinstance(end, endpoint.OfNic) else f"rank {end}"


def load(load: Load, ranks: int) -> Iterator[Found]:
    for rank in load.senders or []:
        if problem := rank_out_of_range(rank, ranks):
            yield ("load", "senders"), *problem
    if load.pattern in ("incast", "burst") and (problem := rank_out_of_range(load.to, ranks)):
        yield ("load", "to"), *problem
    others = set(load.senders if load.senders is not None else range(ranks))
    if load.pattern in ("incast", "burst"):
        others -= {load.to}
    if len(others) < (1 if load.pattern in ("incast", "burst") else 2):
        yield ("load",), f"{load.pattern} needs more ranks than that", f"this fabric has ranks 0 to {ranks - 1}"


def collective(step: CollectiveStep, fabric: Fabric, ranks: int) -> Iterator[Found]:
    """`ranks`: of the fabric that is asked for, which `fabric` may only stand for."""
    if step.collective not in known.collectives():
        yield ("collective",), *unknown("collective", step.collective, known.collectives())
        return
    if step.algorithm not in known.choices(step.collective):
        what, hint = unknown("algorithm", step.algorithm, known.choices(step.collective))
        yield ("algorithm",), f"{what} of {step.collective}", hint
        return
    entry = known.entry(step.collective, step.algorithm)
    if step.op is not None and not entry.ops:
        yield ("op",), f"{step.collective} combines nothing", "leave op out"
    elif step.op is not None and step.op not in entry.ops:
        yield ("op",), *unknown("op", step.op, entry.ops)
    heeded = known.extra(step.collective, step.algorithm)
    for key in known.extras():
        if key not in heeded and getattr(step, key) is not None:
            what = f"{step.collective} by {step.algorithm} has no {key}"
            its = dict.fromkeys((*entry.parameters, *heeded))
            yield (key,), what, f"leave {key} out; it has {', '.join(its)}"
    yield from program_checks.mistakes(step, ranks)
    if step.compression and step.dtype != "float32":
        yield ("compression",), f"compression is of float32, not of {step.dtype}", "leave compression out"
    if step.dtype not in entry.dtypes:
        yield ("dtype",), *unknown("dtype", step.dtype, entry.dtypes)
    else:
        yield from _sizes(step.sizes, step.dtype, entry)
    if step.chunk is not None and (least := max(step.sizes, default=0) // known.most_pieces()) > step.chunk:
        yield ("chunk",), f"a vector in more than {known.most_pieces()} pieces", f"for its sizes {least}B at least"
    if step.groups is not None:
        yield from _groups(step, entry, fabric, ranks)
        return
    problems = list(_ranks(step, entry, fabric, ranks))
    yield from problems
    if not problems:
        yield from _group(step, entry, fabric, ranks)


def _groups(step: CollectiveStep, entry: Algorithm, fabric: Fabric, all_ranks: int) -> Iterator[Found]:
    """Several groups of ranks: each as if it were alone, and no rank in two of them."""
    if step.ranks is not None:
        yield ("groups",), "a step has either ranks or groups", "leave one of them out"
    if step.algorithm != entry.name or entry.on_complexes:
        yield ("groups",), f"{step.algorithm} does not work in groups", "name an algorithm of ranks alone"
    seen: set[int] = set()
    for i, ranks in enumerate(step.groups or ()):
        alone = step.model_copy(update={"ranks": ranks, "groups": None})
        problems = list(_ranks(alone, entry, fabric, all_ranks)) or list(_group(alone, entry, fabric, all_ranks))
        yield from ((("groups", i, *path[1:]), what, hint) for path, what, hint in problems)
        for rank in sorted(seen.intersection(ranks)):
            yield ("groups", i), f"rank {rank} is in another group already", "each rank takes part once"
        seen |= set(ranks)


def complexes(step: CollectiveStep, fabric: Fabric) -> Iterator[Found]:
    """Whether there are the compute complexes that a collective asks for."""
    if fabric.complexes or step.collective not in known.collectives():
        return
    if step.algorithm not in known.algorithms(step.collective):
        return
    if known.entry(step.collective, step.algorithm).on_complexes:
        what = f"{step.algorithm} works on compute complexes, and these NICs have none"
        yield ("algorithm",), what, "fabric.nic.kind: off_path"


def _group(step: CollectiveStep, entry: Algorithm, fabric: Fabric, ranks: int) -> Iterator[Found]:
    """Whether the ranks have the shape that the algorithm needs."""
    taking_part = ranks if step.ranks is None else len(step.ranks)
    if step.senders is not None and "senders" in entry.extra and not step.senders < taking_part:
        what = f"of {taking_part} ranks {step.senders} cannot send: nobody is left to receive"
        yield ("senders",), what, f"1 to {taking_part - 1}"
    elif step.parts is not None and "parts" in entry.extra:
        yield from _parts(step, entry, taking_part)
    if fabric.ranks != ranks and step.ranks is not None:
        return  # predictions say that all take part
    if step.algorithm == entry.name and (problem := known.misshapen(entry, step.ranks, fabric)):
        yield ("algorithm",) if step.ranks is None else ("ranks",), *problem


def _parts(step: CollectiveStep, entry: Algorithm, taking_part: int) -> Iterator[Found]:
    """Whether a table of weights has a row and a column for everybody."""
    rows = columns = taking_part
    if "senders" in entry.extra:
        senders = step.senders or taking_part // 2
        rows, columns = senders, taking_part - senders
        if entry.collective.transposed:
            rows, columns = columns, rows
    assert step.parts is not None
    if len(step.parts) != rows or any(len(row) != columns for row in step.parts):
        whose = "receiver" if entry.collective.transposed else "sender"
        yield ("parts",), f"the table is not for {rows} x {columns} ranks", f"{rows} rows (one a {whose}) of {columns}"
    elif not any(map(sum, step.parts)):
        yield ("parts",), "nobody sends anything", "a weight above 0"


def _sizes(sizes: list[int], dtype: str, entry: Algorithm) -> Iterator[Found]:
    width = known.width(dtype)
    if not sizes:
        yield ("sizes",), f"{entry.collective.name} needs a size", "sizes: [1MiB]"
    for i, size in enumerate(sizes):
        if not entry.collective.sized and size:
            yield ("sizes", i), f"a {entry.collective.name} moves no data", "leave sizes out"
        elif entry.collective.sized and (size == 0 or size % width):
            what = f"{format_size(size)} is not a whole number of {dtype} elements, at least one"
            yield ("sizes", i), what, f"a multiple of {width} bytes"


def _ranks(step: CollectiveStep, entry: Algorithm, fabric: Fabric, ranks: int) -> Iterator[Found]:
    whole = fabric.ranks == ranks  # else it stands for a larger one, of which a prediction takes all ranks
    for i, rank in enumerate(step.ranks or ()):
        if problem := endpoint.missing(rank, fabric) if whole else rank_out_of_range(rank, ranks):
            yield ("ranks", i), *problem
        elif isinstance(rank, endpoint.OfNic) and not entry.anywhere:
            yield ("ranks", i), f"{step.collective} is between ranks, and {rank} is none", "name ranks by number"
        elif step.ranks and rank in step.ranks[:i]:
            yield ("ranks", i), f"{_end(rank)} stands twice", "each rank takes part once"
    taking_part = ranks if step.ranks is None else len(step.ranks)
    if entry.on_complexes and (step.aggregators or 0) > taking_part:
        yield ("aggregators",), f"{taking_part} ranks have {taking_part} complexes", f"1 to {taking_part}, or null"
    elif not entry.on_complexes and step.aggregators is not None and taking_part - step.aggregators < entry.min_ranks:
        what = f"{step.aggregators} of {taking_part} ranks aggregate, which leaves too few workers"
        yield ("aggregators",), what, f"at least {entry.min_ranks} workers"
        return
    if taking_part < entry.min_ranks or (entry.max_ranks is not None and taking_part > entry.max_ranks):
        needed = f"{entry.min_ranks} ranks"
        if entry.max_ranks is None:
            needed = f"at least {needed}"
        elif entry.max_ranks > entry.min_ranks:
            needed = f"{entry.min_ranks} to {entry.max_ranks} ranks"
        hint = f"name the ones to take part: ranks: {list(range(entry.min_ranks))}" if taking_part == ranks > 2 else ""
        hint = hint if whole else "of so large a fabric all ranks take part: predict it on a small one"
        yield () if step.ranks is None else ("ranks",), f"{step.collective} takes {needed}, not {taking_part}", hint


def flows(flows: list[Flow], spec: FabricSpec, fabric: Fabric) -> Iterator[Found]:
    for i, flow in enumerate(flows):
        for key, what, hint in _of_flow(flow, spec, fabric):
            if flow.place:
                yield ("flows",), f"{flow.place}: column {key}: {what}", hint
            else:
                yield ("flows", i, key), what, hint


def _of_flow(flow: Flow, spec: FabricSpec, fabric: Fabric) -> Iterator[tuple[str, str, str]]:
    for key, rank in (("from", flow.from_), ("to", flow.to)):
        if problem := endpoint.missing(rank, fabric):
            yield key, *problem
    if flow.from_ == flow.to:
        yield "to", f"a flow from {_end(flow.to)} to itself", "name two different ranks"
    its = flow.traffic_class
    if its is not None and dscp_of(its, spec) is None:
        what = f"no DSCP is in class {its}, so nothing can be sent in it"
        yield "class", what, f"fabric.switch.dscp: {{{its * 8}: {its}}} beside the others"
