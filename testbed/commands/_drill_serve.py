"""`testbed drill serve`: a drill played by others than the prompt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import DRILL, FABRIC

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from testbed.drill.play.client import Remote


@click.command("serve")
@click.argument("drill", required=False, metavar="[DRILL]", shell_complete=DRILL)
@click.option("--web", is_flag=True, help="As a page for a browser on this machine.")
@click.option(
    "--fabric", metavar="ID", shell_complete=FABRIC, help="Of which drill that is on (default: the only one)."
)
@click.option("--seed", metavar="S", help="Of a new one: draws the places, and whether anything is wrong at all.")
@click.option("--exam", is_flag=True, help="Sealed: no seed is shown, and only this page plays it; it ends with it.")
@click.option("--player", metavar="NAME", default="", help="Who plays, for leaderboards.")
@click.option(
    "--port", type=Whole(0, 65535), default=0, metavar="N", help="The port on 127.0.0.1 (default: a free one)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout: drill, fabric, url, port.")
def serve(
    drill: str | None,
    web: bool,
    fabric: str | None,
    seed: str | None,
    exam: bool,
    player: str,
    port: int,
    as_json: bool,
) -> None:
    """Serve a drill as a page, until Ctrl-C: DRILL is started for that, without it the one that is on is served.

    The page has the ticket, the topology, step times, a terminal, an answer sheet. It plays by the same lines as the
    prompt. The server listens on 127.0.0.1 alone; the URL has a token without which nobody gets in.

    A drill that it starts has a second page, for its instructor, with a URL of its own: it shows the truth.

    \b
    Examples:
      testbed drill serve lost/dirty-optics --web
      testbed drill serve --web --port 8080
    """
    from testbed.base.errors import InputError, UserError
    from testbed.drill.play.client import Desk
    from testbed.serve import server
    from testbed.serve.guard import new_token
    from testbed.serve.instructor import PATH, Teacher, both
    from testbed.serve.instructor import application as instructors
    from testbed.serve.student import Student, application

    if not web:
        raise InputError("served how?", "command line", "--web")
    if not drill and (seed or exam or player):
        raise InputError(
            "--seed, --exam and --player are for a new drill", "command line", "name one: testbed drill list"
        )
    if drill and fabric:
        raise InputError("--fabric is for a drill that is on", "command line", f"leave out {drill}, or --fabric")
    sock = server.listen(port)
    session = _session(drill, fabric, seed, exam=exam, player=player)
    try:
        token = new_token()
        student, url = Student(session), server.url(sock, token)
        teacher = Teacher(Desk(session.fabric, session.instructor)) if session.instructor else None
        his = new_token()
        code = session.ticket()["drill"]
        if as_json:
            told = {"drill": code, "fabric": session.fabric, "url": url, "port": sock.getsockname()[1]}
            told |= {"instructor": server.url(sock, his, PATH)} if teacher else {}
            click.echo(json.dumps(told))
        else:
            click.echo(f"drill {code}, until Ctrl-C: open\n  {url}")
            if teacher:
                click.echo(f"the instructor's page, which shows the truth:\n  {server.url(sock, his, PATH)}")

        def pages(ending: server.Ending) -> ASGIApp:
            players = application(student, token, ending)
            return both(players, instructors(teacher, his, ending)) if teacher else players

        try:
            ended = server.serve(pages, sock)
        except KeyboardInterrupt:
            if not exam:
                click.echo(f"the drill goes on, on fabric {session.fabric}: testbed drill status", err=True)
            return
        raise UserError(ended.why, "drill", "testbed drill list")
    finally:
        session.leave()
        sock.close()


def _session(drill: str | None, fabric: str | None, seed: str | None, *, exam: bool, player: str) -> Remote:
    """The client of a drill that is on, or of a new one."""
    from testbed.base.errors import require_root
    from testbed.drill.play import client

    if not drill:
        return client.connect(fabric)
    from testbed.drill.sheet import file
    from testbed.drill.sheet.case import Case, any_seed, seed_of

    chosen, loaded = seed_of(seed) if seed else any_seed(), file.load(drill)
    Case.of(loaded, chosen)
    require_root()
    click.echo("bringing the world up ..", err=True)
    return client.start(loaded, chosen, exam=exam, player=player)
