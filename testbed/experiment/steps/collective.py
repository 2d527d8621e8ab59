"""The step that is a collective: what the ranks do together, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from testbed.base.types import Time, mistake, names, unknown
from testbed.base.units import format_size
from testbed.experiment.blocks import known, own
from testbed.experiment.blocks.layout import Endpoint, group
from testbed.experiment.blocks.transport import Own
from testbed.experiment.steps.flows import BufferSize, end_name
from testbed.experiment.steps.programs import Feed, Message, Storage
from testbed.experiment.steps.step import Blocks, Found, Path, Step, rank_out_of_range
from topologies.graph import endpoint
from topologies.graph.fabric import Fabric
from topologies.ranks.grid import NoGrid
from workloads.base.vocabulary import AUTO, LIBRARY, MOST_TREES
from workloads.registry import choices, find, unpredicted

if TYPE_CHECKING:
    from workloads.base.entry import Algorithm

Part = Annotated[int, Field(ge=0, le=1 << 20)]


def _heeded(key: str, description: str, **bounds: Any) -> Any:
    """A key that only some algorithms heed."""
    return Field(default=None, description=description, json_schema_extra=known.heeded(key), **bounds)


class CollectiveStep(Step):
    kind: ClassVar[str] = "collective"
    title: ClassVar[str] = "a collective"

    collective: str = Field(description="what the ranks do together", json_schema_extra=names(known.collectives))
    algorithm: str = Field(
        default_factory=str,
        description="how they do it (the first that the collective has); `auto`: the fastest by its expected time; "
        "or one of your own (docs/own-algorithms.md)",
        json_schema_extra=known.algorithm_or_file,
    )
    sizes: list[BufferSize] = Field(
        default_factory=list,
        max_length=1000,
        description="each is measured: bytes in the sense of nccl-tests (see below; a barrier has none)",
    )
    dtype: str = Field(default="float32", description="type of an element", json_schema_extra=names(known.dtypes))
    op: str | None = Field(
        default=None,
        description="how elements are combined (left out: `sum`, or nothing to combine)",
        json_schema_extra=names(lambda: [*known.ops(), None]),
    )
    iterations: int = Field(default=1, ge=1, le=10**6, description="measured repetitions of each size")
    warmup: int = Field(default=0, ge=0, le=10**6, description="repetitions before those, not measured")
    ranks: list[Endpoint] | None = Field(
        default=None,
        description="the ranks that take part, in ring order (null: all, so that ring neighbours are near); of a "
        "ping_pong also compute complexes of their NICs, `nic:RANK.complex`",
    )
    groups: list[list[int]] | None = Field(
        default=None, min_length=1, max_length=64,
        description="instead of `ranks`: several groups, each does the same by itself, all at the same time",
    )  # fmt: skip
    transports: list[Own] | None = Field(
        default=None, min_length=1, max_length=64,
        description="with `groups`: what each of them sends by, as `transport`, which it goes before",
    )  # fmt: skip
    chunk: BufferSize | None = Field(
        default=None,
        gt=0,
        description="pieces that the hosts' algorithms are pipelined by (null: the algorithm's, or what `auto` takes)",
    )
    offloads: bool | None = Field(
        default=None, description="auto: it may also take what NICs and switches do, where these have what it needs"
    )
    senders: int | None = _heeded("senders", "how many of the ranks send, the first ones (null: half)", ge=1)
    skew: float | None = _heeded(
        "skew",
        "how unequal the parts are, from 0 (equal) to 1 (Zipf's law; the default)",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    parts: list[list[Part]] | None = _heeded(
        "parts",
        "instead of `skew`: weights of the parts, for each sender one for each receiver "
        "(n2m: for each receiver one for each sender; where each rank has one part, one row); the largest row is "
        "`size` (null: by `skew`)",
        min_length=1,
        max_length=4096,
    )

    density: float | None = _heeded(
        "density", "share of a rank's blocks that are not zero (1)", ge=0, le=1, allow_inf_nan=False
    )
    overlap: float | None = _heeded(
        "overlap", "share of those blocks that is the same at all ranks (0)", ge=0, le=1, allow_inf_nan=False
    )
    block: int | None = _heeded("block", "elements of a block (256)", ge=1, le=1 << 20)
    fusion: int | None = _heeded("fusion", "blocks in a message, at most (4)", ge=1, le=32)
    slots: int | None = Field(
        default=None, ge=1, le=65535,
        description="omnireduce: messages under way at a time, for each rank (256); "
        "in_network: slots that it asks for, in_network_best_effort: blocks under way, at most "
        "(null: rate x round trip)",
    )  # fmt: skip
    spot: int | None = _heeded(
        "spot", "blocks of a window, for which a spot has room (null: 256, or what the cache allows)", ge=1, le=1 << 16
    )
    aggregators: int | None = Field(
        default=None, ge=1,
        description="omnireduce: this number of ranks, the last ones, only aggregate (null: every rank has a share); "
        "omniccl: this number of compute complexes, the first ones, aggregate (null: all)",
    )  # fmt: skip
    timeout: Annotated[Time, Field(gt=0, le=1e9)] | None = _heeded(
        "timeout", "contribute again after this long without a result (null: slots x the time of a frame + round trip)"
    )
    trees: int | None = _heeded(
        "trees",
        "trees that share the vector among them, each with a root of its own as far as there are so many (null: 1, or "
        "what `auto` takes)",
        ge=1,
        le=MOST_TREES,
    )
    chains: int | None = _heeded("chains", "how many ranks send at a time (null: all)", ge=1)
    cutoff: Annotated[Time, Field(gt=0, le=1e9)] | None = _heeded(
        "cutoff", "data this much overdue is fetched from the ring neighbour (20us)"
    )

    compression: Literal["bfp"] | None = _heeded(
        "compression", "block floating point on the cables, 16 float32 in 17 bytes (null: as they are)"
    )
    optimizer: Literal["sgd", "adam"] | None = _heeded("optimizer", "SGD with momentum 0.9, or Adam (sgd)")
    message: Message | None = _heeded("message", "the calls' messages, and what they cost (docs/smartnic-programs.md)")
    storage: Storage | None = _heeded(
        "storage", "blocks, replicas, and what the middle tier takes (docs/smartnic-programs.md)"
    )
    feed: Feed | None = _heeded(
        "feed", "batches, what servers and accelerators take for one, and who gets it (docs/smartnic-programs.md)"
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_collective(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict) or value.get("collective") not in known.collectives():
            return value
        filled = {"algorithm": known.algorithms(value["collective"])[0], **value}
        if known.own(filled["algorithm"]):
            filled["algorithm"] = own.resolved(filled["collective"], filled["algorithm"], info)
        if known.own(filled["algorithm"]) or filled["algorithm"] in known.choices(value["collective"]):
            entry = known.entry(value["collective"], filled["algorithm"])
            filled.setdefault("op", entry.ops[0] if entry.ops else None)
            defaults = dict(entry.defaults)
            if filled.get("parts") is not None:
                if filled.get("skew") is not None:
                    raise mistake("parts say how unequal they are, and so does skew", "leave one of them out", ["skew"])
                defaults.pop("skew", None)
            filled |= {key: default for key, default in defaults.items() if filled.get(key) is None}
            if not entry.collective.sized:
                filled.setdefault("sizes", ["0B"])
        return filled

    @classmethod
    def written_algorithms(cls, written: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        yield written.get("collective"), written.get("algorithm")

    def own_transports(self) -> Iterator[tuple[Path, tuple[Own | None, ...]]]:
        yield from super().own_transports()
        for i, its in enumerate(self.transports or ()):
            yield ("transports", i), (self.transport, its)

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        found = [*self.mistakes_among(fabric, blocks.fabric.topology.ranks), *_complexes(self, fabric)]
        found += _transports(self)
        if self.algorithm == LIBRARY and blocks.library is None:
            yield ("algorithm",), "there is no library that could choose", "say which: library: {name: nccl}"
        yield from found or own.mistakes(self, blocks.fabric.topology.ranks, blocks.seed)

    def algorithms(self, ranks: int) -> list[tuple[str, str]]:
        return [(self.collective, self.algorithm)]

    def considered(self) -> Iterator[tuple[Any, Algorithm]]:
        for entry in choices(self.collective, offloads=True) if self.offloads else ():
            if entry.offloaded and not entry.unpredicted:
                yield self, entry

    def named(self) -> Iterator[tuple[Any, Algorithm]]:
        if self.algorithm not in (AUTO, LIBRARY) and not known.own(self.algorithm):
            yield self, find(self.collective, self.algorithm)

    def not_predicted(self) -> Iterator[Found]:
        if (unknown := unpredicted(self.collective, self.algorithm)) is not None:
            yield (unknown[0],), unknown[1], ""
        if self.chains is not None:
            what = "there is no model of a multicast in chains, in which ranks wait for their turn"
            yield ("chains",), what, "or leave it out"
        if self.compression is not None:
            yield ("compression",), "there is no model of compression in NICs", ""

    def quickly(self, fabric: Fabric) -> Self:
        """With the first algorithm that these ranks can carry out for `auto`: to say which is fastest takes minutes."""
        if self.algorithm != AUTO:
            return self
        for entry in choices(self.collective):
            try:
                group(entry, self.ranks, fabric)
            except NoGrid:
                continue
            return self.model_copy(update={"algorithm": entry.name})
        return self

    @property
    def label(self) -> str:
        return f"{self.collective} by {own.short(self.algorithm)}"

    def mistakes_among(self, fabric: Fabric, ranks: int) -> Iterator[Found]:
        """`ranks`: of the fabric that is asked for, which `fabric` may only stand for."""
        if self.collective not in known.collectives():
            yield ("collective",), *unknown("collective", self.collective, known.collectives())
            return
        if not known.own(self.algorithm) and self.algorithm not in known.choices(self.collective):
            what, hint = unknown("algorithm", self.algorithm, known.choices(self.collective))
            yield ("algorithm",), f"{what} of {self.collective}", hint
            return
        entry = known.entry(self.collective, self.algorithm)
        if self.op is not None and not entry.ops:
            yield ("op",), f"{self.collective} combines nothing", "leave op out"
        elif self.op is not None and self.op not in entry.ops:
            yield ("op",), *unknown("op", self.op, entry.ops)
        elif not known.combines(self.op, self.dtype):
            what = f"{self.op} combines the bits of integers, not {self.dtype}"
            yield ("op",), what, "dtype: int32, or another integer"
        heeded = known.extra(self.collective, self.algorithm)
        for key in known.extras():
            if key not in heeded and getattr(self, key) is not None:
                what = f"{self.label} has no {key}"
                its = dict.fromkeys((*entry.parameters, *heeded))
                yield (key,), what, f"leave {key} out; it has {', '.join(its)}"
        if self.offloads is not None and self.algorithm != AUTO:
            what = f"{own.short(self.algorithm)} chooses nothing"
            yield ("offloads",), what, "leave offloads out, or algorithm: auto"
        there = ranks if self.ranks is None else len(self.ranks)
        for program in (self.message, self.storage, self.feed):
            if program is not None:
                yield from program.mistakes(self.sizes, there)
        if self.compression and self.dtype != "float32":
            yield ("compression",), f"compression is of float32, not of {self.dtype}", "leave compression out"
        if self.dtype not in entry.dtypes:
            yield ("dtype",), *unknown("dtype", self.dtype, entry.dtypes)
        else:
            yield from _sizes(self.sizes, self.dtype, entry)
        if self.chunk is not None and (least := max(self.sizes, default=0) // known.most_pieces()) > self.chunk:
            yield ("chunk",), f"a vector in more than {known.most_pieces()} pieces", f"for its sizes {least}B at least"
        if self.groups is not None:
            yield from _groups(self, entry, fabric, ranks)
            return
        problems = list(_ranks(self, entry, fabric, ranks))
        yield from problems
        if not problems:
            yield from _group(self, entry, fabric, ranks)


def _groups(step: CollectiveStep, entry: Algorithm, fabric: Fabric, all_ranks: int) -> Iterator[Found]:
    """Several groups of ranks: each as if it were alone, and no rank in two of them."""
    if step.ranks is not None:
        yield ("groups",), "a step has either ranks or groups", "leave one of them out"
    if step.algorithm in (AUTO, LIBRARY) or entry.on_complexes:
        yield ("groups",), f"{own.short(step.algorithm)} does not work in groups", "name an algorithm of ranks alone"
    seen: set[int] = set()
    for i, ranks in enumerate(step.groups or ()):
        alone = step.model_copy(update={"ranks": ranks, "groups": None})
        problems = list(_ranks(alone, entry, fabric, all_ranks)) or list(_group(alone, entry, fabric, all_ranks))
        yield from ((("groups", i, *path[1:]), what, hint) for path, what, hint in problems)
        for rank in sorted(seen.intersection(ranks)):
            yield ("groups", i), f"rank {rank} is in another group already", "each rank takes part once"
        seen |= set(ranks)


def _complexes(step: CollectiveStep, fabric: Fabric) -> Iterator[Found]:
    """Whether there are the compute complexes that a collective asks for."""
    if fabric.complexes or step.collective not in known.collectives():
        return
    if step.algorithm not in known.algorithms(step.collective):
        return
    if known.entry(step.collective, step.algorithm).on_complexes:
        what = f"{step.algorithm} works on compute complexes, and these NICs have none"
        yield ("algorithm",), what, "fabric.nic.kind: off_path"


def _transports(step: CollectiveStep) -> Iterator[Found]:
    """Whether each group has one, and hosts do it: NICs and switches go by what NICs have."""
    groups = len(step.groups or ())
    if step.transports and len(step.transports) != groups:
        what = f"{len(step.transports)} transports for {groups or 'no'} groups"
        yield ("transports",), what, "one for each of `groups`; `transport` is for all of them"
    if step.algorithm == AUTO or step.collective not in known.collectives() or known.own(step.algorithm):
        return
    if step.algorithm in known.choices(step.collective) and known.entry(step.collective, step.algorithm).offloaded:
        for path, _ in step.own_transports():
            what = f"{step.algorithm} is done by NICs and switches, which go by what each NIC has"
            yield path, what, "transport: {nics: {0-3: {..}}}, for the ranks that take part"


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
    if entry.collective.one_row:
        rows = 1
    elif "senders" in entry.extra:
        senders = step.senders or taking_part // 2
        rows, columns = senders, taking_part - senders
        if entry.collective.transposed:
            rows, columns = columns, rows
    assert step.parts is not None
    if len(step.parts) != rows or any(len(row) != columns for row in step.parts):
        whose = "receiver" if entry.collective.transposed else "sender"
        hint = f"{rows} rows (one a {whose}) of {columns}"
        if entry.collective.one_row:
            hint = f"one row of {columns}, a weight for each rank"
        yield ("parts",), f"the table is not for {rows} x {columns} ranks", hint
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
            yield ("ranks", i), f"{end_name(rank)} stands twice", "each rank takes part once"
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
        who = step.label if known.own(step.algorithm) else step.collective
        yield () if step.ranks is None else ("ranks",), f"{who} takes {needed}, not {taking_part}", hint
