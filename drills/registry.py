"""All lines that a player may type: those of the registries of views, tools and actions, and the drill's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from drills import own
from drills.log import CONFIG
from drills.playing import Line, Run, parameter
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
    def show(view: View) -> Run:
        return lambda game, values, _: game.show(view, values)

    for words, view in VIEWS.items():
        yield Line(replace(view, words=f"show {words}"), show(view), acts=False, after=True)


def _tools() -> Iterable[Line]:
    def use(tool: Tool) -> Run:
        return lambda game, values, _: game.use(tool, values)

    for tool in TOOLS.values():
        parameters = tuple(p for p in tool.parameters if p.name != "output")  # a player gets no files of this machine
        entry = replace(tool, parameters=parameters)
        yield Line(entry, use(entry), acts=True, touches=True)


def _actions() -> Iterable[Line]:
    def configure(words: str) -> Run:
        return lambda game, _, rest: game.configure([*words.split(), *rest])

    which = parameter("which", "N | all", "an action by its number, or all (the last one)")
    rollback = Entry(words="rollback", about="Take an action back.", parameters=(which,))
    for words, action in {**ACTIONS, "rollback": rollback}.items():
        yield Line(replace(action, words=f"{CONFIG} {words}"), configure(words), acts=True, touches=True)
    log = Entry(words=f"{CONFIG} log", about="What has been done to the fabric.")
    yield Line(log, lambda game, _, __: game.config_log(), acts=False, after=True)
