"""AICB's text workloads, as SimAI reads them, as a graph of tasks: a line for each layer, with times and collectives.

A step goes forward through the layers, each computing and then communicating, and back again: the gradient of a layer's
input and its collective, then that of its weights, whose collective nobody waits for.  Tensor-parallel groups are
neighbours, and expert groups are made of whole data-parallel neighbours, as in Megatron's order of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.base.vocabulary import DTYPES
from workloads.chakra.et import BadTrace
from workloads.chakra.names import ELEMENTS, MOST_NS
from workloads.tasks.check import Members
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective, Compute, Task

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
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
_ONES = ("pp", "checkpoints", "checkpoint_initiates")


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


def load(path: Path, ranks: int) -> Graph:
    """The graph on so many ranks.  Raises BadTrace."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise BadTrace(f"larger than {MOST_BYTES >> 20} MiB", str(path))
        return parse(raw.decode(), ranks, str(path))
    except OSError as error:
        raise BadTrace(f"cannot be read: {error.strerror}", str(path)) from None
    except UnicodeDecodeError:
        raise BadTrace("it is no text", str(path)) from None


def parse(text: str, ranks: int, name: str = "workload") -> Graph:
    """The graph on so many ranks.  Raises BadTrace, with the line."""
    lines = [(n, line.split()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) < 2:
        raise BadTrace("no workload of AICB: it has no head and no number of layers", name)
    tensor, expert = _head(lines[0][1], ranks, f"{name}:1")
    where, count = f"{name}:{lines[1][0]}", lines[1][1]
    if len(count) != 1 or _whole(count[0], "the number of layers", where) != len(lines) - 2:
        raise BadTrace(f"{count[0][:20]} layers are announced, and there are {len(lines) - 2}", where)
    if len(lines) - 2 > MOST_LAYERS:
        raise BadTrace(f"more than {MOST_LAYERS} layers", where)
    layers = [_layer(fields, f"{name}:{n}") for n, fields in lines[2:]]
    return _graph(layers, groups(ranks, tensor, expert))


def groups(ranks: int, tensor: int, expert: int) -> dict[str, tuple[Members, ...]]:
    """Groups of each kind: neighbours, then those at the same place of the neighbourhoods around them."""
    data, apart = ranks // tensor, ranks // tensor // expert
    return {
        "tensor": tuple(tuple(range(d * tensor, (d + 1) * tensor)) for d in range(data)),
        "data": tuple(tuple(range(t, ranks, tensor)) for t in range(tensor)),
        "expert": tuple(
            tuple((k * expert + e) * tensor + t for e in range(expert)) for k in range(apart) for t in range(tensor)
        ),
        "expert_data": tuple(
            tuple((k * expert + e) * tensor + t for k in range(apart)) for e in range(expert) for t in range(tensor)
        ),
    }


def _head(words: list[str], ranks: int, where: str) -> tuple[int, int]:
    """Ranks of a tensor-parallel group and of an expert group."""
    if words[0] != HEAD:
        raise BadTrace(f"a workload of kind {words[0][:40]!r} is not read, only {HEAD}", where)
    told = {key.rstrip(":"): value for key, value in zip(words[1::2], words[2::2], strict=False)}
    values = {key: _whole(value, key, where) for key, value in told.items() if key != "pp_comm"}
    if "model_parallel_NPU_group" not in values:
        raise BadTrace("model_parallel_NPU_group is missing", where)
    for key in _ONES:
        least = 1 if key == "pp" else 0
        if values.get(key, least) != least:
            raise BadTrace(f"{key} {values[key]} is not read: {_WHY[key]}", where)
    if values.get("all_gpus", ranks) != ranks:
        raise BadTrace(f"it is of {values['all_gpus']} GPUs, and there are {ranks} ranks", where)
    tensor, expert = values["model_parallel_NPU_group"], values.get("ep", 1)
    if not tensor or not expert or ranks % (tensor * expert):
        what = f"{ranks} ranks are no whole number of groups of {tensor} (tensor) x {expert} (ep)"
        raise BadTrace(what, where)
    return tensor, expert


_WHY = {
    "pp": "which stage has which layers, the file does not say",
    "checkpoints": "layers are not computed again",
    "checkpoint_initiates": "layers are not computed again",
}


def _layer(fields: list[str], where: str) -> Layer:
    if len(fields) != FIELDS:
        raise BadTrace(f"a layer has {FIELDS} fields, and this has {len(fields)}", where, fields[0][:60])
    places = {2: "tensor", 5: "tensor", 8: "data"}
    phases = [_phase(fields[at : at + 3], plain, where, fields[0]) for at, plain in places.items()]
    return Layer(fields[0], *phases)


def _phase(fields: list[str], plain: str, where: str, name: str) -> Phase:
    """`plain`: the group of a collective that names none."""
    compute, kind, size = fields
    took = _whole(compute, "a time", where)
    nbytes = _whole(size, "a size", where)
    if took > MOST_NS:
        raise BadTrace(f"a computation takes more than {MOST_NS / 1e9:g} s", where, name[:60])
    if kind == "NONE" or not nbytes:
        return Phase(took, None)
    base, _, _ = kind.partition("_")
    suffix = kind.removeprefix(base)
    if base not in TYPES or suffix not in ("", *SUFFIXES):
        raise BadTrace(f"there is no collective {kind[:40]!r} (there is NONE, {', '.join(TYPES)})", where, name[:60])
    return Phase(took, (TYPES[base], SUFFIXES.get(suffix, plain), nbytes))


def _whole(word: str, what: str, where: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 19):
        raise BadTrace(f"{what} is {word[:20]!r}, and not a whole number", where)
    return int(word)


def _graph(layers: list[Layer], every: dict[str, tuple[Members, ...]]) -> Graph:
    """All ranks have the same tasks; a group of one rank has nothing to do."""
    tasks: list[Task] = []
    used: set[str] = set()
    waits: tuple[str, ...] = ()

    def phase(one: Phase, name: str, kind: str, *, blocks: bool) -> None:
        nonlocal waits
        if one.compute_ns:
            tasks.append(Compute(id=name, stream="gpu", after=waits, kind=kind, duration_ns=float(one.compute_ns)))
            waits = (name,)
        if one.collective is None or len(every[one.collective[1]][0]) == 1:
            return
        collective, group, size = one.collective
        used.add(group)
        members = len(every[group][0])
        dtype = next((d for d in ELEMENTS if size % (DTYPES[d] * members) == 0), ELEMENTS[-1])
        tasks.append(
            Collective(
                id=f"{name}.{collective}",
                stream=group,
                after=waits,
                kind=f"{kind} {group}",
                collective=collective,
                group=group,
                size_bytes=size,
                dtype=dtype,
            )  # fmt: skip
        )
        if blocks:
            waits = (tasks[-1].id,)

    for k, layer in enumerate(layers):
        phase(layer.forward, f"{k} {layer.name}.forward", "forward", blocks=True)
    for k, layer in reversed(list(enumerate(layers))):
        phase(layer.input_gradient, f"{k} {layer.name}.input", "input gradient", blocks=True)
        phase(layer.weight_gradient, f"{k} {layer.name}.weight", "weight gradient", blocks=False)
    ranks = sum(map(len, every["tensor"]))
    return Graph({name: every[name] for name in every if name in used}, {r: tuple(tasks) for r in range(ranks)})
