"""A leaderboard: a folder of games' logs. A log is a claim; played again it is a fact."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from drills.log import REAL, Log, read, whole_log
from drills.replay import on_real_clock, replay
from drills.sheet.daily import CHOSEN, DRAWN, OF_SUITE, is_daily
from drills.stage import Up, world_of
from testbed.base.errors import InputError, UserError

DAILY = "daily"


def ranked(
    folder: Path, *, play: bool = True, up: Up = world_of, key: str = ""
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row for each player and whose choice the seeds were, best first, those with seeds that the player has chosen
    last; and the logs that do not count, with why. `key`: only those count that it has signed. Raises InputError."""
    files = sorted(folder.glob("*.log"))
    if not files:
        raise InputError("there is no log of a drill", str(folder), "testbed drill start writes them to results/drills")
    of: dict[tuple[str, str], list[Log]] = {}
    refused: dict[str, str] = {}
    known: set[tuple[str, str]] = set()  # who has played which world
    whole: list[tuple[Path, Log]] = []
    copies: dict[str, str] = {}
    for path in files:
        try:
            log = read(path)
        except UserError as error:
            refused[path.name] = error.what
            continue
        if key and log.signed_by != key:
            refused[path.name] = "another key has signed it" if log.signed_by else "nobody has signed it"
        elif (first := copies.setdefault(log.sha256, path.name)) != path.name:
            refused[path.name] = f"it is the same game as {first}"
        else:
            whole.append((path, log))
    for path, log in sorted(whole, key=lambda one: (_began(one[1]), one[0].name)):
        try:
            with whole_log(path.name):
                if log.head.get(REAL):
                    raise on_real_clock("leaderboard", path.name)
                again = replay(log, str(path), up) if play else None
                player = str(log.head.get("player") or "-")
                _row(player, "", [log])  # it has all that is counted
                seeds, world = _seeds(log), _world(log)
        except UserError as error:
            refused[path.name] = error.what
            continue
        if again and again.differs:
            refused[path.name] = f"played again it is another game: {again.differs}"
            continue
        if (player, world) in known:  # he had seen the truth
            seeds = CHOSEN
        known.add((player, world))
        of.setdefault((player, seeds), []).append(log)
    rows = [_row(player, seeds, logs) for (player, seeds), logs in of.items()]
    rows.sort(key=lambda row: (row["seeds"] == CHOSEN, -row["score"], -row["games"], row["player"]))
    return rows, refused


def _seeds(log: Log) -> str:
    """Whose choice its seed was. What it says of a day has to be so; a log that says nothing is taken for chosen."""
    head = log.head
    by = str(head.get("seed_by", CHOSEN))
    if head.get("instructed"):  # somebody knew the truth
        return CHOSEN
    if by in (DRAWN, OF_SUITE):
        return by
    return DAILY if is_daily(by, head["drill"], head["text"], head["seed"], head["healthy"]) else CHOSEN


def _began(log: Log) -> datetime:
    """When it says that it began; a log that says nothing of use comes last."""
    try:
        return datetime.fromisoformat(log.head["began"]).astimezone(UTC)
    except (LookupError, TypeError, ValueError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)


def _world(log: Log) -> str:
    return "\0".join((log.head["text"], log.head["seed"], str(log.head["healthy"])))


def _row(player: str, seeds: str, logs: Sequence[Log]) -> dict[str, Any]:
    """`rca_f1` is the mean F1 of pairs of class and place, over games with a fault; times are emulated."""
    sick = [log for log in logs if log.end["truth"] != "healthy"]
    well = [log for log in logs if log.end["truth"] == "healthy"]
    fixed = [log.end["score"]["fixed"] for log in sick if log.end["score"]["fixed"] is not None]
    return {
        "player": player,
        "seeds": seeds,
        "games": len(logs),
        "score": _mean([log.end["score"]["total"] for log in logs]),
        "rca_f1": _mean([log.end["score"]["what"] for log in sick]),
        "where": _mean([log.end["score"]["where"] for log in sick]),
        "false_alarms": _mean([float(log.end["answer"] != "healthy") for log in well]),
        "fixed": _mean(fixed),
        "time_us": _mean([log.end["time_ns"] / 1000 for log in logs]),
        "lines": _mean([float(sum(not entry.by for entry in log.entries)) for log in logs]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 2) if values else None
