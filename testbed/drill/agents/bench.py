"""A benchmark: one player, many worlds, each with its faults and without; one folder of results.

A case in which the player fails is worth nothing. A case in which the world dies is played again, and after TRIES left
out: it says nothing of the player.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.drill.agents.figures import Estimate, estimate
from testbed.drill.agents.players import Player
from testbed.drill.game import Game
from testbed.drill.lines import CONFIG
from testbed.drill.sheet.daily import OF_SUITE
from testbed.drill.sheet.drill import Drill
from testbed.drill.sheet.score import kinds
from testbed.drill.sheet.suite import DEV, Task
from testbed.drill.stage import Up, world_of

FORMAT = 1
RESULTS = "bench.json"
TRIES = 3
MENDED = 0.95
"""Of the job's lost speed: with so much of it back, it counts as mended for the MTTR."""


@dataclass(frozen=True)
class Played:
    """One case. Times are emulated; `left_out` says why it does not count."""

    number: int
    drill: str
    seed: str
    healthy: bool
    world: str
    left_out: str = ""
    failed: str = ""
    """Why the player has lost it without an answer."""
    answer: str | None = None
    truth: str = ""
    score: float = 0.0
    f1: float = 0.0
    """Of pairs of class and place, each exact."""
    where: float = 0.0
    what: float = 0.0
    fixed: float | None = None
    """None: nothing was to be mended."""
    false_alarm: bool = False
    time_ns: float = 0.0
    repair_ns: float | None = None
    calls: int = 0
    began_ns: int = 0
    healthy_step_ns: float = 0.0


def check_measurable(drills: Sequence[Drill]) -> None:
    """Raises InputError for those with the real clock: worlds of two agents would not be the same."""
    for drill in drills:
        if drill.on_real_clock:
            what = f"{drill.id} is on the real clock: no two agents would get the same world"
            raise InputError(what, "--suite", "drills with the virtual clock; testbed drill start plays this one")


def play(task: Task, number: int, player: Player, wall_s: float, folder: Path, up: Up = world_of) -> Played:
    """Plays a case, again if the world dies; log, transcript and stderr go into the folder."""
    blank = Played(number, task.drill.id, task.seed, task.healthy, task.world)
    why = ""
    for _ in range(TRIES):
        try:
            game = Game.start(task.case, exam=True, player=player.name, seed_by=OF_SUITE, up=up)
        except InputError as error:  # again it would be the same
            return _left_out(blank, f"{error.where}: {error.what}")
        except (UserError, FabricdError) as error:
            why = str(error)
            continue
        try:
            played = _play(blank, game, player, wall_s, folder)
        except UserError:
            raise
        except Exception as error:  # a fault of ours must not be the player's
            played = _left_out(blank, f"{type(error).__name__}: {error}")
        finally:
            game.close()
        if not played.left_out:
            return played
        why = played.left_out
    return _left_out(blank, f"{why} ({TRIES} times)")


def _left_out(blank: Played, why: str) -> Played:
    return Played(**{**asdict(blank), "left_out": why})


def _play(blank: Played, game: Game, player: Player, wall_s: float, folder: Path) -> Played:
    stem = f"{blank.number:04}"
    transcript: list[str] = []

    def note(asked: Any, told: str) -> None:
        transcript.append(json.dumps({"time_ns": game.time_ns, "asked": asked, "told": told}))

    failed, calls = player.play(game, wall_s, folder / f"{stem}.stderr", note)
    if not game.over and not game.gone:
        game.command("give-up")
    if game.gone or game.ending is None:
        return _left_out(blank, "the world has died")
    (folder / f"{stem}.transcript.jsonl").write_text("".join(f"{line}\n" for line in transcript))
    game.log().write(folder / f"{stem}.log")
    return _valued(blank, game, failed, calls)


def _valued(blank: Played, game: Game, failed: str, calls: int) -> Played:
    ending = game.ending
    assert ending is not None and ending.score is not None
    answer, truth, score = ending.answer, game.stage.drawn.truth, ending.score
    fixed = None
    if truth and game.case.drill.asks_to_fix:
        fixed = score.fixed if answer else 0.0
    acted = [entry for entry in game.entries if entry.ok and entry.acts and entry.line.split()[0] == CONFIG]
    repaired = fixed is not None and fixed >= MENDED and acted
    return Played(
        **{
            **asdict(blank),
            "failed": failed or ("" if answer else "it has given no answer within the budget, or has given up"),
            "answer": None if answer is None else str(answer),
            "truth": ending.truth,
            "score": score.total,
            "f1": kinds(answer.claims, truth) if answer else 0.0,
            "where": score.where,
            "what": score.what,
            "fixed": fixed,
            "false_alarm": not truth and answer is not None and not answer.healthy,
            "time_ns": ending.course.t_ns,
            "repair_ns": acted[-1].time_ns + acted[-1].took_ns - game.stage.began_ns if repaired else None,
            "calls": calls,
            "began_ns": game.stage.began_ns,
            "healthy_step_ns": game.stage.healthy_step_ns,
        }
    )


def run(
    tasks: Sequence[Task],
    player: Player,
    head: dict[str, Any],
    secret: bytes,
    folder: Path,
    *,
    wall_s: float,
    told: Callable[[Played], None] = lambda played: None,
    up: Up = world_of,
) -> list[Played]:
    """Plays all of it. Until the end the results lie where an agent of another user does not get at them."""
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    found: list[Played] = []
    written = {
        "railbed_bench": FORMAT, "version": version("railbed"), "agent": player.name, "wall_s": wall_s, **head,
        "secret": "public" if secret == DEV else hashlib.sha256(secret).hexdigest()[:16],
    }  # fmt: skip
    for number, task in enumerate(tasks):
        found.append(play(task, number, player, wall_s, folder, up))
        told(found[-1])
        _write(folder / RESULTS, {**written, "cases": [asdict(one) for one in found]})
    return found


def _write(path: Path, told: dict[str, Any]) -> None:
    """Whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as new:
        json.dump(told, new)
    Path(new.name).replace(path)


def read(folder: Path) -> tuple[dict[str, Any], list[Played]]:
    """What a benchmark has left: its head, its cases. Raises InputError."""
    path = folder / RESULTS
    try:
        told = json.loads(path.read_text())
        if told.pop("railbed_bench") != FORMAT:
            raise InputError("these results are of another version", str(path), f"known: {FORMAT}")
        return told, [Played(**case) for case in told.pop("cases")]
    except OSError as error:
        hint = "a folder that testbed drill bench has written"
        raise InputError(f"cannot be read: {error.strerror}", str(path), hint) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            "these are no results of a benchmark, or are damaged", str(path), "take them as they were"
        ) from None


def row(agent: str, cases: Sequence[Played]) -> dict[str, Any]:
    """A line of the table; RCA F1, where and what over cases with a fault, false alarms over the healthy ones."""
    counted = [case for case in cases if not case.left_out]
    sick = [case for case in counted if case.truth != "healthy"]
    well = [case for case in counted if case.truth == "healthy"]
    fixed = [case.fixed for case in sick if case.fixed is not None]
    repairs = [case.repair_ns for case in sick if case.repair_ns is not None]
    score = estimate([(case.drill, case.score) for case in counted])
    return {
        "agent": agent,
        "n": len(counted),
        "rca_f1": _told(estimate([(case.drill, case.f1) for case in sick])),
        "where": _mean([case.where for case in sick]),
        "what": _mean([case.what for case in sick]),
        "false_alarms": _mean([float(case.false_alarm) for case in well]),
        "fixed": _mean(fixed),
        "mttr_us": _mean([ns / 1000 for ns in repairs]),
        "calls": _mean([float(case.calls) for case in counted]),
        "failed": sum(bool(case.failed) for case in counted),
        "left_out": sum(bool(case.left_out) for case in cases),
        "score": _told(score),
    }


def _told(found: Estimate | None) -> dict[str, float] | None:
    return None if found is None else {key: round(value, 4) for key, value in asdict(found).items()}


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 4) if values else None
