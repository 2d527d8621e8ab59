"""Which drill, which seed, and whose choice it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from testbed.commands._complete import FABRIC
from testbed.commands._say import say

if TYPE_CHECKING:
    from drills.sheet.drill import Drill

FABRIC_OF_DRILL = click.option(
    "--fabric", metavar="ID", shell_complete=FABRIC, help="Of which drill that is on (default: the only one)."
)
SURPRISE = click.option(
    "--surprise", is_flag=True, help="Any drill of the catalogue, which is not named before the end: its name tells."
)
LEVEL = click.option("--level", type=click.Choice(["easy", "medium", "hard"]), help="With --surprise: of this level.")
SIGN = click.option("--sign", metavar="KEY", type=click.Path(dir_okay=False),
                    help="Sign the game's log with this key (testbed drill key).")  # fmt: skip
DAILY = click.option("--daily", is_flag=True, help="The drill of the day (by UTC): the same for everybody, a row of "
                     "its own on leaderboards.")  # fmt: skip


def choose(
    drill: str | None,
    seed: str | None,
    *,
    daily: bool,
    surprise: bool = False,
    level: str | None = None,
    exam: bool = False,
    faulty: bool = False,
) -> tuple[Drill, str, str]:
    """The drill, its seed, and who has chosen it (drills/sheet/daily.py): who asks for a fault knows of one.
    Raises InputError."""
    from drills.sheet import file
    from drills.sheet.case import any_seed, seed_of
    from drills.sheet.daily import CHOSEN, DRAWN, of_day, today
    from testbed.base.errors import InputError

    if level and not surprise:
        raise InputError("--level chooses among drills", "--level", "with --surprise; or testbed drill list --level")
    if surprise:
        if drill or seed or daily:
            what = "a surprise is drawn, drill and seed"
            raise InputError(what, "--surprise", "leave out DRILL, --seed and --daily")
        return any_drill(level), any_seed(hidden=True), CHOSEN if faulty else DRAWN
    if daily:
        if drill or seed or exam:
            what = "the drill of the day is chosen by the day, and known to all"
            raise InputError(what, "--daily", "leave out DRILL, --seed and --exam")
        its = of_day(today())
        say(f"the drill of {its.day} (UTC)", err=True)
        return its.drill, its.seed, its.day
    if not drill:
        raise InputError("which drill?", "command line", "an id of testbed drill list, a file, --surprise or --daily")
    if seed:
        return file.load(drill), seed_of(seed), CHOSEN
    return file.load(drill), any_seed(hidden=True), CHOSEN if faulty else DRAWN


def any_drill(level: str | None) -> Drill:
    """One of the catalogue (of a level), whose clock stands still. Healthy ones are among its worlds as among all."""
    import secrets

    from drills.sheet import file

    every = [one for one in map(file.load, file.catalogue()) if not one.on_real_clock]
    return secrets.choice([one for one in every if level in (None, one.level)])
