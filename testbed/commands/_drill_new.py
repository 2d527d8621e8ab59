"""`testbed drill new`: a drill from a seed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Whole
from testbed.commands._say import say

if TYPE_CHECKING:
    from drills.make.new import MadeDrill

TRIES = 20
PREFIX = "N"
TELLS = ("aim", "classes", "views", "players")
"""What is wrong there: who will play it is not told."""


@click.command("new")
@click.option("--seed", metavar="S", help="What it is made from: the same seed, the same file (default: new ones until "
              "one gives a drill).")  # fmt: skip
@click.option("--level", type=click.Choice(["easy", "medium", "hard"]), help="Only a drill of this level.")
@click.option("--family", metavar="NAME", help="Something of this family is wrong.")
@click.option("-o", "--out", metavar="FILE", help="The drill file (default: drill-S.yaml).")
@click.option("--seeds", type=Whole(1, 100_000), metavar="N", help="Only try N seeds (N1, N2 .., or S1, S2 .. with "
              "--seed S): how many give a drill, and why others do not.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a seed on stdout.")
def new(
    seed: str | None, level: str | None, family: str | None, out: str | None, seeds: int | None, as_json: bool
) -> None:
    """Make a drill from a seed: fabric, job, what is wrong, herrings, views, budget.

    It is played with its fault and without before it is written. A seed is refused if the fault does nothing there, if
    no view tells it from others, if it is of another level than asked, or if the solver does not find it.

    \b
    Examples:
      testbed drill new --seed 7Q4
      testbed drill new --level hard --family pfc -o my-drill.yaml
      testbed drill new --seeds 20 --json
    """
    from drills.make.new import made
    from drills.make.sketch import sketch
    from drills.sheet.case import any_seed, seed_of
    from testbed.base.errors import InputError, UserError, require_root

    chosen = seed_of(seed) if seed else None
    if seeds and out:
        raise InputError("--seeds writes no file", "command line", "leave out --out, or name one --seed")
    first = chosen or any_seed()
    if seeds:
        _try([seed_of(f"{chosen or PREFIX}{k + 1}") for k in range(seeds)], level, family, as_json)
        return
    sketch(first, level, family)  # a mistake is said before anything is made
    target = Path(out) if out else None
    if target is not None and not target.absolute().parent.is_dir():
        raise InputError("there is no such folder", str(target.parent), "name another file with --out")
    if target or chosen:
        _free(target or Path(f"drill-{chosen}.yaml"))
    require_root()
    made_drill = made(first, level, family)
    for _ in range(TRIES - 1):
        if not made_drill.refused or chosen:
            break
        say(f"seed {made_drill.seed}: {made_drill.refused}", err=True)
        made_drill = made(any_seed(), level, family)
    if made_drill.refused:
        if as_json:
            say(json.dumps(_untold(made_drill)))
            raise SystemExit(2)
        hint = "another seed; without --seed some are tried until one gives a drill"
        raise UserError(f"seed {made_drill.seed} gives no drill: {made_drill.refused}", "drill new", hint, exit_code=2)
    path = target or _free(Path(f"drill-{made_drill.seed}.yaml"))
    path.write_text(made_drill.text, encoding="utf-8")
    if as_json:
        say(json.dumps({**_untold(made_drill), "file": str(path)}))
        return
    say(f"{path}: {made_drill.level} (difficulty {made_drill.difficulty:g}), solved with {made_drill.score:.0f} points")
    say(f"testbed drill start {path} --seed {made_drill.seed}  # the world that was measured")


def _free(path: Path) -> Path:
    from testbed.base.errors import InputError

    if path.exists():
        what = "folder" if path.is_dir() else "file"
        raise InputError(f"there is a {what} of this name already", str(path), "name another file with --out")
    return path


def _untold(found: MadeDrill) -> dict[str, Any]:
    return {key: value for key, value in found.to_dict().items() if key not in TELLS}


def _try(seeds: list[str], level: str | None, family: str | None, as_json: bool) -> None:
    from drills.make.new import made
    from drills.make.sketch import sketch
    from testbed.base.errors import require_root

    sketch(seeds[0], level, family)
    require_root()
    tried = []
    for seed in seeds:
        tried.append(made(seed, level, family))
        say(json.dumps(tried[-1].to_dict()) if as_json else _line(tried[-1]))
    if as_json:
        return
    why = Counter(one.refused.partition(":")[0] for one in tried if one.refused)
    passed = sum(not one.refused for one in tried)
    say(f"{passed} of {len(tried)} give a drill{''.join(f'; {n} {what}' for what, n in why.most_common())}")


def _line(one: MadeDrill) -> str:
    said = one.refused or f"{one.level} ({one.difficulty:g}), {one.score:.0f} points"
    return f"{one.seed:6} {one.setting:10} {'+'.join(one.classes):28} {one.took_s:6.1f} s  {said}"
