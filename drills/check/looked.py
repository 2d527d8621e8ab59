"""Worlds of a drill that are played, and all that their views show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, get_args

from drills.game import Game
from drills.looking import Seen as Source
from drills.looking import look
from drills.sheet.case import Case
from drills.sheet.drill import Drill, Views
from testbed.base.errors import UserError
from testbed.live.views import VIEWS

Seen = Mapping[str, Any]

SIGHTS = {
    f"{drops} {config}": Views.model_validate({"drops": drops, "config": config})
    for drops in get_args(Views.model_fields["drops"].annotation)
    for config in get_args(Views.model_fields["config"].annotation)
}
"""All that a drill may choose, by name, the best first."""
NOW = "job now"
_OF_RANKS = ("nic",)
"""Views of one rank each: shown for all."""


@contextmanager
def playing(drill: Drill, seed: str, *, healthy: bool) -> Iterator[Game]:
    with closing(Game.start(Case.of(drill, seed, healthy), prints=False)) as game:
        yield game


def views(game: Game) -> Seen:
    """All that need no parameters."""
    answers = {words[5:]: game.command(words) for words in game.lines if words.startswith("show ")}
    return {words: answer.data for words, answer in answers.items() if answer.ok}


def closely(game: Game, sight: Views) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The rows of every table of every view at a sight, with views of one rank for all, and the ranks of the job."""
    source, ranks = Source(game.stage), range(game.fabric.ranks)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def add(name: str, words: str, more: Mapping[str, Any], typed: list[str]) -> None:
        try:
            tables = VIEWS[words].show(look(source, sight), **VIEWS[words].read(typed, game.fabric))
        except UserError:
            return
        for table in tables:
            found.setdefault(name, {}).setdefault(table.name, []).extend({**more, **row} for row in table.rows)

    for words in VIEWS:
        add(words, words, {}, [])
    for words in _OF_RANKS:
        for rank in ranks:
            add(words, words, {"rank": rank}, [str(rank)])
    add(NOW, "job", {}, ["--now"])
    add("job ranks", "job", {}, ["--ranks", "--last", "1"])
    return found
