"""`testbed drill check`: whether drills are drills."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import DRILL
from testbed.commands._say import say

if TYPE_CHECKING:
    from drills.check.check import Checked


@click.command()
@click.argument("drills", nargs=-1, shell_complete=DRILL)
@click.option("--all", "every", is_flag=True, help="All drills of the catalogue.")
@click.option("--seed", default="7Q4", metavar="S", help="Draws the places (default: 7Q4).")
@click.option("--seeds", type=Whole(1, 1000), default=1, metavar="N", help="Look at N worlds of each (S, S1, S2 ..): "
              "what its evidence says, and what the fault costs there (default: 1).")  # fmt: skip
@click.option("--solution", metavar="FILE", help="Play these lines instead of the solver's: of one DRILL and its seed.")
@click.option("--rivals", metavar="PLACE", help="Strike PLACE with each class that can: which look the same?")
@click.option("-o", "--out", metavar="FILE", help="With --rivals: add what was found to FILE, a YAML file of families.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a drill on stdout.")
def check(
    drills: tuple[str, ...],
    every: bool,
    seed: str,
    seeds: int,
    solution: str | None,
    rivals: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Check DRILLS: places can be drawn, the fault can be seen, the solver finds it, the healthy twin is healthy.

    A drill passes if the solver, which sees only what a student may see, gets 80 points or more, or the lines of its
    author (--solution: one line of the prompt a line, the last one `submit ..`); if what it gives as evidence shows; if
    a fault that is to be mended has cost the job something; and if it is not called hard although one limit tells it.

    \b
    Examples:
      testbed drill check lost/dirty-optics pfc/storm
      testbed drill check --all
      testbed drill check my-drill.yaml --seed 4KX --seeds 5
      testbed drill check my-drill.yaml --seed 4KX --solution my-lines.txt
      testbed drill check corruption/bad-hop-somewhere --rivals cable:leaf0-spine0 -o families.yaml
    """
    from drills.check.check import check as checked
    from drills.sheet import file
    from drills.sheet.case import seed_of
    from testbed.base.errors import InputError, require_root

    if every == bool(drills):
        raise InputError("which drills?", "command line", "DRILL .., or --all")
    loaded = [file.load(name) for name in (file.catalogue() if every else drills)]
    chosen = seed_of(seed)
    if solution and (len(loaded) != 1 or rivals or loaded[0].on_real_clock or not loaded[0].faults):
        raise InputError("a solution is of one drill with a fault, whose clock stands", "--solution", "one DRILL")
    lines = _lines(solution) if solution else []
    more = [seed_of(f"{seed}{k + 1}") for k in range(seeds - 1)]
    require_root()
    if rivals:
        if len(loaded) != 1:
            raise InputError("rivals are those of one drill", "command line: --rivals", "one DRILL")
        _compare(loaded[0], chosen, rivals, out, as_json)
        return
    results: list[Checked] = []
    for drill in loaded:
        results.append(checked(drill, chosen, lines, more))
        r = results[-1]
        if as_json:
            say(json.dumps(r.to_dict()))
            continue
        score = "-" if r.score is None else f"{r.score:.1f}"
        say(f"{r.drill:34} {r.verdict:7} {score:>5} {len(r.differs):3} views {r.took_s:6.1f} s  {r.truth}")
        for what in r.wrong:
            say(f"  {what}")
    passed = sum(r.passes for r in results)
    if not as_json:
        say(f"{passed} of {len(results)} pass")
        if len(results) > 1:
            say("\n".join(players(results)))
    if passed < len(results):
        sys.exit(1)


def _lines(path: str) -> list[str]:
    """Of a solution, as a prompt without a terminal takes them. Raises InputError."""
    from testbed.base.errors import InputError
    from testbed.base.model_file import FileKind, text_of

    lines = text_of(path, FileKind("a solution", "lines as at the prompt", "docs/drill-authors.md")).splitlines()
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not kept:
        raise InputError("there is no line in it", path, "lines as at the prompt, the last one: submit ANSWER")
    return kept


def players(checked: Sequence[Checked]) -> list[str]:
    """A table of those who only look, and of the solver; and whether levels are what they say."""
    from drills.agents.figures import estimate
    from drills.check.players import correlation
    from drills.sheet.drill import LEVELS
    from testbed.tables.results import counters, lines

    ill, well = [one for one in checked if one.ill], [one for one in checked if one.well]
    rows = []
    for name in next((one.well for one in well), {}):
        f1 = estimate([(one.drill, one.ill[name].f1) for one in ill])
        points = estimate([(r.drill, by[name].score) for r in checked for by in (r.ill, r.well) if name in by])
        alarms = sum(one.well[name].score == 0 for one in well) / len(well)
        rows.append({"player": name, "worlds": len(ill) + len(well), "rca_f1": str(f1 or "-"),
                     "score": str(points or "-"), "false_alarms": f"{100 * alarms:.0f} %"})  # fmt: skip
    by = correlation([LEVELS.index(one.level) for one in ill], [one.ill["thresholds"].score for one in ill])
    told = [] if by is None else [f"rank correlation of level and score of thresholds: {by:.2f}"]
    return [*lines(counters("players", rows, whole=True)), *told] if rows else []


def _compare(drill: object, seed: str, place: str, out: str | None, as_json: bool) -> None:
    from pathlib import Path
    from typing import cast

    from drills.check import rivals
    from drills.check.marks import groups
    from drills.sheet.drill import Drill
    from drills.sheet.families import write

    its = cast(Drill, drill)
    struck = rivals.rivals(its, seed, place)
    alike = {sight: groups(signatures) for sight, signatures in struck.by_sight.items()}
    if as_json:
        told = {sight: {kind: sorted(one) for kind, one in rows.items()} for sight, rows in struck.by_sight.items()}
        say(json.dumps({"signatures": told, "alike": alike, "left_out": struck.left}))
    else:
        best = next(iter(struck.by_sight.values()))
        for kind, one in best.items():
            say(f"{kind:18} {len(one):3} marks  {'; '.join(sorted(one))[:150]}")
        for sight, found in alike.items():
            same = [group for group in found if len(group) > 1]
            say(f"alike ({sight}): {'; '.join(' '.join(group) for group in same) or 'none'}")
        for why in struck.left:
            say(f"not compared: {why}")
    if out:
        write(its.id, place, alike, Path(out))
