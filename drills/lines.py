"""A line that a player may type: its entry, what carries it out, what it touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drills.log import Entry as Noted
from drills.stage import Stage
from testbed.words import kinds
from testbed.words.entry import Entry, Parameter
from topologies.graph.fabric import Fabric

Brought = tuple[str, Any]  # text, data
CONFIG = "config"


class Play(Protocol):
    """What lines use of a game."""

    stage: Stage
    entries: list[Noted]

    @property
    def fabric(self) -> Fabric: ...
    @property
    def code(self) -> str: ...
    @property
    def lines(self) -> dict[str, Line]: ...
    def ticket(self) -> dict[str, Any]: ...
    def ticket_text(self) -> str: ...
    def state(self) -> dict[str, Any]: ...
    def report(self) -> dict[str, Any]: ...
    def show(self, view: Any, values: Mapping[str, Any]) -> Brought: ...
    def use(self, tool: Any, values: Mapping[str, Any]) -> Brought: ...
    def configure(self, words: Sequence[str]) -> Brought: ...
    def config_log(self) -> Brought: ...
    def advance(self, ns: float) -> Brought: ...
    def advance_steps(self, count: int) -> Brought: ...
    def until(self, condition: str, limit_ns: float) -> Brought: ...
    def hint(self) -> Brought: ...
    def submit(self, text: str) -> Brought: ...
    def give_up(self) -> Brought: ...


Run = Callable[[Play, Mapping[str, Any], Sequence[str]], Brought]
"""Carries out a line: the game, the values of its parameters, the words behind its own."""


@dataclass(frozen=True)
class Line:
    entry: Entry
    run: Run
    acts: bool
    """It changes the world or the game."""
    touches: bool = False
    """It changes the world otherwise than by letting time pass."""
    after: bool = False
    """It may be asked for when the game is over."""

    @property
    def words(self) -> str:
        return self.entry.words


def parameter(name: str, metavar: str, about: str, *, required: bool = False, rest: bool = False) -> Parameter:
    """A word (or the rest of a line) that the command reads by itself."""
    return Parameter(name, kinds.Kind("text", metavar), about, required=required, rest=rest)
