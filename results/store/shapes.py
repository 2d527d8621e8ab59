"""Schemas of the files of a run's folder, as far as somebody relies on them.

A file that was edited or damaged may be valid JSON with wrong values: the first of them is named. Keys that are not
here may have any value, for other versions have others.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Required

from pydantic import Discriminator, Field, FiniteFloat, Tag, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

Number = FiniteFloat
"""A whole one, too."""
Rows = list[dict[str, Any]]


class Error(TypedDict):
    what: str


class State(TypedDict, total=False):
    state: Required[str]
    error: Error | None
    began: Number
    ended: Number | None


class Fidelity(TypedDict, total=False):
    verdict: Required[Literal["exact", "good", "doubtful", "invalid"]]
    reasons: Required[list[str]]
    advice: Required[list[str]]


class Totals(TypedDict, total=False):
    drops: dict[str, int]
    ecn_marked: int
    pause_rx: int
    retransmitted: int
    timeouts: int
    trimmed: int


class Summary(TypedDict, total=False):
    counters: Totals
    fidelity: Fidelity
    results: Rows
    metrics_sha256: str


class Group(TypedDict, total=False):
    ranks: Required[int]
    busbw_factor: Required[Number]
    sender: str


class Chosen(TypedDict):
    algorithm: str
    expected_ns: dict[str, Number]


class CollectiveStep(TypedDict, total=False):
    kind: Required[Literal["collective"]]
    collective: Required[str]
    algorithm: Required[str]
    dtype: Required[str]
    op: Required[str | None]
    ranks: Required[int]
    busbw_factor: Required[Number]
    groups: list[Group]
    chosen: dict[str, Chosen]


class FlowStep(TypedDict, total=False):
    kind: Required[Literal["flows"]]
    names: dict[str, str]
    senders: list[str]


class Program(TypedDict, total=False):
    number: Required[int]
    rank: Required[int]
    role: Required[str]
    argv: Required[list[str]]
    server: int | None


class ProgramStep(TypedDict):
    kind: Literal["program"]
    name: str
    ranks: int
    processes: list[Program]


class ChosenAlgorithm(TypedDict):
    group: str
    collective: str
    algorithm: str
    count: int


class RankMemory(TypedDict, total=False):
    rank: int
    ranks: list[int]
    peak: Required[int]
    parameters: int
    gradients: int
    optimizer: int
    activations: int


class StepMemory(RankMemory, total=False):
    each: list[RankMemory]
    of: str


class WholeModel(TypedDict, total=False):
    tokens: Required[Number]
    ideal_ns: Required[Number]
    memory: StepMemory | None


class Scale(TypedDict):
    layers: list[int]
    by: int
    expected_ns: list[Number]
    whole: WholeModel


class Serving(TypedDict, total=False):
    kind: Required[str]
    answers: list[int]
    gpus: Required[int]
    cost: Required[Number | None]
    output: int
    micro_batches: int
    busiest: int
    needed: Number | None
    attention_ns: Number
    expert_ns: Number
    dispatch_ns: Number
    combine_ns: Number
    wire_ns: Number
    form_between_ns: Number
    form_batch_ns: Number
    requests: list[list[Number]]
    pools: Rows


class TaskStep(TypedDict, total=False):
    kind: Required[Literal["tasks"]]
    name: Required[str]
    ranks: Required[int]
    tasks: int
    ways: list[ChosenAlgorithm]
    tokens: Number
    ideal_ns: Number
    memory: StepMemory
    scale: Scale
    serving: Serving
    checkpoint: dict[str, Number | str]
    going_on: dict[str, Any]


class Steps(TypedDict):
    steps: list[Annotated[CollectiveStep | FlowStep | ProgramStep | TaskStep, Discriminator("kind")]]


class Link(TypedDict):
    node: str
    port: int
    rate_bps: Number


class Port(TypedDict, total=False):
    node: Required[str]
    port: Required[int]
    tx_bytes: int
    rx_bytes: int
    tx_frames: int
    rx_frames: int
    ecn_marked: int
    drops: dict[str, int]
    priorities: dict[str, int]


class Drop(TypedDict):
    reason: str
    count: int


class Counters(TypedDict, total=False):
    time_ns: Number
    links: list[Link]
    ports: list[Port]
    nics: Rows
    qps: Rows
    switches: Rows
    accelerators: Rows
    drops: list[Drop]
    faults: Rows
    flows: Rows


class Mark(TypedDict):
    node: str
    port: int
    priority: int
    kmin_bytes: Number
    kmax_bytes: Number


class Thresholds(TypedDict, total=False):
    ecn: list[Mark]


class InForce(TypedDict, total=False):
    what: Required[str]
    line: Required[str | None]  # null: no command has put it in


class Live(TypedDict, total=False):
    fabric: str
    in_force: list[InForce]


class Tags(TypedDict, total=False):
    tags: list[str]


class Measurement(TypedDict, total=False):
    """Of an operation, by a rank."""

    step: Required[int]
    rank: Required[int]
    start_ns: Required[Number]
    end_ns: Required[Number]
    wrong: Required[int]
    size_bytes: int
    iteration: int
    flow: int | None
    group: int | None
    host_ns: Number | None
    sent_bytes: Number | None
    tx_bytes: Number | None
    rx_bytes: Number | None
    fallback: str | None


class OfCollective(Measurement):
    collective: str


class OfFlow(Measurement):
    source: Annotated[int, Field(alias="from")]
    to: int


class OfTasks(Measurement):
    iteration: Required[int]  # type: ignore[misc]


class OfProgram(TypedDict):
    step: int
    rank: int
    program: int
    code: int | None
    start_ns: Number
    end_ns: Number


_MEASURED = ("collective", "flow", "program", "tasks")

Line = Annotated[
    Annotated[OfCollective, Tag("collective")]
    | Annotated[OfFlow, Tag("flow")]
    | Annotated[OfProgram, Tag("program")]
    | Annotated[OfTasks, Tag("tasks")]
    | Annotated[dict[str, Any], Tag("other")],
    Discriminator(lambda line: kind if (kind := line.get("kind")) in _MEASURED else "other"),
]


class Event(TypedDict, total=False):
    event: Required[str]
    time_ns: Number | None
    wall_s: Number | None
    rank: int | None


class Point(TypedDict, total=False):
    run: str
    error: str


class Fabric(TypedDict):
    topology: Annotated[dict[str, Any], Field(min_length=1, max_length=1)]


class Experiment(TypedDict, total=False):
    name: str
    fabric: Fabric
    clock: str | dict[str, Any]
    seed: int
    workload: list[dict[str, Any]]


class Sweep(TypedDict, total=False):
    name: Required[str]
    keys: Required[list[str]]
    points: Required[list[Point]]
    total: int


OF_FILES: dict[str, Any] = {
    "state.json": State, "fidelity.json": Fidelity, "summary.json": Summary, "steps.json": Steps,
    "counters.json": Counters, "thresholds.json": Thresholds, "live.json": Live, "tags.json": Tags,
    "experiment.yaml": Experiment, "sweep.json": Sweep, "points.jsonl": Point,
    "measurements.jsonl": Line, "events.jsonl": Event,
}  # fmt: skip


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(OF_FILES[name])


def wrong_in(name: str, value: Any) -> str:
    """The first mistake in a value of the file of that name ("": none)."""
    if name not in OF_FILES:
        return ""
    try:
        _adapter(name).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = _place(first["loc"])
        if first["type"].startswith("union_tag"):
            kind = first["input"].get("kind") if isinstance(first["input"], dict) else first["input"]
            return f"{place}.kind is {'missing' if kind is None else f'{kind!r:.60}'}"
        return f"{place} is missing" if first["type"] == "missing" else f"{place} is {first['input']!r:.60}"
    return ""


def _place(loc: tuple[str | int, ...]) -> str:
    """`steps.0.ranks`; pydantic puts the kind of a step or a line behind its number."""
    parts = ["", *loc]
    return ".".join(str(p) for before, p in pairwise(parts) if not (p in _KINDS and isinstance(before or 0, int)))


_KINDS = ("collective", "flow", "flows", "program", "tasks", "other")
