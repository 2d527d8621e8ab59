"""Worlds of a drill that are played, and all that may be looked at there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from testbed.drill.game import Game
from testbed.drill.sheet.case import Case
from testbed.drill.sheet.drill import Drill

Seen = Mapping[str, Any]


@contextmanager
def playing(drill: Drill, seed: str, *, healthy: bool) -> Iterator[Game]:
    game = Game.start(Case.of(drill, seed, healthy), prints=False)
    try:
        yield game
    finally:
        game.close()


def views(game: Game) -> Seen:
    """All that may be looked at without words of its own."""
    found = {}
    for words in game.lines:
        if words.startswith("show "):
            answer = game.command(words)
            if answer.ok:
                found[words[5:]] = answer.data
    return found
