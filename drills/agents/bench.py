"""A benchmark: one player, many worlds, each with its faults and without; one folder of results.

A case in which the player fails scores 0. A case in which the world dies is played again, and left out after TRIES.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from drills.agents.figures import Estimate, estimate
from drills.agents.players import BaselineAnswer, Lookers, Player
from drills.check.players import scored
from drills.game import Game
from drills.sheet.answer import Submission
from drills.sheet.daily import OF_SUITE
from drills.sheet.drill import Drill
from drills.sheet.score import Score, kinds
from drills.sheet.suite import DEV, Assignment
from drills.stage import Up, world_of
from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from workloads.base import named_file

FORMAT = 1
MOST_BYTES = 64 << 20  # of results
RESULTS = "bench.json"
TRIES = 3
MENDED = 0.95
"""The share of the job's lost speed from which on it counts as mended for the MTTR."""


@dataclass(frozen=True)
class CaseResult:
    """One case. Times are emulated; `left_out`: why it does not count."""

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


def play(
    task: Assignment, number: int, player: Player, wall_s: float, folder: Path, up: Up = world_of
) -> list[CaseResult]:
    """Plays a case, again if the world dies; log, transcript and stderr go into the folder. One result for each of the
    player's names."""
    blank = CaseResult(number, task.drill.id, task.seed, task.healthy, task.world)
    names = player.names
    why = ""
    for _ in range(TRIES):
        try:
            game = Game.start(task.case, exam=True, player=", ".join(names), seed_by=OF_SUITE, up=up)
        except InputError as error:  # again it would be the same
            return [replace(blank, left_out=f"{error.where}: {error.what}")] * len(names)
        except (UserError, FabricdError) as error:
            why = str(error)
            continue
        try:
            return _play(blank, game, player, wall_s, folder)
        except _Died:
            why = "the world has died"
        except UserError:
            raise
        except Exception as error:  # a fault of ours must not be the player's
            why = f"{type(error).__name__}: {error}"
        finally:
            game.close()
    return [replace(blank, left_out=f"{why} ({TRIES} times)")] * len(names)


class _Died(Exception):
    pass


def _play(blank: CaseResult, game: Game, player: Player, wall_s: float, folder: Path) -> list[CaseResult]:
    stem = f"{blank.number:04}"
    transcript: list[str] = []

    def note(request: Any, answer: str) -> None:
        transcript.append(json.dumps({"time_ns": game.time_ns, "asked": request, "told": answer}))

    failed, calls = player.play(game, wall_s, folder / f"{stem}.stderr", note)
    if not game.over and not game.gone:
        game.command("give-up")
    if game.gone or game.ending is None:
        raise _Died
    (folder / f"{stem}.transcript.jsonl").write_text("".join(f"{line}\n" for line in transcript))
    game.log().write(folder / f"{stem}.log")
    if isinstance(player, Lookers):
        return [_looked(blank, game, one) for one in player.answers]
    return [_valued(blank, game, game.ending.answer, game.ending.score, failed, calls)]


def _looked(blank: CaseResult, game: Game, given: BaselineAnswer) -> CaseResult:
    """Of a baseline that has looked at the beginning, and answered."""
    assert game.ending is not None
    if given.answer is None:
        return _valued(blank, game, None, game.ending.score, given.why, given.calls)
    try:
        answer, points = scored(game, given.answer, game.ending.conduct)
    except InputError:
        return _valued(blank, game, None, game.ending.score, f"it answered {given.answer[:80]!r}", given.calls)
    submitted = game.case.drill.budget.answers if points.wrong else 1
    return _valued(blank, game, answer, points, "", given.calls + submitted)


def _valued(
    blank: CaseResult, game: Game, answer: Submission | None, score: Score | None, failed: str, calls: int
) -> CaseResult:
    ending, truth = game.ending, game.stage.drawn.truth
    assert ending is not None and score is not None
    fixed = None
    if truth and game.case.drill.asks_to_fix:
        fixed = score.fixed if answer else 0.0
    acted = [entry for entry in game.entries if entry.ok and entry.acts and entry.is_config]
    repaired = fixed is not None and fixed >= MENDED and acted
    return replace(
        blank,
        failed=failed or ("" if answer else "it has given no answer within the budget, or has given up"),
        answer=None if answer is None else str(answer),
        truth=ending.truth,
        score=score.total,
        f1=kinds(answer.claims, truth) if answer else 0.0,
        where=score.where,
        what=score.what,
        fixed=fixed,
        false_alarm=not truth and answer is not None and not answer.healthy,
        time_ns=ending.conduct.t_ns,
        repair_ns=acted[-1].time_ns + acted[-1].took_ns - game.stage.began_ns if repaired else None,
        calls=calls,
        began_ns=game.stage.began_ns,
        healthy_step_ns=game.stage.healthy_step_ns,
    )


def run(
    tasks: Sequence[Assignment],
    player: Player,
    head: dict[str, Any],
    secret: bytes,
    folder: Path,
    *,
    wall_s: float,
    told: Callable[[CaseResult, str], None] = lambda played, name: None,
    up: Up = world_of,
    resume: bool = False,
) -> dict[str, list[CaseResult]]:
    """Plays all of it; the cases of each of the player's names. Until the end the results lie where an agent of
    another user does not get at them; those of several in a folder each. `resume`: goes on with what is there.
    Raises InputError if that is of another benchmark."""
    written = {
        "version": version("railbed"), "wall_s": wall_s, **head,
        "secret": "public" if secret == DEV else hashlib.sha256(secret).hexdigest()[:16],
    }  # fmt: skip
    own = {name: folder_of(folder, name, player.names) for name in player.names}
    found = {name: _played_before(own[name], {**written, "agent": name}) if resume else [] for name in own}
    for place in (folder, *own.values()):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)
    for number in range(min(map(len, found.values())), len(tasks)):
        new = play(tasks[number], number, player, wall_s, folder, up)
        for (name, cases), one in zip(found.items(), new, strict=True):
            cases[number:] = [one]
            _write(own[name] / RESULTS, {"railbed_bench": FORMAT, **written, "agent": name, "cases": cases})
            told(one, name)
    return found


def _played_before(folder: Path, written: dict[str, Any]) -> list[CaseResult]:
    head, cases = read(folder)
    other = [key for key in written if head.get(key) != written[key]]
    if other:
        what = f"these are results of another benchmark: {other[0]} is {head.get(other[0])}"
        raise InputError(what, str(folder / RESULTS), f"here it is {written[other[0]]}")
    return cases


def folder_of(folder: Path, name: str, names: Sequence[str]) -> Path:
    """Where the results of one of them are."""
    return folder / name.replace(":", "-") if len(names) > 1 else folder


def _write(path: Path, results: dict[str, Any]) -> None:
    """Whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as new:
        json.dump({**results, "cases": [asdict(one) for one in results["cases"]]}, new)
    Path(new.name).replace(path)


def read(folder: Path) -> tuple[dict[str, Any], list[CaseResult]]:
    """The head and the cases of a benchmark. Raises InputError."""
    path = folder / RESULTS
    try:
        results = json.loads(named_file.read(path, MOST_BYTES))
        if results.pop("railbed_bench") != FORMAT:
            raise InputError("these results are of another version", str(path), f"known: {FORMAT}")
        return results, [CaseResult(**case) for case in results.pop("cases")]
    except named_file.Unreadable as error:
        hint = "a folder that testbed drill bench has written"
        raise InputError(f"cannot be read: {error.what}", str(path), hint) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        what = "these are no results of a benchmark, or are damaged"
        raise InputError(what, str(path), "take them as they were") from None


def row(agent: str, cases: Sequence[CaseResult]) -> dict[str, Any]:
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
