"""The graph of a training step: each rank's passes through its layers, and everything that goes between ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from workloads.steps.gradients import GRADIENTS, PARAMETERS, Buckets
from workloads.steps.layers import RECOMPUTED, Layers
from workloads.steps.plan import schedules, units
from workloads.steps.plan.parallel import Layout, Place
from workloads.steps.plan.schedules import Pass
from workloads.steps.plan.training import Training
from workloads.steps.program import Program
from workloads.steps.roofline import Times, optimizer_ns, times
from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Task

ACTIVATIONS, ACTIVATION_GRADIENTS, OPTIMIZER = "activations", "activation_gradients", "optimizer"

_LEAVES = {schedules.FORWARD: (ACTIVATIONS, 1), schedules.BACKWARD: (ACTIVATION_GRADIENTS, -1)}
"""What a pass leaves to a neighbour, and how many parts further on that is."""
ENDED = object()

Groups = Mapping[str, tuple[tuple[int, ...], ...]]


def step_graph(
    training: Training, layout: Layout, settings: Mapping[str, Settings] | None = None, own: Times | None = None
) -> Graph:
    """The tasks of all ranks.  `own`: times of a layer's parts, instead of those of the roofline."""
    return folded_graph(training, layout.ranks, step_groups(training, layout), settings, own)


def folded_graph(
    training: Training,
    some: Mapping[Place, int],
    groups: Groups,
    settings: Mapping[str, Settings] | None = None,
    own: Times | None = None,
) -> Graph:
    """The tasks of some ranks, which stand for all: the others of their groups do the same at the same times.

    `groups`: with all members; in the graph they have those members alone that have tasks.
    """
    layout, t = Layout(training.parallel, dict(some)), own or times(training)
    tasks = {rank: _Rank(training, layout, groups, t, place).tasks() for place, rank in some.items()}
    folded = {
        name: tuple(dict.fromkeys(kept for ranks in tuples if (kept := tuple(r for r in ranks if r in tasks))))
        for name, tuples in groups.items()
    }
    used = {name: chosen for name, chosen in (settings or {}).items() if name in groups}
    return Graph(folded, dict(sorted(tasks.items())), used)


def step_groups(training: Training, layout: Layout) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Name -> groups of ranks that do something together in this step."""
    groups = layout.groups(mirrored=training.mirrored)
    if training.model.tied and training.model.vocab and not training.ends_meet:
        groups["embedding"] = layout.ends()
    return groups


def group_sizes(training: Training) -> dict[str, int]:
    """Name -> ranks of each of these groups, without their places."""
    p, model = training.parallel, training.model
    sizes = {
        "tensor": p.tensor,
        "context": p.context,
        "pipeline": p.pipeline,
        "data": training.copies,
        "expert": p.expert,
        "expert_data": training.expert_copies if p.expert > 1 else 1,
        "embedding": 2 if model.tied and model.vocab and not training.ends_meet else 1,
    }
    return {name: size for name, size in sizes.items() if size > 1}


class _Rank:
    """The tasks of one rank."""

    def __init__(self, training: Training, layout: Layout, groups: Groups, t: Times, at: Place) -> None:
        p = training.parallel
        self._t, self._stage = training, at.pipeline
        self._program = Program(layout.ranks[at])
        self._groups = {name: g for name, tuples in groups.items() for g in tuples if self._program.rank in g}
        self._layers = Layers(training, t, self._program, self._groups)
        self._passes = schedules.schedule(training.schedule, p.pipeline, training.count, at.pipeline, training.chunks)
        self._apart = schedules.apart(self._passes)
        self._last = {step.chunk: step for step in self._passes if self._has_weights(step)}
        self._buckets = {"data": Buckets(training, self._program, "data", training.copies)}
        if p.expert > 1:
            self._buckets["expert_data"] = Buckets(training, self._program, "expert_data", training.expert_copies)
        self._reduced: list[str] = []
        self._uses = list(self._all_uses()) if training.gathers else []
        self._used = 0  # how many uses of parameters have begun
        self._gathers: dict[int, list[str]] = {}

    def tasks(self) -> tuple[Task, ...]:
        for k, step in enumerate(self._passes):
            if step.beside:
                continue
            both = self._passes[k : k + 2]
            if len(both) == 2 and both[1].beside:
                self._together(*both)
            else:
                self._receive(step)
                deque(self._do(step), maxlen=0)
                self._send(step)
                self._end_of(step)
        self._finish()
        return self._program.finished()

    # Passes

    def _do(self, step: Pass) -> Iterator[None]:
        """Half a layer at a time: the caller may do something else in between."""
        do = {schedules.FORWARD: self._forward, schedules.BACKWARD: self._backward, schedules.WEIGHTS: self._weights}
        return do[step.kind](step)

    def _together(self, forward: Pass, backward: Pass) -> None:
        """Half a layer of each in turn, so that one computes while the other's tokens are under way (DeepSeek-V3,
        figure 4).  Their messages to neighbours are those of one pass."""
        program = self._program
        for step in (forward, backward):
            self._receive(step)
        begun = program.thread
        ends, left = [], [(begun.copy(), self._do(backward)), (begun.copy(), self._do(forward))]
        while left:
            thread, half = left.pop(0)
            program.thread = thread
            if next(half, ENDED) is ENDED:
                ends.append(thread)
            else:
                left.append((thread, half))
        program.join(ends)
        for step in (forward, backward):
            self._send(step)
        self._end_of(backward)

    def _forward(self, step: Pass) -> Iterator[None]:
        name, layers = f"f{step.micro_batch}", self._layers
        for unit, number in self._chunk(step):
            if self._gathered(unit, step) is not None:
                self._use(f"{name}.{self._named(unit, step, number)}")
            if unit.name == "embedding":
                layers.embed(name)
            elif unit.name == "head":
                layers.predict(name)
            else:
                yield from layers.forward(f"{name}.{self._named(unit, step, number)}")

    def _backward(self, step: Pass) -> Iterator[None]:
        name, layers = f"b{step.micro_batch}", self._layers
        layers.split = (step.micro_batch, step.chunk) in self._apart
        for unit, number in reversed(list(self._chunk(step))):
            unit_name = f"{name}.{self._named(unit, step, number)}"
            if self._gathered(unit, step) is not None:
                self._use(unit_name)
            if unit.name == "embedding":
                layers.embed_backward(name)
                self._gradients(step, unit_name, unit)
            elif unit.name == "head":
                layers.predict_backward(name)
                self._gradients(step, unit_name, unit)
            else:
                if self._t.recompute == "full":
                    yield from layers.forward(f"r{unit_name[1:]}", RECOMPUTED)
                yield from layers.backward_mlp(unit_name)
                self._gradients(step, unit_name, units.feed_forward(self._t), part=True)
                layers.backward_attention(unit_name)
                self._gradients(step, unit_name, units.attention(self._t), part=True)
                self._gradients(step, unit_name, unit, whole=True)

    def _weights(self, step: Pass) -> Iterator[None]:
        """The gradients of weights by themselves.  An embedding has no other, they came with the backward pass."""
        name, layers = f"w{step.micro_batch}", self._layers
        for unit, number in reversed(list(self._chunk(step))):
            unit_name = f"{name}.{self._named(unit, step, number)}"
            if unit.name == "head":
                layers.predict_weights(name)
                self._gradients(step, unit_name, unit)
            elif unit.name == "embedding":
                self._gradients(step, unit_name, unit)
            else:
                layers.weights_mlp(unit_name)
                self._gradients(step, unit_name, units.feed_forward(self._t), part=True)
                layers.weights_attention(unit_name)
                self._gradients(step, unit_name, units.attention(self._t), part=True)
                self._gradients(step, unit_name, unit, whole=True)
        yield

    def _has_weights(self, step: Pass) -> bool:
        """Whether it computes gradients of weights."""
        if step.kind == schedules.BACKWARD:
            return (step.micro_batch, step.chunk) not in self._apart
        return step.kind == schedules.WEIGHTS

    def _chunk(self, step: Pass) -> Iterator[tuple[units.Unit, int]]:
        """The units that a pass goes through, forward, with their layers' numbers in the model."""
        if self._t.model.vocab and self._is_first(step):
            yield units.embedding(self._t), 0
        first = self._part(step) * self._t.layers
        for number in range(first, first + self._t.layers):
            yield units.layer(self._t), number
        if self._t.model.vocab and self._is_last(step):
            yield units.head(self._t), 0

    def _named(self, unit: units.Unit, step: Pass, number: int) -> str:
        return f"l{number}" if unit.name == "layer" else unit.name

    # Neighbours in the pipeline

    def _part(self, step: Pass) -> int:
        return schedules.part(self._t.schedule, self._t.parallel.pipeline, self._stage, step.chunk)

    def _is_first(self, step: Pass) -> bool:
        return self._part(step) == 0

    def _is_last(self, step: Pass) -> bool:
        return self._part(step) == self._t.parts - 1

    def _send(self, step: Pass) -> None:
        """What it leaves to the next part of the model, or to the one before."""
        kind, by = _LEAVES.get(step.kind, ("", 0))
        peer = self._neighbour(step, by)
        if peer is not None:
            name = f"{kind}{step.micro_batch}.{self._part(step) + by}"
            after = self._program.done()
            self._program.send(name, kind, peer, self._boundary, "pipeline", f"send_{kind}", after)

    def _receive(self, step: Pass) -> None:
        kind, by = _LEAVES.get(step.kind, ("", 0))
        peer = self._neighbour(step, -by)
        if peer is not None:
            name, stream = f"{kind}{step.micro_batch}.{self._part(step)}", f"receive_{kind}"
            self._program.wait(self._program.receive(name, kind, peer, self._boundary, "pipeline", stream))
            if self._t.parallel.scatter_gather:
                self._layers.gather(name)

    def _neighbour(self, step: Pass, by: int) -> int | None:
        """The rank with the part that is so far away; None: there is no such part, or this rank has it."""
        t, which = self._t, self._part(step) + by
        if not by or not 0 <= which < t.parts:
            return None
        like = schedules.Position(self._stage, step.chunk)
        stage = schedules.position(t.schedule, t.parallel.pipeline, which, like).stage
        return self._groups["pipeline"][stage] if stage != self._stage else None

    @property
    def _boundary(self) -> int:
        """Bytes of a micro-batch between two stages, from one rank to one."""
        t = self._t
        return t.routed * t.model.hidden * t.model.width // (t.parallel.tensor if t.parallel.scatter_gather else 1)

    # Sharded parameters

    def _all_uses(self) -> Iterator[units.Unit]:
        """The units in the order in which passes need their parameters."""
        for step in self._passes:
            if step.kind != schedules.WEIGHTS:
                gathered = (self._gathered(unit, step) for unit, _ in self._chunk(step))
                chunk = [unit for unit in gathered if unit is not None]
                yield from chunk if step.kind == schedules.FORWARD else reversed(chunk)

    def _gathered(self, unit: units.Unit, step: Pass) -> units.Unit | None:
        """What is gathered when a pass comes to a unit: FSDP's root unit once, with the embedding, and then stays."""
        if not self._t.root_unit or unit.name == "layer":
            return unit
        return units.root(self._t) if unit.name == "embedding" and step.kind == schedules.FORWARD else None

    def _use(self, name: str) -> None:
        """Parameters are needed from here on.  FSDP asks for the next ones, too, before it computes with these."""
        if not self._t.gathers:
            return
        at, behind = self._used, self._program.computed()
        self._used += 1
        if at not in self._gathers:
            self._ask(at, name, behind)
        if self._t.shard == "fsdp" and self._used < len(self._uses):
            self._ask(self._used, f"{name}.next", behind)
        self._program.wait(*self._gathers.pop(at))

    def _ask(self, use: int, name: str, after: tuple[str, ...]) -> None:
        """On the stream of the gradients: FSDP's one process group runs both in turn (Zhao et al. 2023, 3.3.2)."""
        self._gathers[use] = [
            self._program.collective(
                f"parameters.{name}.{group}", PARAMETERS, "all_gather", group, size, self._t.model.dtype, after=after
            )
            for group, size in self._shares(self._uses[use])
        ]

    def _shares(self, unit: units.Unit) -> Iterator[tuple[str, int]]:
        """Groups over which a unit is sharded, and its bytes, padded so that all have as much."""
        parts = {"data": unit.dense, self._expert_group: unit.expert}
        if self._expert_group == "data":
            parts["data"] = unit.dense + unit.expert
        for group, elements in parts.items():
            copies = self._buckets[group].copies
            if copies > 1 and elements:
                yield group, -(-elements // copies) * copies * self._t.model.width

    @property
    def _expert_group(self) -> str:
        return "expert_data" if "expert_data" in self._buckets else "data"

    # Gradients

    def _gradients(self, step: Pass, name: str, unit: units.Unit, *, part: bool = False, whole: bool = False) -> None:
        """A unit's gradients are there.  Of a layer, each half (`part`), and then all of it (`whole`)."""
        if not self._has_weights(step):
            return
        if self._t.root_unit and unit.name in ("embedding", "head"):
            if unit.name == "head":
                return
            unit = units.root(self._t)
        if self._t.gathers:
            if not part:
                for group, size in self._shares(unit):
                    request = f"gradients.{name}.{group}", GRADIENTS, "reduce_scatter", group, size
                    self._reduced.append(self._program.collective(*request, self._t.model.dtype))
            return
        if not whole and (self._t.reduces_always or step == self._last[step.chunk]):
            self._buckets["data"].add(unit.dense)
            self._buckets[self._expert_group].add(unit.expert)

    def _end_of(self, step: Pass) -> None:
        """ZeRO-2 has no room for gradients of the next micro-batch beside these."""
        if self._has_weights(step) and self._t.shard == "zero2":
            for buckets in self._buckets.values():
                buckets.flush()

    # The end of the step

    def _finish(self) -> None:
        t, program = self._t, self._program
        dense, expert = units.stage_parameters(t, self._stage)
        for buckets in self._buckets.values():
            buckets.flush()
            self._reduced += buckets.sent
        if t.parallel.sequence:
            self._reduced.append(self._summed("norms", "tensor", units.replicated(t, self._stage)))
        if "embedding" in self._groups:  # the first and the last stage have a copy each of one table
            table = -(-t.model.vocab * t.model.hidden // t.parallel.tensor)
            self._reduced.append(self._summed("embedding", "embedding", table))
        if t.optimizer_in:
            return
        program.wait(*self._reduced)
        parts = {"data": dense, self._expert_group: expert}
        if self._expert_group == "data":
            parts["data"] = dense + expert
        own = 0
        for group, elements in parts.items():
            own += -(-elements // (self._buckets[group].copies if t.shard != "none" else 1))
        program.compute(OPTIMIZER, "optimizer", optimizer_ns(t, own))
        if t.shard in ("zero1", "zero2"):
            after = program.done()
            for group, elements in parts.items():
                self._buckets[group].gather(elements, after)

    def _summed(self, name: str, group: str, elements: int) -> str:
        """Gradients of parameters that other groups than `data` have copies of, behind all others (Megatron's
        finalize_model_grads: norms, then the embedding)."""
        t = self._t
        if t.reduces_always:
            elements = -(-elements // t.copies)
        after = tuple(dict.fromkeys((*self._reduced, *self._program.done())))
        size = elements * t.model.width
        return self._program.collective(
            f"gradients.{name}", GRADIENTS, "all_reduce", group, size, t.model.dtype, after=after
        )
