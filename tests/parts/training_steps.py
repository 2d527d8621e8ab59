"""Training steps for tests: small models, steps whose computations take what a test says, what a rank sends."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from workloads.steps.build import step_graph
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import Model
from workloads.steps.plan.parallel import Layout
from workloads.steps.plan.placement import placed
from workloads.steps.plan.training import Training
from workloads.steps.roofline import Cost, Times
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Send, Task

GPU = Gpu(flops=100e12)

SMALL = Model(layers=8, hidden=64, heads=4, kv_heads=4, ffn=256, seq=64, dtype="float32")


def constant(forward_ns: float, backward_ns: float, weights_ns: float = 0.0) -> Times:
    """A layer of no parts, which takes so long; all in the MLP's first half."""
    none = Cost()
    return Times(none, none, none, Cost(forward_ns, backward_ns, weights_ns), none)


def in_order(t: Training) -> Layout:
    """Ranks as Megatron numbers them."""
    return placed(t.parallel, {}, [("ranks", t.parallel.ranks)])


def graph_of(t: Training, own: Times | None = None) -> Graph:
    return step_graph(t, in_order(t), own=own)


def payload(graph: Graph, task: Task, rank: int) -> Fraction:
    """Bytes that a rank sends for a task, by what its collective is (algorithms that waste nothing)."""
    if isinstance(task, Send):
        return Fraction(task.size_bytes)
    if not isinstance(task, Collective):
        return Fraction(0)
    n = len(graph.members(rank, task))
    times = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}[task.collective]
    return Fraction(times * task.size_bytes * (n - 1), n)


def sent(graph: Graph, rank: int) -> dict[str, Fraction]:
    """Bytes that a rank sends, by the group for which it does."""
    total: dict[str, Fraction] = defaultdict(Fraction)
    for task in graph.tasks[rank]:
        if isinstance(task, Collective | Send):
            total[task.group] += payload(graph, task, rank)
    return dict(total)
