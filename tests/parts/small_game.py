"""A drill with one fault and one herring, as a game on a world without a fabric."""

from __future__ import annotations

from drills.game import Game
from drills.sheet import file
from drills.sheet.case import Case
from tests.parts.fake_world import FakeWorld

LOSSY = """
title: Steps take longer
level: easy
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}}
job: {collective: all_reduce, algorithm: ring, size: 64KiB}
draw: {bad: {any: cable, between: [leaf, spine], carries: job}}
faults: [{fault: loss, on: $bad, rate: 0.02}]
"""
TEXT = f"""{LOSSY}
ticket: Since this morning.
benign: [{{fault: noisy_neighbour, on: all, load: 0.05}}]
hints: [One., Two.]
evidence: [Look there.]
budget: {{emulated: 2ms, answers: 2, tau: 1ms}}
"""


def game_of(text: str = TEXT, *, healthy: bool = False, exam: bool = False) -> Game:
    return Game.start(Case.of(file.loads(text, "d.yaml"), "7Q4", healthy), exam=exam, up=FakeWorld)  # type: ignore[arg-type]


def truth(game: Game) -> str:
    return " ".join(map(str, game.stage.drawn.truth))
