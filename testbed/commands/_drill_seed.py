"""Which drill, which seed, and whose choice it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from testbed.drill.sheet.drill import Drill

DAILY = click.option(
    "--daily",
    is_flag=True,
    help="The drill of the day (by UTC): the same for everybody, a row of its own on leaderboards.",
)


def choose(
    drill: str | None, seed: str | None, *, daily: bool, exam: bool = False, faulty: bool = False
) -> tuple[Drill, str, str]:
    """The drill, its seed, and who has chosen it (testbed/drill/sheet/daily.py): who asks for a fault knows of one.
    Raises InputError."""
    from testbed.base.errors import InputError
    from testbed.drill.sheet import file
    from testbed.drill.sheet.case import any_seed, seed_of
    from testbed.drill.sheet.daily import CHOSEN, DRAWN, of_day, today

    if daily:
        if drill or seed or exam:
            what = "the drill of the day is chosen by the day, and known to all"
            raise InputError(what, "--daily", "leave out DRILL, --seed and --exam")
        its = of_day(today())
        click.echo(f"the drill of {its.day} (UTC)", err=True)
        return its.drill, its.seed, its.day
    if not drill:
        raise InputError("which drill?", "command line", "an id of testbed drill list, a file, or --daily")
    if seed:
        return file.load(drill), seed_of(seed), CHOSEN
    return file.load(drill), any_seed(exam=exam), CHOSEN if faulty else DRAWN
