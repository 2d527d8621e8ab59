"""The symptom of the job, by its steps and those of its healthy twin."""

from __future__ import annotations

from collections.abc import Sequence

from drills.game import Game

SLOWER, UNSTEADY = 1.02, 1.3
STOPS = "stopped"


def steps(game: Game) -> list[tuple[float, float, int]]:
    """(start, duration, wrong elements) of each step that has ended."""
    return [
        (s.start_ns, s.end_ns - s.start_ns, sum(rank.wrong for rank in s.ranks.values()))
        for s in game.stage.world.steps
    ]


def symptom(ill: Sequence[tuple[float, float, int]], well: Sequence[tuple[float, float, int]], from_ns: float) -> str:
    """The job since then: stopped, wrong, slower, unsteady, same."""
    recent = [step for step in ill if step[0] + step[1] > from_ns]
    usual = [step[1] for step in well if step[0] + step[1] > from_ns]
    if any(wrong for _, _, wrong in recent) and not any(wrong for _, _, wrong in well):
        return "wrong"
    if not usual:
        return "same"
    if len(recent) <= len(usual) / 4:
        return STOPS
    times = [took for _, took, _ in recent]
    if max(times) / min(times) > UNSTEADY * max(usual) / min(usual):
        return "unsteady"
    return "slower" if sum(times) / len(times) > SLOWER * sum(usual) / len(usual) else "same"
