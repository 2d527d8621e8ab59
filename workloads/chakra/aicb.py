"""AICB's text workloads, as SimAI reads them, as a graph of tasks: a line for each layer, with times and collectives.

A step goes forward through the layers, each computing and then communicating, and back again: the gradient of a layer's
input and its collective, then that of its weights, whose collective nobody waits for.  Tensor-parallel groups are
neighbours, and expert groups are made of whole data-parallel neighbours, as in Megatron's order of ranks.

With `pp` stages the layers are those of each of them (AICB divides the model's number of layers by it), `ga` times, for
each micro-batch; what stands before and behind them is done once.  A stage goes forward through all micro-batches and
then back, as the state machine does, with a message of `pp_comm` bytes to the next or the previous one for each.

A micro-benchmark (`MICRO`) has collectives alone, those of weights, of all ranks, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workloads.base import named_file
from workloads.base.vocabulary import DTYPES
from workloads.chakra.et import BadTrace
from workloads.chakra.names import ELEMENTS, MOST_MESSAGE, MOST_NS
from workloads.tasks.check import Members
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Recv, Send, Task

HEAD, MICRO = "HYBRID_TRANSFORMER_FWD_IN_BCKWD", "MICRO"
FIELDS = 12
MOST_BYTES = 64 << 20
MOST_LAYERS = 100_000
TYPES = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
SUFFIXES = {"_EP": "expert", "_DP_EP": "expert_data", "_TP": "tensor", "_DP": "data"}
_NONE = ("checkpoints", "checkpoint_initiates")
MOST_APART = 64
"""Lines before and behind those of the micro-batches: gradients, embeddings, the loss."""


@dataclass(frozen=True)
class Phase:
    """A computation, and the collective behind it: what, in which group, of how many bytes; None: none."""

    compute_ns: int
    collective: tuple[str, str, int] | None


@dataclass(frozen=True)
class Layer:
    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase


@dataclass(frozen=True)
class Plan:
    """Ranks of a tensor-parallel and of an expert group; stages, micro-batches, bytes between stages."""

    tensor: int = 1
    expert: int = 1
    stages: int = 1
    micro_batches: int = 1
    between: int = 0


def load(path: Path, ranks: int) -> Graph:
    """The graph on so many ranks.  Raises BadTrace."""
    try:
        text = named_file.text(path, MOST_BYTES)
    except named_file.Unreadable as error:
        raise BadTrace(f"cannot be read: {error.what}", f"{path}:{error.line}" if error.line else str(path)) from None
    return parse(text, ranks, str(path))


def parse(text: str, ranks: int, name: str = "workload") -> Graph:
    """The graph on so many ranks.  Raises BadTrace, with the line."""
    lines = [(n, line.split()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) < 2:
        raise BadTrace("no workload of AICB: it has no head and no number of layers", name)
    micro = lines[0][1] == [MICRO]
    plan = Plan() if micro else _head(lines[0][1], ranks, f"{name}:1")
    where, count = f"{name}:{lines[1][0]}", lines[1][1]
    if len(count) != 1 or _whole(count[0], "the number of layers", where) != len(lines) - 2:
        raise BadTrace(f"{count[0][:20]} layers are announced, and there are {len(lines) - 2}", where)
    if len(lines) - 2 > MOST_LAYERS:
        raise BadTrace(f"more than {MOST_LAYERS} layers", where)
    layers = [_layer(fields, f"{name}:{n}") for n, fields in lines[2:]]
    every = groups(ranks, plan.tensor, plan.expert, plan.stages)
    if micro:
        return _micro(layers, every, name)
    return _graph(layers, every, plan, ranks, name)


def groups(ranks: int, tensor: int, expert: int, stages: int = 1) -> dict[str, tuple[Members, ...]]:
    """Groups of each kind in each stage: neighbours, then those at the same place of neighbourhoods around them."""
    each = ranks // stages
    data, apart = each // tensor, each // tensor // expert
    of_one: dict[str, list[Sequence[int]]] = {
        "tensor": [range(d * tensor, (d + 1) * tensor) for d in range(data)],
        "data": [range(t, each, tensor) for t in range(tensor)],
        "expert": [[(k * expert + e) * tensor + t for e in range(expert)] for k in range(apart) for t in range(tensor)],
        "expert_data": [
            [(k * expert + e) * tensor + t for k in range(apart)] for e in range(expert) for t in range(tensor)
        ],
    }
    return {
        name: tuple(tuple(first + rank for rank in members) for first in range(0, ranks, each) for members in own)
        for name, own in of_one.items()
    }


def _head(words: list[str], ranks: int, where: str) -> Plan:
    if words[0] != HEAD:
        raise BadTrace(f"a workload of kind {words[0][:40]!r} is not read, only {HEAD} and {MICRO}", where)
    settings = {key.rstrip(":"): value for key, value in zip(words[1::2], words[2::2], strict=False)}
    settings["pp_comm"] = settings.get("pp_comm", "0").removesuffix(".0")  # divided by tensor it is written as a float
    values = {key: _whole(value, key, where) for key, value in settings.items()}
    if "model_parallel_NPU_group" not in values:
        raise BadTrace("model_parallel_NPU_group is missing", where)
    for key in _NONE:
        if values.get(key):
            raise BadTrace(f"{key} {values[key]} is not read: layers are not computed again", where)
    if values.get("all_gpus", ranks) != ranks:
        raise BadTrace(f"it is of {values['all_gpus']} GPUs, and there are {ranks} ranks", where)
    expert = values.get("ep", values.get("expert_parallel_npu_group", 1))
    plan = Plan(values["model_parallel_NPU_group"], expert, values.get("pp", 1), values.get("ga", 1), values["pp_comm"])
    if not (plan.tensor and plan.expert and plan.stages) or ranks % (plan.tensor * plan.expert * plan.stages):
        sizes = f"{plan.tensor} (tensor) x {plan.expert} (ep)" + (f" x {plan.stages} (pp)" if plan.stages != 1 else "")
        raise BadTrace(f"{ranks} ranks are no whole number of groups of {sizes}", where)
    if plan.stages > 1 and not 0 < plan.between <= MOST_MESSAGE:
        raise BadTrace(f"pp_comm {plan.between}: what goes between stages has 1 to {MOST_MESSAGE} bytes", where)
    return plan


def _layer(fields: list[str], where: str) -> Layer:
    if len(fields) != FIELDS:
        raise BadTrace(f"a layer has {FIELDS} fields, and this has {len(fields)}", where, fields[0][:60])
    places = {2: "tensor", 5: "tensor", 8: "data"}
    phases = [_phase(fields[at : at + 3], plain, where, fields[0]) for at, plain in places.items()]
    return Layer(fields[0], *phases)


def _phase(fields: list[str], plain: str, where: str, name: str) -> Phase:
    """`plain`: the group of a collective that names none."""
    compute, kind, size = fields
    compute_ns = _whole(compute, "a time", where)
    nbytes = _whole(size, "a size", where)
    if compute_ns > MOST_NS:
        raise BadTrace(f"a computation takes more than {MOST_NS / 1e9:g} s", where, name[:60])
    if kind == "NONE" or not nbytes:
        return Phase(compute_ns, None)
    base, _, _ = kind.partition("_")
    suffix = kind.removeprefix(base)
    if base not in TYPES or suffix not in ("", *SUFFIXES):
        raise BadTrace(f"there is no collective {kind[:40]!r} (there is NONE, {', '.join(TYPES)})", where, name[:60])
    return Phase(compute_ns, (TYPES[base], SUFFIXES.get(suffix, plain), nbytes))


def _whole(word: str, what: str, where: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 19):
        raise BadTrace(f"{what} is {word[:20]!r}, and not a whole number", where)
    return int(word)


def _micro(layers: list[Layer], every: dict[str, tuple[Members, ...]], name: str) -> Graph:
    written = _Written(every)
    for k, layer in enumerate(layers):
        if layer.forward.collective or layer.input_gradient.collective:
            raise BadTrace(f"a micro-benchmark does collectives of weights alone, and {layer.name!r} has others", name)
        written.phase(
            replace(layer.weight_gradient, compute_ns=0), f"{k} {layer.name}", "weight gradient", blocks=False
        )
    return written.graph({rank: tuple(written.tasks) for rank in range(sum(map(len, every["tensor"])))})


def _graph(layers: list[Layer], every: dict[str, tuple[Members, ...]], plan: Plan, ranks: int, name: str) -> Graph:
    """All ranks of a stage have the same tasks, but for whom messages are to and from."""
    first, length = _micro_batches([layer.name for layer in layers], plan, name)
    each, tasks, used = ranks // plan.stages, dict[int, tuple[Task, ...]](), _Written(every)
    for stage in range(plan.stages):
        written = _Written(every)
        lines = _Lines(written, layers, plan, stage, each)
        lines.all(first, length)
        used.used |= written.used
        for rank in range(stage * each, (stage + 1) * each):
            tasks[rank] = tuple(
                replace(task, peer=rank + task.peer) if isinstance(task, Send | Recv) else task
                for task in written.tasks
            )
    return used.graph(tasks)


def _micro_batches(names: list[str], plan: Plan, name: str) -> tuple[int, int]:
    """Where the lines of the first micro-batch begin, and how many each has: they are alike."""
    count = plan.micro_batches if plan.stages > 1 else 1
    if count <= 1:
        return 0, len(names)
    for length in range(len(names) // count, max((len(names) - MOST_APART) // count, 1) - 1, -1):
        alike = 0
        for k in range(len(names) - length):
            alike = alike + 1 if names[k] == names[k + length] else 0
            if alike == (count - 1) * length:
                return k + 1 - alike, length
    raise BadTrace(f"its layers are not those of {count} micro-batches (ga), each with the same ones", name)


class _Written:
    """Tasks of a rank as they are written down; a group of one rank has nothing to do."""

    def __init__(self, every: dict[str, tuple[Members, ...]]) -> None:
        self.every = every
        self.tasks: list[Task] = []
        self.used: set[str] = set()
        self.waits: tuple[str, ...] = ()

    def phase(self, one: Phase, name: str, kind: str, *, blocks: bool) -> None:
        if one.compute_ns:
            duration = float(one.compute_ns)
            self.tasks.append(Compute(id=name, stream="gpu", after=self.waits, kind=kind, duration_ns=duration))
            self.waits = (name,)
        if one.collective is None or len(self.every[one.collective[1]][0]) == 1:
            return
        collective, group, size = one.collective
        self.used.add(group)
        members = len(self.every[group][0])
        dtype = next((d for d in ELEMENTS if size % (DTYPES[d] * members) == 0), ELEMENTS[-1])
        self.tasks.append(
            Collective(
                id=f"{name}.{collective}", stream=group, after=self.waits, kind=f"{kind} {group}",
                collective=collective, group=group, size_bytes=size, dtype=dtype,
            )
        )  # fmt: skip
        if blocks:
            self.waits = (self.tasks[-1].id,)

    def graph(self, tasks: dict[int, tuple[Task, ...]]) -> Graph:
        return Graph({name: tuples for name, tuples in self.every.items() if name in self.used}, tasks)


@dataclass
class _Lines:
    """What a stage does with its lines.  Messages are to and from so many ranks on, or back."""

    written: _Written
    layers: list[Layer]
    plan: Plan
    stage: int
    each: int

    def all(self, first: int, length: int) -> None:
        count = (self.plan.micro_batches if self.plan.stages > 1 else 1) or 1
        batches = [range(first + g * length, first + (g + 1) * length) for g in range(count)]
        last, inside = len(self.layers), batches[-1].stop
        self._forward(range(first))
        for g, lines in enumerate(batches):
            self._between(f"activations {g}", -1, 1, self._forward, lines)
        self._forward(range(inside, last))
        self._back(range(inside, last))
        for g, lines in reversed([*enumerate(batches)]):
            self._between(f"gradients {g}", 1, -1, self._back, lines)
        self._back(range(first))

    def _between(self, name: str, of: int, to: int, work: Callable[[range], None], lines: range) -> None:
        kind, (written, size) = name.partition(" ")[0], (self.written, self.plan.between)
        if 0 <= self.stage + of < self.plan.stages:
            receive = Recv(
                id=f"{name}.recv", stream=f"receive {kind}", kind=kind, peer=of * self.each, size_bytes=size, tag=name
            )
            written.tasks.append(receive)
            written.waits = (*written.waits, receive.id)
        work(lines)
        if 0 <= self.stage + to < self.plan.stages:
            written.tasks.append(
                Send(
                    id=f"{name}.send", stream=f"send {kind}", after=written.waits, kind=kind, peer=to * self.each,
                    size_bytes=size, tag=name,
                )
            )  # fmt: skip

    def _forward(self, lines: range) -> None:
        for k in lines:
            layer = self.layers[k]
            self.written.phase(layer.forward, f"{k} {layer.name}.forward", "forward", blocks=True)

    def _back(self, lines: range) -> None:
        for k in reversed(lines):
            layer = self.layers[k]
            self.written.phase(layer.input_gradient, f"{k} {layer.name}.input", "input gradient", blocks=True)
            self.written.phase(layer.weight_gradient, f"{k} {layer.name}.weight", "weight gradient", blocks=False)
