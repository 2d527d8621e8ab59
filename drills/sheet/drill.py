"""A drill file as a typed model. It is a template: places are drawn from a seed (places.py), so that reading it gives
no answer. The truth follows from `faults` (case.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from drills.sheet.draw import Draw, references
from testbed.base.types import Model, Size, Time, default, mistake
from testbed.experiment.blocks.clock import Clock

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
ALWAYS_ASKED = ("healthy", "where", "what")
FIX = "fix"


class Views(Model):
    """What the student's views tell."""

    drops: Literal["wjh", "counters", "asic"] = Field(
        default="wjh",
        description="how much a drop tells: `wjh` port, reason and header, `counters` port and reason, `asic` nothing",
    )
    config: Literal["true", "golden"] = Field(
        default="true", description="`golden`: configuration is shown as it was meant, not as the ASIC has it"
    )

    @field_validator("config", mode="before")
    @classmethod
    def _true(cls, value: object) -> object:
        return "true" if value is True else value  # `config: true` is a boolean in YAML


class Budget(Model):
    emulated: Annotated[Time, Field(gt=0, le=1e12)] = default("20ms", "emulated time until the drill is over")
    answers: int = Field(default=2, ge=1, le=10, description="how many answers may be given")
    tau: Annotated[Time, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="the score for speed falls to 1/e in this time (null: a quarter of `emulated`)"
    )

    @property
    def tau_ns(self) -> float:
        return self.emulated / 4 if self.tau is None else self.tau


class Slo(Model):
    step: float = Field(default=1.05, gt=1, le=100, allow_inf_nan=False, description="step time, of the healthy one")


class OldCounter(Model):
    """A count from long ago that does not grow."""

    counter: str = Field(description="a counter of a port, or a reason of drops there, as views name it")
    on: str = Field(description="a port, or a cable: both its ends")
    value: int = Field(ge=1, le=10**15, description="what it shows")


class Tenant(Model):
    """Part of the world, and no fault."""

    load: float = Field(gt=0, le=1, allow_inf_nan=False, description="share of its line rate that each sender offers")
    size: Annotated[Size, Field(gt=0, le=1 << 30)] = default("20KB", "payload of a flow")
    ranks: list[int] | None = Field(default=None, min_length=2, description="among which it runs (null: all)")
    flows: int = Field(default=100, ge=1, le=100_000, description="how many in all")

    def as_fault(self) -> dict[str, Any]:
        return {"fault": "noisy_neighbour", "on": "all", **self.model_dump(mode="json", exclude_none=True)}


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _mappings(value: Any) -> Any:
    """Each entry is a fault or an old counter; the rest of it is checked when its place is drawn."""
    if not isinstance(value, list):
        return value
    for i, entry in enumerate(value):
        if not isinstance(entry, dict) or not ({"fault", "counter"} & entry.keys()):
            raise mistake("a herring is a fault or an old counter", "{fault: ..} or {counter: ..}", [i])
    return value


class Drill(Model):
    """A validated drill file.  `file.load` makes it, and `case.Case` a game of it."""

    title: str = Field(min_length=5, max_length=200, description="the ticket's first line: a symptom, not the cause")
    ticket: str = Field(default="", max_length=2000, description="what else the person says who has opened it")
    level: Level = Field(description="how hard it is")
    clock: Clock = default(
        "virtual",
        "`virtual`: time passes only by what is typed; `{real: {dilation: N}}`: [it goes on](drills-real.md)",
    )
    fabric: dict[str, Any] = Field(description="as in an experiment (docs/experiment.md)")
    control: dict[str, Any] = Field(default_factory=dict, description="as in an experiment")
    transport: dict[str, Any] = Field(default_factory=dict, description="as in an experiment")
    costs: dict[str, Any] = Field(default_factory=dict, description="as in an experiment")
    job: Annotated[list[dict[str, Any]], BeforeValidator(_as_list)] = Field(
        min_length=1, max_length=20,
        description="what repeats for ever: a step of a workload, or several; a collective may be written with one "
        "`size`, `ranks: all`, and `compute: TIME` before it",
    )  # fmt: skip
    tenants: list[Tenant] = Field(default_factory=list, max_length=20, description="traffic of others")
    draw: dict[str, Draw] = Field(default_factory=dict, description="`{NAME: {any: .., ..}}`: places, used as `$NAME`")
    faults: list[dict[str, Any]] = Field(
        default_factory=list, max_length=20,
        description="what is wrong, as in an experiment's `inject`; `at` is the end of `warmup` if it is left out",
    )  # fmt: skip
    benign: Annotated[list[dict[str, Any]], BeforeValidator(_mappings)] = Field(
        default_factory=list, max_length=50,
        description="red herrings, part of the world and not of the truth: `{fault: ..}` or `{counter:, on:, value:}`",
    )  # fmt: skip
    warmup: Annotated[Time, Field(gt=0, le=1e10)] = default("300us", "healthy history that can be looked back at")
    begins: Annotated[Time, Field(gt=0, le=1e10)] | None = Field(
        default=None, description="when the student gets the world (null: 400us after the warm-up)"
    )
    question: list[Literal["healthy", "where", "what", "fix"]] = Field(
        default=["healthy", "where", "what"], description="what is asked; `fix` may be left out"
    )
    views: Views = Field(default_factory=Views, description="what the views tell")
    budget: Budget = Field(default_factory=Budget, description="what the student has")
    hints: list[str] = Field(default_factory=list, max_length=3, description="from vague to plain; each costs")
    evidence: list[str] = Field(
        default_factory=list, max_length=20, description="the shortest chain that proves the answer, for the report"
    )
    slo: Slo = Field(default_factory=Slo, description="what the job is promised")
    _text: str = PrivateAttr(default="")
    _id: str = PrivateAttr(default="drill")
    _directory: Path = PrivateAttr(default=Path())
    _place: Callable[[tuple[str | int, ...]], str] | None = PrivateAttr(default=None)

    @field_validator("question")
    @classmethod
    def _asks_for_all(cls, value: list[str]) -> list[str]:
        if missing := [word for word in ALWAYS_ASKED if word not in value]:
            raise mistake(f"every drill asks for {missing[0]}", "[healthy, where, what], and fix if it can be mended")
        return value

    @model_validator(mode="after")
    def _names_are_drawn(self) -> Drill:
        """A `$NAME` stands for something that is drawn, and drawn before it is used."""
        known: list[str] = []
        for name, draw in self.draw.items():
            if not name.isidentifier():
                raise mistake(f"{name!r} is no name", "a word of letters, digits and _", ["draw", name])
            for key, used in draw.refers():
                if used not in known:
                    raise mistake(*_unknown(used, known, f"{name} can refer to"), path=["draw", name, key])
            known.append(name)
        for block in ("faults", "benign"):
            for i, entry in enumerate(getattr(self, block)):
                for key, used in references(entry):
                    if used not in known:
                        raise mistake(*_unknown(used, known, "drawn are"), path=[block, i, key])
        return self

    @property
    def id(self) -> str:
        """`FAMILY/NAME`, of the file."""
        return self._id

    @property
    def family(self) -> str:
        return self._id.rpartition("/")[0] or "own"

    @property
    def text(self) -> str:
        """The file as it was read: a game's log commits to it."""
        return self._text

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def begins_ns(self) -> float:
        return self.warmup + 400_000.0 if self.begins is None else self.begins

    @property
    def asks_to_fix(self) -> bool:
        return FIX in self.question

    @property
    def on_real_clock(self) -> bool:
        """Its world goes on while the player thinks, and is never the same twice."""
        return self.clock.mode == "real"

    def place(self, *path: str | int) -> str:
        """`FILE:LINE: KEY` of a path."""
        return self._place(path) if self._place else ".".join(map(str, path))


def _unknown(name: str, known: list[str], lead: str) -> tuple[str, str]:
    there = ", ".join(f"${one}" for one in known) or "nothing"
    return f"${name} is not drawn", f"{lead} {there}; `draw: {{{name}: {{any: cable}}}}` draws it"


def old_counter(entry: Mapping[str, Any]) -> bool:
    return "counter" in entry
