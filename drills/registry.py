"""All lines that a player may type: those of the registries of views, tools and actions, and the drill's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from drills import own
from drills.lines import CONFIG, Brought, Line, Play, Run, parameter
from testbed.live.tools import TOOLS
from testbed.live.tools.tool import Tool
from testbed.live.views import VIEWS
from testbed.live.views.view import View
from testbed.operate.registry import ACTIONS
from testbed.words.entry import Entry


def lines() -> dict[str, Line]:
    """By their words."""
    return {line.words: line for line in [*own.LINES, *_views(), *_tools(), *_actions()]}


def _views() -> Iterable[Line]:
    for words, view in VIEWS.items():
        yield Line(replace(view, words=f"show {words}"), _shown(view), acts=False, after=True)


def _shown(view: View) -> Run:
    return lambda game, values, _: game.show(view, values)


def _tools() -> Iterable[Line]:
    for tool in TOOLS.values():
        kept = tuple(p for p in tool.parameters if p.name != "output")  # a player gets no files of this machine
        entry = replace(tool, parameters=kept)
        yield Line(entry, _used(entry), acts=True, touches=True)


def _used(tool: Tool) -> Run:
    return lambda game, values, _: game.use(tool, values)


def _actions() -> Iterable[Line]:
    for words, action in ACTIONS.items():
        yield Line(replace(action, words=f"{CONFIG} {words}"), _done(words), acts=True, touches=True)
    which = parameter("which", "N | all", "an action by its number, or all (the last one)")
    back = Entry(words=f"{CONFIG} rollback", about="Take an action back.", parameters=(which,))
    yield Line(back, _done("rollback"), acts=True, touches=True)
    yield Line(Entry(words=f"{CONFIG} log", about="What has been done to the fabric."), _config_log, False, after=True)


def _done(words: str) -> Run:
    return lambda game, values, rest: game.configure([*words.split(), *rest])


def _config_log(game: Play, _: Mapping[str, Any], __: Sequence[str]) -> Brought:
    return game.config_log()
