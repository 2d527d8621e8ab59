"""The lines that a player may type: those of the registries of views, tools and actions, and the drill's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed.words import kinds
from testbed.words.entry import Entry, Parameter

if TYPE_CHECKING:
    from testbed.drill.game import Game
    from testbed.live.views.view import View

Brought = tuple[str, Any]  # text, data
CONFIG = "config"
Run = Callable[["Game", Mapping[str, Any], Sequence[str]], Brought]
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


def lines() -> dict[str, Line]:
    """All of them, by their words."""
    return {line.words: line for line in [*_own(), *_views(), *_tools(), *_actions()]}


def _own() -> Iterable[Line]:
    from testbed.drill import own

    return own.LINES


def _views() -> Iterable[Line]:
    from testbed.live.views import VIEWS

    for words, view in VIEWS.items():
        yield Line(replace(view, words=f"show {words}"), _shown(view), acts=False, after=True)


def _shown(view: View) -> Run:
    return lambda game, values, _: game.show(view, values)


def _tools() -> Iterable[Line]:
    return ()


def _actions() -> Iterable[Line]:
    from testbed.operate.registry import ACTIONS

    for words, action in ACTIONS.items():
        yield Line(replace(action, words=f"{CONFIG} {words}"), _done(words), acts=True, touches=True)
    which = parameter("which", "N | all", "an action by its number, or all (the last one)")
    back = Entry(words=f"{CONFIG} rollback", about="Take an action back.", parameters=(which,))
    yield Line(back, _done("rollback"), acts=True, touches=True)
    yield Line(Entry(words=f"{CONFIG} log", about="What has been done to the fabric."), _config_log, False, after=True)


def _done(words: str) -> Run:
    return lambda game, values, rest: game.configure([*words.split(), *rest])


def _config_log(game: Game, _: Mapping[str, Any], __: Sequence[str]) -> Brought:
    return game.config_log()


def parameter(name: str, metavar: str, about: str, *, required: bool = False, rest: bool = False) -> Parameter:
    """A word (or the rest of a line) that the command reads by itself."""
    return Parameter(name, kinds.Kind("text", metavar), about, required=required, rest=rest)
