"""From the step `train` of an experiment to a training step and its ranks' places; and everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from testbed.base.types import unknown
from testbed.base.units import format_size
from testbed.experiment.blocks.known import misshapen
from testbed.experiment.blocks.transport import Own
from testbed.experiment.steps.step import Blocks, Found, Path, Step, below, no_dscp, of_groups, under
from testbed.experiment.steps.train import Train
from topologies.graph.fabric import Fabric
from topologies.kinds import axes
from workloads.base.entry import Algorithm
from workloads.registry import ALGORITHMS
from workloads.steps.build import group_sizes, step_groups
from workloads.steps.fraction import too_small
from workloads.steps.memory import Memory, memory
from workloads.steps.plan.experts import Gating
from workloads.steps.plan.gpu import PRESETS as GPUS
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import PRESETS as MODELS
from workloads.steps.plan.model import Model
from workloads.steps.plan.parallel import Layout, Parallel
from workloads.steps.plan.placement import CannotPlace, placed
from workloads.steps.plan.schedules import CHUNKS
from workloads.steps.plan.training import RECOMPUTE, SHARDS, Training, problems
from workloads.tasks.graph import Settings

if TYPE_CHECKING:
    from testbed.experiment.blocks.fabric import FabricSpec
    from testbed.experiment.steps.train import Gpu as GpuOf
    from testbed.experiment.steps.train import GroupOf, TrainModel

_NEEDED = ("layers", "hidden", "heads", "seq")
_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
_OPTIMIZER_STEP = "optimizer_step"


class Mistakes(ValueError):
    """A step that cannot be: `found` is everything, with paths below `train`."""

    def __init__(self, found: list[Found]) -> None:
        super().__init__(found[0][1])
        self.found = found


def training_of(train: Train) -> Training:
    """Raises Mistakes for what is missing or unknown; `problems` has the rest."""
    model = model_of(train.model)
    if isinstance(train.schedule, str):
        schedule, chunks = train.schedule, CHUNKS.get(train.schedule, 1)
    else:
        schedule, chunks = "interleaved", train.schedule.interleaved
    p = train.parallel
    return Training(
        model=model,
        gpu=gpu_of(train.gpu, model.dtype),
        parallel=Parallel(
            tensor=p.tensor,
            context=p.context,
            data=p.data,
            pipeline=p.pipeline,
            expert=p.expert,
            sequence=p.sequence,
            scatter_gather=p.scatter_gather,
        ),
        micro=train.batch.micro,
        count=train.batch.count,
        schedule=schedule,
        chunks=chunks,
        shard=train.shard,
        recompute=train.recompute,
        bucket_bytes=train.buckets,
        first_bucket_bytes=train.first_bucket,
        root_unit=train.root_unit,
        gating=Gating(zipf=train.gating.zipf or 0.0, hot=train.gating.hot, capacity=train.gating.capacity),
        optimizer_in=_optimizer_in(train),
    )


def layout_of(train: Train, fabric: Fabric) -> Layout:
    """Which rank stands where.  Raises CannotPlace."""
    return _placed(train, training_of(train), fabric)


def settings_of(train: Train) -> dict[str, Settings]:
    """What holds for each group of ranks."""
    return {name: _settings(group) for name, group in train.groups.items()}


def mistakes(train: Train, spec: FabricSpec, fabric: Fabric) -> Iterator[Found]:
    """Everything that is wrong, with what is allowed."""
    try:
        t = training_of(train)
    except Mistakes as wrong:
        yield from wrong.found
        return
    if train.gating.zipf is not None and train.gating.hot is not None:
        yield ("gating", "hot"), "tokens go by zipf, or to a hot expert", "leave one of them out"
    yield from _classes(train, spec)
    if train.first_bucket is not None and train.shard != "none":
        what = f"{train.shard} gathers parameters by the buckets of their gradients, which are alike"
        yield ("first_bucket",), what, "leave it out, or shard: none"
    if train.root_unit and (t.shard != "fsdp" or t.parallel.pipeline > 1 or not t.model.vocab):
        what = "a root unit is FSDP's: embedding and head, on the same ranks"
        yield ("root_unit",), what, "shard: fsdp, no pipeline, a vocab; or leave it out"
    found = [_by_global(train, one) for one in problems(t)]
    yield from found
    if spec.topology.is_large:  # predictions place its ranks themselves
        yield from _scale(train, t)
        if not found:
            yield from _too_large(t)
            yield from _groups(train, t)
        return
    stored = list(_checkpoint(train, t, fabric))
    yield from stored
    if any(path == ("checkpoint", "to") for path, _, _ in stored):
        return
    try:
        layout = _placed(train, t, fabric)
    except CannotPlace as error:
        yield ("place", error.key) if error.key else ("parallel",), error.what, error.hint
        return
    yield from _scale(train, t)
    if not found:
        yield from _too_large(t)
        yield from _groups(train, t)
        yield from _shapes(train, t, layout, fabric)
        if train.scale and train.scale.by > 1:
            layers = min(train.scale.layers or [t.model.layers])
            few = replace(t, model=replace(t.model, layers=layers))
            small = too_small(few, layout, train.scale.by, spec.nic.mtu) if not next(problems(few), None) else ()
            yield from ((("scale", "by"), what, hint) for what, hint in small)


def _by_global(train: Train, found: Found) -> Found:
    """A number of micro-batches that does not go is said of the global batch, if that is what the file has."""
    path, what, hint = found
    if path != ("batch", "count") or train.batch.global_ is None:
        return found
    share = f"global / (micro {train.batch.micro} x data {train.parallel.data})"
    return ("batch", "global"), what, f"{share} is the number of micro-batches: {hint}"


def _placed(train: Train, t: Training, fabric: Fabric) -> Layout:
    return placed(t.parallel, {str(dimension): axis for dimension, axis in train.place.items()}, _axes(train, fabric))


def _axes(train: Train, fabric: Fabric) -> list[tuple[str, int]]:
    """Without the places that store checkpoints: the last ones of the outermost axis."""
    (name, length), *inner = axes(fabric)
    storing = len(train.checkpoint.to) // prod(n for _, n in inner) if train.checkpoint else 0
    return [(name, length - storing), *inner]


def _checkpoint(train: Train, t: Training, fabric: Fabric) -> Iterator[Found]:
    its = train.checkpoint
    if its is None:
        return
    (name, length), *inner = axes(fabric)
    each = prod(n for _, n in inner)
    last = list(range(fabric.ranks - len(its.to), fabric.ranks))
    if its.to != last or len(its.to) % each or len(its.to) >= fabric.ranks:
        what = f"storage is whole places of {name}, {each} rank{'s' if each > 1 else ''} each, and the last ones"
        yield ("checkpoint", "to"), what, f"to: {list(range(fabric.ranks - each, fabric.ranks))}"
    if train.scale:
        what = "a checkpoint is of the whole model, and scale runs a part of it"
        yield ("checkpoint",), what, "leave scale or checkpoint out"
    if its.steps is not None and its.mode == "async":
        what = "steps of a run follow each other, so that each would wait until an asynchronous one is written"
        yield ("checkpoint", "mode"), what, "mode: sync, or no steps: formulas say what an asynchronous one costs"
    if its.steps is not None and (train.iterations, train.warmup) != (1, 0):
        yield ("checkpoint", "steps"), "steps says how many are run", "leave iterations and warmup out"
    if t.optimizer_in:
        what = f"{t.optimizer_in} keeps the optimizer's state in NICs, and nothing reads it out of there"
        yield ("checkpoint",), what, "another algorithm for the group data"


def _classes(train: Train, spec: FabricSpec) -> Iterator[Found]:
    for name, group in train.groups.items():
        if problem := no_dscp(group.traffic_class, spec):
            yield ("groups", name, "traffic_class"), *problem


def model_of(its: TrainModel) -> Model:
    """Raises Mistakes, with paths from the step on."""
    written = {key: value for key, value in its if value is not None and key != "preset"}
    if its.preset is not None:
        if its.preset not in MODELS:
            raise Mistakes([(("model", "preset"), *unknown("model", its.preset, list(MODELS)))])
        return replace(MODELS[its.preset], **written)
    if missing := [key for key in _NEEDED if key not in written]:
        what = f"a model needs {', '.join(missing)}"
        raise Mistakes([(("model",), what, f"layers, hidden, heads, seq; or preset: {', '.join(MODELS)}")])
    filled = {"kv_heads": its.heads, "ffn": 4 * (its.hidden or 0), **written}
    return Model(**filled)


def gpu_of(its: GpuOf, dtype: str, any_type: bool = False) -> Gpu:
    """Of a model with elements of this type.  Raises Mistakes, with paths from the step on; with `any_type` not for a
    type that the preset does not know: that is computed as its widest.
    """
    written: dict[str, Any] = {"efficiency": its.efficiency} | {
        key: value for key in ("flops", "hbm", "memory") if (value := getattr(its, key)) is not None
    }
    if its.measured is not None:
        written["measured"] = its.measured.measured(dtype)
    if its.preset is None:
        if its.flops is None:
            raise Mistakes([(("gpu",), "a GPU without FLOP/s", f"flops: 989T, or preset: {', '.join(GPUS)}")])
        return Gpu(**written)
    if its.preset not in GPUS:
        raise Mistakes([(("gpu", "preset"), *unknown("GPU", its.preset, list(GPUS)))])
    by_type = GPUS[its.preset]
    if any_type and dtype not in by_type:
        return replace(list(by_type.values())[-1], **written)
    if dtype not in by_type and its.flops is None:
        what = f"it is not known how many FLOP/s {its.preset} has in {dtype}"
        raise Mistakes([(("gpu", "preset"), what, f"model: {{dtype: {' or '.join(by_type)}}}, or write flops, too")])
    return replace(by_type.get(dtype, next(iter(by_type.values()))), **written)


def _scale(train: Train, t: Training) -> Iterator[Found]:
    if train.scale is None or train.scale.layers is None:
        return
    few, more = train.scale.layers
    for k, layers in enumerate((few, more)):
        if layers % t.parts:
            chunks = " of chunks" if t.parts > t.parallel.pipeline else ""
            what = f"{layers} layers cannot be divided into {t.parts} stages{chunks}"
            yield ("scale", "layers", k), what, f"a multiple of {t.parts}"
    if not few < more < t.model.layers:
        what = f"from {few} and {more} layers the time of {t.model.layers} does not follow"
        yield ("scale", "layers"), what, f"two numbers below {t.model.layers}, the smaller one first"


def _too_large(t: Training) -> Iterator[Found]:
    """Whether the fullest rank holds what it has to."""
    room = t.gpu.memory
    if room is None:
        return
    stage, its = fullest(t)
    if its.all <= room:
        return
    where = f"a rank of stage {stage}" if t.parallel.pipeline > 1 else "a rank"
    what = (
        f"the model does not fit: {where} needs {gigabytes(its.all)}, {gigabytes(its.all - room)} more than the "
        f"GPU's {gigabytes(room)} ({_parts(its)})"
    )
    yield ("gpu",), what, _what_would_fit(t, room)


def fullest(t: Training) -> tuple[int, Memory]:
    """The stage whose ranks hold most, and what."""
    needed = {stage: memory(t, stage) for stage in range(t.parallel.pipeline)}
    stage = max(needed, key=lambda s: needed[s].all)
    return stage, needed[stage]


def _what_would_fit(t: Training, room: int) -> str:
    """The least change of sharding and recomputation with which it fits."""
    for recompute in RECOMPUTE[RECOMPUTE.index(t.recompute) :]:
        for shard in SHARDS[SHARDS.index(t.shard) :]:
            other = replace(t, recompute=recompute, shard=shard)
            if (recompute, shard) == (t.recompute, t.shard) or next(problems(other), None):
                continue
            most = fullest(other)[1].all
            if most <= room:
                changed = {"recompute": recompute} if recompute != t.recompute else {}
                changed |= {"shard": shard} if shard != t.shard else {}
                return f"with {', '.join(f'{k}: {v}' for k, v in changed.items())} it needs {gigabytes(most)}"
    return "more ranks of tensor or pipeline, a smaller micro-batch, or another GPU"


def _parts(m: Memory) -> str:
    return ", ".join(f"{f.name} {gigabytes(getattr(m, f.name))}" for f in fields(m))


def gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f}GB" if nbytes >= 10**8 else format_size(nbytes)


# Groups


def entries_of(algorithm: str) -> dict[str, Algorithm]:
    """collective -> entry, of those that a training step has."""
    return {c: ALGORITHMS[c, algorithm] for c in (*_COLLECTIVES, _OPTIMIZER_STEP) if (c, algorithm) in ALGORITHMS}


def _optimizer_in(train: Train) -> str | None:
    """Gradients go in, parameters come out: an algorithm of optimizer_step that the group `data` has."""
    algorithm = train.groups["data"].algorithm if "data" in train.groups else None
    return algorithm if algorithm and list(entries_of(algorithm)) == [_OPTIMIZER_STEP] else None


def _settings(group: GroupOf) -> Settings:
    algorithms = dict.fromkeys(entries_of(group.algorithm), group.algorithm) if group.algorithm else {}
    options = {"compression": group.compression} if group.compression else {}
    return Settings(group.traffic_class, algorithms, options, group.transport)


def _shapes(train: Train, t: Training, layout: Layout, fabric: Fabric) -> Iterator[Found]:
    """Whether groups have the shape that their algorithms need."""
    there = step_groups(t, layout)
    for name, group in train.groups.items():
        for entry in _entries(train, t, name, group.algorithm).values() if name in there else ():
            if problem := misshapen(entry, list(there[name][0]), fabric):
                yield ("groups", name, "algorithm"), *problem


def _entries(train: Train, t: Training, name: str, algorithm: str | None) -> dict[str, Algorithm]:
    """What a group does by its algorithm: collective -> entry."""
    if algorithm is None:
        return {}
    if name == "data" and _optimizer_in(train):
        return entries_of(algorithm)
    return {c: e for c, e in entries_of(algorithm).items() if c in _uses(t).get(name, ())}


def _groups(train: Train, t: Training) -> Iterator[Found]:
    there = group_sizes(t)
    uses = _uses(t)
    for name, group in train.groups.items():
        if name not in there:
            what, hint = f"this step has no group {name!r} of several ranks", f"it has {', '.join(there) or 'none'}"
            yield ("groups", name), what, hint
            continue
        if group.algorithm is None:
            if group.compression:
                yield ("groups", name, "compression"), "nobody compresses", "algorithm: direct_reduce"
            continue
        its = uses.get(name, ())
        known = sorted({a for c, a in ALGORITHMS if c in its})
        entries = _entries(train, t, name, group.algorithm)
        if not entries:
            what, hint = unknown("algorithm", group.algorithm, known)
            yield ("groups", name, "algorithm"), f"{what} of {' and '.join(its) or 'what this group does'}", hint
            continue
        dtype = "float32" if _optimizer_in(train) else t.model.dtype
        ranks = there[name]
        for collective, entry in entries.items():
            if entry.waits:
                what = f"{entry} cannot run beside other work: it needs its ranks for itself"
                yield ("groups", name, "algorithm"), what, unknown("algorithm", "", known)[1]
            if dtype not in entry.dtypes:
                hint = f"model: {{dtype: {entry.dtypes[0]}}}"
                yield ("groups", name, "algorithm"), f"{entry} does not add up {dtype}", hint
            if ranks < entry.min_ranks or (entry.max_ranks is not None and ranks > entry.max_ranks):
                yield ("groups", name, "algorithm"), f"{collective} by {entry.name} is not for {ranks} ranks", "another"
        if group.compression:
            if not any("compression" in e.extra for e in entries.values()):
                yield ("groups", name, "compression"), f"{group.algorithm} does not compress", "leave compression out"
            elif dtype != "float32":
                yield ("groups", name, "compression"), f"compression is of float32, not of {dtype}", "dtype: float32"


def _uses(t: Training) -> dict[str, tuple[str, ...]]:
    """The collectives of each group."""
    shares = ("all_reduce",) if t.shard == "none" else ("reduce_scatter", "all_gather")
    tensor: tuple[str, ...]
    tensor = ("all_gather", "reduce_scatter", "all_reduce") if t.parallel.sequence else ("all_reduce",)
    tensor += ("all_gather",) if t.parallel.scatter_gather else ()
    return {
        "tensor": tensor,
        "data": shares,
        "expert_data": shares,
        "expert": ("all_to_all",),
        "embedding": ("all_reduce",),
    }


class TrainStep(Step):
    kind: ClassVar[str] = "train"
    title: ClassVar[str] = "a training step"
    tables: ClassVar[Mapping[str, str]] = {"A group of a training step": "GroupOf"}

    train: Train = Field(description="a training step, forward, backward and optimizer")

    def own_transports(self) -> Iterator[tuple[Path, tuple[Own | None, ...]]]:
        yield from super().own_transports()
        yield from of_groups((self.kind,), self.transport, self.train.groups)

    @classmethod
    def written_algorithms(cls, written: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Of what its groups may do."""
        for group in under(under(written, "train"), "groups").values():
            if isinstance(group, dict):
                yield from ((c, group.get("algorithm")) for c in (*_COLLECTIVES, _OPTIMIZER_STEP))

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        yield from below(("train",), mistakes(self.train, blocks.fabric, fabric))

    def beside(self, at: Path, blocks: Blocks) -> Iterator[Found]:
        """What a run that goes on after failures cannot have beside it."""
        if not self.train.checkpoint or self.train.checkpoint.steps is None:
            return
        where = (*at, "train", "checkpoint", "steps")
        if blocks.clock.mode != "virtual":
            yield where, "a run goes on after failures with the virtual clock only", "clock: virtual"
        if len(blocks.workload) > 1:
            what = "a run that goes on after failures has one step of the workload"
            yield where, what, "an experiment of its own for each"
        for k, injection in enumerate(blocks.inject):
            if injection.fault.name == "worker_frozen" and injection.lasts is None:
                what = "a rank that stands still for ever has not ended: its launcher would wait, too"
                yield ("inject", k), what, "for: 1ms, or worker_killed"

    def algorithms(self, ranks: int) -> list[tuple[str, str]]:
        return [pair for its in settings_of(self.train).values() for pair in its.algorithms.items()]

    def not_predicted(self) -> Iterator[Found]:
        if self.train.checkpoint is not None:
            yield ("train", "checkpoint"), "there is no model of disks", "or leave it out"

    @property
    def scaled_by(self) -> int:
        return self.train.scale.by if self.train.scale else 1

    def unscalable(self) -> Iterator[Found]:
        for name, group in self.train.groups.items():
            if group.algorithm and not all(e.schedule for e in entries_of(group.algorithm).values()):
                what = f"{group.algorithm} goes by packets and slots, of which there is no 1/{self.scaled_by}"
                yield ("train", "groups", name, "algorithm"), what, "ring"

    def whole(self) -> Self:
        return self.model_copy(update={"train": self.train.model_copy(update={"scale": None})})

    def training(self) -> Training:
        return training_of(self.train)
