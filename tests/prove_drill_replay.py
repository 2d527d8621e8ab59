"""Proof: a game is a function of the lines that act, whatever happens between them.

`./setup.sh prove drill-replay [--reads N] [--seed SEED] [DRILL..]`. Each drill (ten of the catalogue, one a family, if
none is named) is played by the solver, and all views are looked at after each line that acts. Then the same lines are
typed again with sleeps and N reads between them, in another order, while other processes take all the CPU they get. All
views at all holds have to be the same to the byte, and so the answers to all lines, the digests in the log and the
score.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drills import log as logs
from drills.play.client import Remote, start
from drills.registry import lines
from drills.session import Answer
from drills.sheet import file
from drills.sheet.drill import Drill
from drills.solve.solver import solve
from testbed.base.errors import UserError
from testbed.words.entry import find
from tests.parts.machine import ROOT
from tests.prove_load import hogs

SEED = "7Q4"
READS = 1000
DRILLS = 10
LONGEST_SLEEP_S = 0.05
BEFORE, AFTER = 30, 60
Hold = dict[str, str]


class Watched:
    """A session whose player is followed: what was typed that acts, what it brought, and all views afterwards."""

    def __init__(self, session: Remote) -> None:
        self._session = session
        self.typed: list[tuple[str, str]] = []
        self.holds = [seen(session)]
        self.ticket, self.state, self.complete, self.close = (
            session.ticket, session.state, session.complete, session.close,
        )  # fmt: skip

    def command(self, line: str) -> Answer:
        answer = self._session.command(line)
        if _acts(line):
            self.typed.append((line, _said(answer)))
            self.holds.append(seen(self._session))
        return answer


def _acts(line: str) -> bool:
    entry, _ = find([one.entry for one in lines().values()], line.split(), "drill")
    return lines()[entry.words].acts


def views() -> list[str]:
    """All that look, as their examples have them."""
    return [example for words, line in lines().items() if words.startswith("show ") for example in line.entry.examples]


def seen(session: Remote) -> Hold:
    return {line: _said(session.command(line)) for line in views()}


def _said(answer: Answer) -> str:
    """Without the log's name, which the end tells."""
    return json.dumps({**answer.to_dict(), "text": answer.text.partition("\nhow it went: ")[0]})


@contextmanager
def served(drill: Drill, log: Path) -> Iterator[Remote]:
    session = start(drill, SEED, healthy=False, out=str(log))
    try:
        yield session
    finally:
        try:
            session.close()
        except UserError:  # it has ended
            session.leave()


def differences(drill: Drill, reads: int, draw: random.Random, folder: Path) -> list[str]:
    """Plays a drill twice; where the second game is another one."""
    with served(drill, folder / "one.log") as session:
        game = Watched(session)
        game.command(f"submit {solve(game)}")
    found = []
    each = -(-reads // len(game.typed))
    with hogs(), served(drill, folder / "other.log") as session:
        for k, (line, said) in enumerate(game.typed):
            found += [f"hold {k}: {view} is another{how}" for view, how in _read(session, game.holds[k], each, draw)]
            if (again := _said(session.command(line))) != said:
                found.append(f"{line} brings something else{first_difference(said, again)}")
        last = seen(session)
    for view, again in last.items():
        if again != (said := game.holds[-1][view]):
            found.append(f"in the end {view} is another{first_difference(said, again)}")
    one, other = (logs.read(folder / name) for name in ("one.log", "other.log"))
    if _acting(one) != _acting(other):
        found.append("the logs have other digests")
    if one.end["score"] != other.end["score"]:
        found.append(f"score {other.end['score']}, not {one.end['score']}")
    return found


def first_difference(one: str, other: str) -> str:
    """Where two texts part, with a few characters around."""
    at = len(os.path.commonprefix([one, other]))
    return f": {other[max(0, at - BEFORE) : at + AFTER]!r}, not {one[max(0, at - BEFORE) : at + AFTER]!r}"


def _read(session: Remote, hold: Hold, count: int, draw: random.Random) -> Iterator[tuple[str, str]]:
    """Reads so often, in any order, and sleeps in between; yields what is not as it was, and how."""
    for number in range(count):
        view = draw.choice(list(hold))
        if (again := _said(session.command(view))) != hold[view]:
            yield view, first_difference(hold[view], again)
        if number % 50 == 0:
            time.sleep(draw.uniform(0, LONGEST_SLEEP_S))


def _acting(log: logs.Log) -> list[tuple[Any, ...]]:
    return [(e.line, e.time_ns, e.took_ns, e.ok, e.digest) for e in log.entries if e.acts]


def prove(names: list[str], reads: int, seed: int, say: Callable[[str], None] = print) -> dict[str, list[str]]:
    """Where games differ, by drill."""
    found, draw = {}, random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="rbreplay-") as folder:
        for number, name in enumerate(names, 1):
            try:
                own = Path(folder, str(number))
                own.mkdir()
                found[name] = differences(file.load(name), reads, draw, own)
            except UserError as error:
                found[name] = [str(error)]
            wrong = found[name]
            came = f"{len(wrong)} differences" if wrong else "the same to the byte"
            say(f"{number:3} of {len(names)}: {name}: {came}")
            for one in wrong[:12]:
                say(f"      {one}")
    return found


def one_of_each_family() -> list[str]:
    families: dict[str, str] = {}
    for name in file.catalogue():
        if (drill := file.load(name)).faults and not drill.on_real_clock:
            families.setdefault(name.partition("/")[0], name)
    return list(families.values())[:DRILLS]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove drill-replay", description=__doc__)
    parser.add_argument("drills", nargs="*", metavar="DRILL")
    parser.add_argument("--reads", type=int, default=READS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = prove(options.drills or one_of_each_family(), options.reads, options.seed)
    if wrong := sum(map(bool, found.values())):
        sys.exit(f"prove drill-replay: {wrong} of {len(found)} drills went another way")
    print(
        f"{len(found)} drills, played again with {options.reads} reads, sleeps and load between: the same to the byte"
    )


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(ROOT)
    main()
