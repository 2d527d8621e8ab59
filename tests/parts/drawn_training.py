"""Training steps drawn for fabrics of 8 to 64 ranks: plan, model, placement, and whether messages share a link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from math import prod

from hypothesis import assume
from hypothesis import strategies as st

from topologies import Fabric
from topologies.ranks.hops import Hops
from workloads.steps.plan.parallel import DIMENSIONS
from workloads.tasks.graph import Graph
from workloads.tasks.oracle import Times
from workloads.tasks.task import Collective, Send

RANKS = (8, 16, 32, 64)
LONGEST = {"tensor": 8, "context": 4, "data": 16, "pipeline": 8}
SCHEDULES = ("gpipe", "1f1b", "zero_bubble", "{interleaved: 2}")
SHARDS = ("none", "zero1", "zero2", "zero3", "fsdp")


@dataclass(frozen=True)
class Drawn:
    """`train` is the step as it stands in the file."""

    topology: str
    train: str


@st.composite
def drawn(draw: st.DrawFn, ranks: tuple[int, ...] = RANKS) -> Drawn:
    """A plan of two to four dimensions on a rail network."""
    n = draw(st.sampled_from(ranks))
    sizes = dict.fromkeys(DIMENSIONS, 1)
    for _ in range(n.bit_length() - 1):
        sizes[draw(st.sampled_from([name for name in DIMENSIONS if 2 * sizes[name] <= LONGEST[name]]))] *= 2
    split = {name: size for name, size in sizes.items() if size > 1}
    assume(len(split) > 1)
    place: dict[str, str] = {}
    if draw(st.booleans()):  # as one would: a dimension for itself in the servers, the others along the rails
        inside = draw(st.sampled_from([name for name, size in split.items() if size <= 8]))
        place = {name: "scale_up" if name == inside else "rail" for name in split}
        axes = {"scale_up": split[inside], "rail": n // split[inside]}
    else:
        gpus = draw(st.sampled_from([g for g in (2, 4, 8) if g < n]))
        axes = {"scale_up": gpus, "rail": n // gpus}
        left = dict(axes)
        for name in draw(st.permutations(sorted(split))):
            axis = draw(st.sampled_from([*sorted(axes), ""]))
            if axis and left[axis] % split[name] == 0:
                place[name], left[axis] = axis, left[axis] // split[name]
    schedule = draw(st.sampled_from(SCHEDULES)) if "pipeline" in split else "1f1b"
    layers = sizes["pipeline"] * (2 if "interleaved" in schedule else draw(st.sampled_from([1, 2])))
    width, seq = draw(st.sampled_from([64, 128])), draw(st.sampled_from([64, 128]))
    vocab = draw(st.sampled_from([0, 256]))
    told = {
        "model": _mapping({"layers": layers, "hidden": width, "heads": 8, "seq": seq, "vocab": vocab}),
        "gpu": "{preset: h100}",
        "batch": f"{{count: {sizes['pipeline'] * draw(st.sampled_from([1, 2]))}}}",
        "parallel": _mapping(split | ({"sequence": "true"} if "tensor" in split and draw(st.booleans()) else {})),
        "place": _mapping(place),
        "shard": draw(st.sampled_from(SHARDS)) if sizes["data"] * sizes["context"] > 1 else "none",
        "schedule": schedule,
        "buckets": draw(st.sampled_from(["64KiB", "25MiB"])),
    }
    topology = f"{{rail: {{servers: {axes['rail']}, gpus: {axes['scale_up']}, spines: 2}}}}"
    assert prod(sizes.values()) == n
    return Drawn(topology, _mapping(told))


def _mapping(told: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in told.items()) + "}"


def shares_a_link(graph: Graph, times: Times, fabric: Fabric) -> bool:
    """Whether anything is on a cable, or at a rank's end of its scale-up domain, while something else is."""
    hops = Hops(fabric)
    known: dict[tuple[tuple[int, int], ...], frozenset[object]] = {}

    def over(pairs: tuple[tuple[int, int], ...]) -> frozenset[object]:
        """The directions of cables that messages between them may take."""
        if pairs not in known:
            inside = {end for a, b in pairs if hops.in_scale_up(a, b) for end in (("from", a), ("to", b))}
            outside = {hop for a, b in pairs if not hops.in_scale_up(a, b) for hop in hops.between(a, b)}
            known[pairs] = frozenset(inside | outside)
        return known[pairs]

    receives = {send: receive for receive, send in graph.links.sends.items()}
    busy: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for rank, its in graph.tasks.items():
        for number, task in enumerate(its):
            if isinstance(task, Send):
                nodes, pairs = [(rank, number), receives[rank, number]], ((rank, task.peer),)
            elif isinstance(task, Collective) and rank == (members := graph.members(rank, task))[0]:
                nodes = list(graph.links.instances[rank, number].nodes.values())
                pairs = tuple(permutations(members, 2))
            else:
                continue
            when = [times[r, graph.tasks[r][k].id] for r, k in nodes]
            for link in over(pairs):
                busy[link].append((min(start for start, _ in when), max(end for _, end in when)))
    return any(
        later[0] < max(end for _, end in its[:k]) - 1
        for its in map(sorted, busy.values())
        for k, later in enumerate(its)
        if k
    )
