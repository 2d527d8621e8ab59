"""`testbed drill serve`: a drill played by others than the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import DRILL
from testbed.commands._drill_seed import DAILY, FABRIC_OF_DRILL, LEVEL, SIGN, SURPRISE, choose
from testbed.commands._say import say

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from drills.play.client import Remote
    from drills.sheet.drill import Drill

    Chosen = tuple[Drill, str, str]  # with its seed, and whose choice that was


@click.command("serve")
@click.argument("drill", required=False, metavar="[DRILL]", shell_complete=DRILL)
@click.option("--web", is_flag=True, help="As a page for a browser on this machine.")
@click.option("--jsonl", is_flag=True, help="For a program: requests on stdin, answers on stdout, as JSON lines.")
@click.option("--mcp", is_flag=True, help="For an agent: as an MCP server on stdin and stdout.")
@FABRIC_OF_DRILL
@DAILY
@SURPRISE
@LEVEL
@click.option("--seed", metavar="S", help="Of a new one: draws the places, and whether anything is wrong at all.")
@click.option("--exam", is_flag=True, help="Sealed: no seed is shown, and only this page plays it; it ends with it.")
@SIGN
@click.option("--player", metavar="NAME", default="", help="Who plays, for leaderboards.")
@click.option("--port", type=Whole(0, 65535), metavar="N",
              help="Of the page: the port on 127.0.0.1 (default: a free one).")  # fmt: skip
@click.option("--out", metavar="FILE", help="The game's log (default: in results/drills).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout: drill, fabric, url, port.")
def serve(
    drill: str | None,
    web: bool,
    jsonl: bool,
    mcp: bool,
    fabric: str | None,
    daily: bool,
    surprise: bool,
    level: str | None,
    seed: str | None,
    exam: bool,
    sign: str | None,
    player: str,
    port: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Serve a drill to a browser or a program: DRILL is started for that, without it the one that is on is served.

    --web is a page, until Ctrl-C: the ticket, the topology, step times, a terminal, an answer sheet. The server listens
    on 127.0.0.1 alone; the URL has a token without which nobody gets in.

    --jsonl and --mcp are for programs that have this command as their child: the same tools on stdin and stdout. DRILL
    is sealed then, and ends with its player.

    With --sign it is a referee: its page is for players who are not root on this machine, and the log of their game is
    signed with a key that only the referee has.

    A drill that it starts has a second page, for its instructor, with a URL of its own: it shows the truth.

    \b
    Examples:
      testbed drill serve lost/dirty-optics --web
      testbed drill serve --daily --web
      testbed drill serve --web --port 8080
      testbed drill serve lost/dirty-optics --mcp
      testbed drill serve --surprise --web --exam --sign referee.key --player ada
    """
    from testbed.base.errors import InputError

    if web + jsonl + mcp != 1:
        raise InputError("served how?" if not web + jsonl + mcp else "served in one way", "command line",
                         "--web, --jsonl or --mcp")  # fmt: skip
    new = bool(drill or daily or surprise)
    if not new and (seed or exam or sign or player or out):
        what = "--seed, --exam, --sign, --player and --out are for a new drill"
        raise InputError(what, "command line", "name one: testbed drill list")
    if new and fabric:
        hint = f"leave out {drill or 'it'}, or --fabric"
        raise InputError("--fabric is for a drill that is on", "command line", hint)
    if not web and daily:
        raise InputError("a drill for a program is sealed, and that of the day is known to all", "--daily", "--web")
    sealed = exam or not web
    chosen = choose(drill, seed, daily=daily, surprise=surprise, level=level, exam=sealed) if new or level else None
    open_session = partial(_session, chosen, fabric, page=web, exam=sealed, player=player, out=out, sign=sign)
    if web:
        _page(open_session, port or 0, exam=exam, as_json=as_json)
        return
    if port is not None or as_json:
        raise InputError("--port and --json are for a page", "command line", "leave them out, or --web")
    _pipe(open_session, new=chosen is not None, mcp=mcp)


def _pipe(open_session: Callable[[], Remote], *, new: bool, mcp: bool) -> None:
    """On stdin and stdout, until the program at the other end has gone."""
    from drills.agents import jsonl
    from drills.agents import mcp as as_mcp
    from drills.agents.desk import AgentSession
    from testbed.base.errors import UserError

    if mcp:
        as_mcp.require_mcp()
    session = open_session()
    try:
        desk = AgentSession(session)
        if mcp:
            as_mcp.serve(desk)
        else:
            jsonl.serve(desk, 0, 1)
        if desk.gone:
            raise UserError("the drill has ended: its world or its server has died", "drill", "testbed clean")
        if new and not desk.over:
            session.command("give-up")
        if session.log:
            with suppress(OSError):  # nobody may be there to read it
                say(f"the game's log: {session.log}", err=True)
    finally:
        session.leave()


def _page(open_session: Callable[[], Remote], port: int, *, exam: bool, as_json: bool) -> None:
    from drills.play.client import Desk
    from testbed.base.errors import UserError
    from testbed.serve import server
    from testbed.serve.guard import new_token
    from testbed.serve.instructor import PATH, Teacher, both
    from testbed.serve.instructor import application as instructors
    from testbed.serve.student import Student, application

    sock = server.listen(port)
    session = open_session()
    try:
        token = new_token()
        student, url = Student(session), server.url(sock, token)
        teacher = Teacher(Desk(session.fabric, session.instructor)) if session.instructor else None
        his = new_token()
        code = session.ticket()["drill"]
        if as_json:
            told = {"drill": code, "fabric": session.fabric, "url": url, "port": sock.getsockname()[1]}
            told |= {"instructor": server.url(sock, his, PATH)} if teacher else {}
            say(json.dumps(told))
        else:
            say(f"drill {code}, until Ctrl-C: open\n  {url}")
            if teacher:
                say(f"the instructor's page, which shows the truth:\n  {server.url(sock, his, PATH)}")

        def pages(ending: server.Ending) -> ASGIApp:
            players = application(student, token, ending)
            return both(players, instructors(teacher, his, ending)) if teacher else players

        try:
            ended = server.serve(pages, sock)
        except KeyboardInterrupt:
            if not exam:
                say(f"the drill goes on, on fabric {session.fabric}: testbed drill status", err=True)
            return
        raise UserError(ended.why, "drill", "testbed drill list")
    finally:
        session.leave()
        sock.close()


def _no_page() -> Exception:
    from testbed.base.errors import InputError

    what = "this drill is on the real clock, and the page is for a world that stands still"
    return InputError(what, "--web", "testbed drill start plays it at a prompt; --jsonl and --mcp go, too")


def _session(chosen: Chosen | None, fabric: str | None, *, page: bool, **game: Any) -> Remote:
    """The client of a drill that is on, or of a new one. Raises InputError for a `page` of one on the real clock."""
    from drills.play import client
    from testbed.base.errors import require_root

    if chosen is None:
        session = client.connect(fabric)
        if page and session.ticket()["clock"] == "real":
            session.leave()
            raise _no_page()
        return session
    from drills.sheet.case import Case

    drill, seed, seed_by = chosen
    if page and drill.on_real_clock:
        raise _no_page()
    Case.of(drill, seed)
    require_root()
    say("bringing the world up ..", err=True)
    return client.start(drill, seed, seed_by=seed_by, **game)
