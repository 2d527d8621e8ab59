"""`testbed drill instruct` and `join`: two people at one drill."""

from __future__ import annotations

import click

from testbed.commands._complete import DRILL, FABRIC
from testbed.commands._drill_seed import FABRIC_OF_DRILL, SIGN, choose
from testbed.commands._say import say


@click.command("instruct")
@click.argument("drill", required=False, metavar="[DRILL]", shell_complete=DRILL)
@FABRIC_OF_DRILL
@click.option("--seed", metavar="S", help="Of a new one: draws the places, and whether anything is wrong at all.")
@click.option("--player", metavar="NAME", default="", help="Who plays the new one, for leaderboards.")
@SIGN
def instruct(drill: str | None, fabric: str | None, seed: str | None, player: str, sign: str | None) -> None:
    """Instruct a player: see the truth and what he types, pause, give hints, put faults in, fork the world.

    DRILL is started for that; the player plays it from another shell (`testbed drill join`) or its page (`testbed drill
    serve --web`). Without DRILL, the drill that is on: then the instructor's code is asked for, which was printed when
    it was started. Without a terminal lines come from stdin; the code is then the first.

    \b
    Examples:
      testbed drill instruct lost/dirty-optics --player ada
      testbed drill instruct --fabric 3f2a
    """
    import sys

    from drills.play import client, prompt
    from drills.sheet.case import Case
    from testbed.base.errors import InputError, require_root

    if drill and fabric:
        raise InputError("--fabric is for a drill that is on", "command line", f"leave out {drill}, or --fabric")
    if not drill and (seed or player or sign):
        what = "--seed, --player and --sign are for a new drill"
        raise InputError(what, "command line", "name one: testbed drill list")
    if drill:
        loaded, chosen, seed_by = choose(drill, seed, daily=False)
        Case.of(loaded, chosen)
        require_root()
        session = client.start(loaded, chosen, player=player, seed_by=seed_by, sign=sign)
        session.leave()
        fabric, code = session.fabric, session.instructor
        say(f"the player joins by: testbed drill join --fabric {fabric}\nthe instructor's code: {code}")
    else:
        fabric = client.which(fabric)
        asked = click.prompt("the instructor's code", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
        code = str(asked).strip()
    desk = client.Desk(fabric, code)
    try:
        say(desk.command("truth").text)
        prompt.play(desk, sys.stdin, say, teacher=desk)
    finally:
        desk.leave()


@click.command("join")
@click.option("--fabric", metavar="ID", shell_complete=FABRIC, help="Of which drill (default: the only one).")
def join(fabric: str | None) -> None:
    """Open the prompt of a drill that is on.

    \b
    Examples:
      testbed drill join
      testbed drill join --fabric 3f2a
    """
    import sys

    from drills.play import client, prompt

    session = client.connect(fabric)
    try:
        say(session.ticket()["shown"])
        prompt.play(session, sys.stdin, say)
    finally:
        session.leave()
