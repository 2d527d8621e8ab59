"""Proof: every drill is one, and a seed gives a drill or a reason.

`./setup.sh prove drills [--seed S] [DRILL ...]`. Checks all drills (or those named) as `testbed drill check` does:
places can be drawn, what a student may see differs from the healthy twin's, the solver gets 80 points or more by what
a student may see, and finds nothing in the healthy twin. Prints a line a drill; exit 1 if one fails.

`./setup.sh prove drills --generated N [--results FILE] [--for S] [--jobs J]`. Makes drills of the seeds N1 .. NN as
`testbed drill new` does: each passes all of that, or is refused with a reason. FILE keeps a JSON object a seed: seeds
that it has are not made again, so that a proof can be ended (`--for`: no seed is begun after so many seconds) and gone
on with. In the end: how many pass, why others do not, what those who only look would have got, and the rank
correlation of difficulty with the score of `thresholds`, with its bootstrap interval, of all and by the number of
faults. Of all it has to be below -0.5. Exit 1 if that is not so, or if the world of a seed has died.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RHO = -0.5
"""The rank correlation must be below it."""
_PR_SET_PDEATHSIG = 1
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    if "--generated" in sys.argv:
        _generated()
        return
    from testbed.commands._drill_check import check

    arguments = sys.argv[1:]
    options = [a for k, a in enumerate(arguments) if a.startswith("--") or (k and arguments[k - 1] == "--seed")]
    named = [a for a in arguments if a not in options]
    check.main([*options, *(named or (["--all"] if "--help" not in options else []))], prog_name="prove drills")


def _generated() -> None:
    parser = argparse.ArgumentParser(prog="prove drills", description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("--generated", type=int, required=True, metavar="N", help="the seeds N1 .. NN")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keeps what came of each seed, and goes on")
    parser.add_argument("--for", type=float, default=float("inf"), metavar="S", dest="seconds", help="wall time")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="so many seeds at once")
    asked = parser.parse_args()
    seeds = [f"N{k + 1}" for k in range(asked.generated)]
    found = _kept(asked.results)
    end = time.monotonic() + asked.seconds
    with workers(asked.jobs) as pool:
        todo = {pool.submit(_made, seed, end): seed for seed in seeds if seed not in found}
        for done in as_completed(todo):
            if (one := done.result()) is not None:
                found[todo[done]] = one
                _say(one, asked.results)
    told = [found[seed] for seed in seeds if seed in found]
    print("\n".join(summary(told)))
    wrong = [one["seed"] for one in told if one["died"]]
    rho = correlated(told)
    left = asked.generated - len(told)
    if left:
        print(f"{left} are left")
    if wrong or (not left and rho is None) or (rho is not None and rho >= RHO):
        sys.exit(1)


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, whatever ends it, and take their fabrics down before.

    Ended by a signal, this process waits for them.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_tied, initargs=(os.getpid(),))
    try:
        yield pool
    except BaseException:
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is tidying up
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown()


def _tied(parent: int) -> None:
    """In a worker: SIGTERM when the thread that has started it is no more (PR_SET_PDEATHSIG of prctl(2)).

    A Ctrl-C at the terminal is for the parent, which then ends its workers.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before
        raise SystemExit(128 + signal.SIGTERM)


def _stop(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _kept(path: Path | None) -> dict[str, dict[str, Any]]:
    """What a file has. A world that has died says nothing of its seed, which is made again."""
    if path is None or not path.exists():
        return {}
    every = [json.loads(line) for line in path.read_text().splitlines()]
    return {one["seed"]: one for one in every if not one["died"]}


def _made(seed: str, end: float) -> dict[str, Any] | None:
    """None if it is too late to begin."""
    from drills.make.new import made

    try:
        return made(seed).to_dict() if time.monotonic() < end else None
    except SystemExit as stopped:  # all is taken down; the pool would take it for an answer, and go on
        os._exit(int(str(stopped.code)))


def _say(one: Mapping[str, Any], results: Path | None) -> None:
    said = one["refused"] or f"{one['level']} ({one['difficulty']:g}), {one['score']:.0f} points"
    print(
        f"{one['seed']:6} {one['setting']:10} {'+'.join(one['classes']):28} {one['took_s']:6.1f} s  {said}", flush=True
    )
    if results is not None:
        with results.open("a") as file:
            file.write(json.dumps(one) + "\n")


def summary(told: list[dict[str, Any]]) -> list[str]:
    """How many pass, why the others do not, what players would have got, and how far difficulty goes with it."""
    passed = [one for one in told if one["passes"]]
    lines = [f"{len(passed)} of {len(told)} give a drill"]
    why = Counter(one["refused"].partition(":")[0] for one in told if not one["passes"])
    for what, count in why.most_common():
        faults = Counter(len(one["classes"]) for one in told if one["refused"].partition(":")[0] == what)
        lines.append(
            f"{count:4} refused: {what} ({', '.join(f'{faults[n]} with {_faults(n)}' for n in sorted(faults))})"
        )
    for level in ("easy", "medium", "hard"):
        of = [one for one in passed if one["level"] == level]
        names = of[0]["players"] if of else ()
        means = [f"{name} {fmean(one['players'][name]['score'] for one in of):.1f}" for name in names]
        lines.append(f"{level:6} {len(of):3} drills; mean scores: {', '.join(means) or '-'}")
    lines.append(f"rank correlation of difficulty and score of thresholds: {_correlation(passed)}")
    for n in sorted({len(one["classes"]) for one in passed}):
        of = [one for one in passed if len(one["classes"]) == n]
        means = [
            f"{what} {fmean(column):.1f}"
            for what, column in zip(("difficulty", "score"), _columns(pairs(of)), strict=True)
        ]
        lines.append(f"  of {len(of)} drills with {_faults(n)}: {_correlation(of)}; means: {', '.join(means)}")
    return lines


def _faults(count: int) -> str:
    return f"{count} fault{'s' * (count != 1)}"


def _correlation(told: list[dict[str, Any]]) -> str:
    rho, sure = correlated(told), interval(pairs(told))
    return (
        "-"
        if rho is None
        else f"{rho:.2f}" + (f" (bootstrap over drills, 95 %: {sure[0]:.2f} .. {sure[1]:.2f})" if sure else "")
    )


def pairs(told: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Difficulty and the score of `thresholds` of those that pass."""
    return [(one["difficulty"], one["players"]["thresholds"]["score"]) for one in told if one["passes"]]


def correlated(told: list[dict[str, Any]]) -> float | None:
    """Of those that pass."""
    from drills.check.players import correlation

    return correlation(*_columns(pairs(told)))


def interval(values: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Of a rank correlation: the percentiles of a bootstrap that have 95 % between them (Efron, Tibshirani: An
    Introduction to the Bootstrap, 13.3). The same values have the same. Resamples in which difficulty or score is the
    same for all are left out; None if there are no others."""
    from drills.agents.figures import RESAMPLES, between
    from drills.check.players import correlation

    draw = random.Random(len(values))
    drawn = (correlation(*_columns(draw.choices(values, k=len(values)))) for _ in range(RESAMPLES if values else 0))
    found = sorted(rho for rho in drawn if rho is not None)
    return between(found) if found else None


def _columns(values: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [one for one, _ in values], [other for _, other in values]


if __name__ == "__main__":
    main()
