"""`testbed drill`: find the fault before the budget is gone."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from testbed.commands._complete import DRILL, FABRIC
from testbed.commands._drill_bench import bench, compare
from testbed.commands._drill_check import check
from testbed.commands._drill_instruct import instruct, join
from testbed.commands._drill_key import key, verify
from testbed.commands._drill_new import new
from testbed.commands._drill_seed import DAILY, LEVEL, SURPRISE, choose
from testbed.commands._drill_serve import serve
from testbed.commands._group import Group
from testbed.commands._say import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from drills.replay import Replayed
    from drills.session import Answer

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
_HELP = {"help_option_names": ["-h", "--help"]}


class Drills(Group):
    """Beside its own commands, the first words of a drill's lines: `testbed drill show pfc` is `show pfc` there."""

    former = {"resume": "join", "continue": "join", "attach": "join", "stop": "give-up", "end": "give-up"}

    @cached_property
    def heads(self) -> dict[str, list[str]]:
        """First words, and the whole lines that begin with them."""
        from drills.registry import lines

        found: dict[str, list[str]] = {}
        for line in lines().values():
            found.setdefault(line.words.partition(" ")[0], []).append(line.entry.usage)
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(head for head in self.heads if head not in own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        return own or (_line(cmd_name, self.heads[cmd_name]) if cmd_name in self.heads else None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = super().list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(90)) for name in own])
        with formatter.section("In a drill, at its prompt or from any shell"):
            for head in (h for h in self.heads if h not in own):
                command = self.get_command(ctx, head)
                assert command is not None
                formatter.write_dl([(head, command.get_short_help_str(90))])


class _Words(click.Argument):
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            from drills.play.client import connect

            session = connect(ctx.params.get("fabric") or None)
            words = [str(ctx.info_name), *(ctx.params.get(self.name or "") or ())]
            found = session.complete(" ".join([*words, incomplete]))
            session.leave()
        except Exception:  # it must never disturb the line that is being typed
            return []
        return [CompletionItem(word) for word in found]


def _line(head: str, usages: list[str]) -> click.Command:
    from drills.registry import lines

    whole = lines().get(head)
    about = whole.entry.about if whole else f"One of: {', '.join(sorted(usages))}."
    short = whole.entry.about if whole else ", ".join(sorted({u.partition(" ")[2].partition(" [")[0] for u in usages}))

    def run(words: tuple[str, ...], fabric: str | None, as_json: bool) -> None:
        import shlex

        _say(_once(shlex.join([head, *words]), fabric), as_json)

    usage = "\n".join(f"  testbed drill {usage}" for usage in sorted(usages))
    return click.Command(
        head,
        callback=run,
        params=[
            _Words(["words"], nargs=-1, type=click.UNPROCESSED, metavar="..."),
            click.Option(["--fabric"], metavar="ID", shell_complete=FABRIC,
                         help="Of which drill (default: the only one)."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object on stdout."),
        ],
        help=f"{about}\n\n\b\nLines:\n{usage}",
        short_help=short,
        context_settings={**_HELP, "ignore_unknown_options": True},
    )  # fmt: skip


def _once(line: str, fabric: str | None) -> Answer:
    """One line of the drill that is on, which stays on."""
    from drills.play.client import connect

    session = connect(fabric)
    try:
        return session.command(line)
    finally:
        session.leave()


def _say(answer: Answer, as_json: bool) -> None:
    from testbed.base.errors import InputError

    if not answer.ok and answer.error:
        raise InputError(answer.error["what"], answer.error["where"], answer.error["hint"])
    say(json.dumps(answer.to_dict()) if as_json else answer.text)


@click.group(cls=Drills, context_settings=_HELP)
def command() -> None:
    """Find the fault in a job that is not well, for a score.

    The fabric stands still while you think.

    `start` brings a drill up and opens its prompt. Time passes only by what you do. While it is on, every line of the
    prompt also goes from another shell: `testbed drill show pfc`.

    \b
    Examples:
      testbed drill list --level easy
      testbed drill start lost/dirty-optics
      testbed drill start lost/dirty-optics --seed 7Q4
    """


@command.command("list")
@click.option("--family", metavar="NAME", help="Only drills of this family.")
@click.option("--level", type=click.Choice(["easy", "medium", "hard"]), help="Only drills of this level.")
@_JSON
def list_(family: str | None, level: str | None, as_json: bool) -> None:
    """List the drills that are ready.

    \b
    Examples:
      testbed drill list
      testbed drill list --family pfc --level easy
    """
    from drills.sheet import file
    from testbed.base.errors import InputError
    from testbed.base.types import unknown

    names = file.catalogue()
    families = sorted({name.partition("/")[0] for name in names})
    if family and family not in families:
        what, hint = unknown("family", family, families)
        raise InputError(what, "--family", hint)
    loaded = [file.load(name) for name in names if family in (None, name.partition("/")[0])]
    rows = [
        {"drill": d.id, "level": d.level, "asks to mend": d.asks_to_fix, "clock": d.clock.mode, "title": d.title}
        for d in loaded
        if level in (None, d.level)
    ]
    if as_json:
        say(json.dumps({"drills": rows}))
        return
    for row in rows:
        marks = f"{'fix' if row['asks to mend'] else '':4} {'real' if row['clock'] == 'real' else '':4}"
        say(f"{row['drill']:32} {row['level']:7} {marks} {row['title']}")
    if not rows:
        say("no drill is like that")


@command.command()
@click.argument("drill", required=False, metavar="[DRILL]", shell_complete=DRILL)
@DAILY
@SURPRISE
@LEVEL
@click.option(
    "--seed", metavar="S", help="Draws the places, and whether anything is wrong at all (default: a new one)."
)
@click.option("--faulty", is_flag=True, help="Something is wrong: no healthy world. Its seed counts as chosen.")
@click.option("--exam", is_flag=True, help="Sealed: no seed is shown, and only this terminal plays it.")
@click.option("--player", metavar="NAME", default="", help="Who plays, for leaderboards.")
@click.option("--out", metavar="FILE", help="The game's log (default: results/drills/<timestamp>-<seed>.log).")
def start(
    drill: str | None,
    daily: bool,
    surprise: bool,
    level: str | None,
    seed: str | None,
    faulty: bool,
    exam: bool,
    player: str,
    out: str | None,
) -> None:
    """Start DRILL, an id of `testbed drill list` or a file, and open its prompt.

    Without a terminal lines come from stdin, one after the other. `quit` leaves the prompt and the drill on. In one of
    five drills everything is healthy.

    \b
    Examples:
      testbed drill start lost/dirty-optics
      testbed drill start lost/dirty-optics --seed 7Q4 --player ada
      testbed drill start my-drill.yaml --exam < lines.txt
      testbed drill start --surprise --level medium
      testbed drill start --daily --player ada
    """
    import sys

    from drills.play import client, prompt
    from drills.sheet.case import Case
    from testbed.base.errors import InputError, require_root

    if daily and faulty:
        raise InputError("the day also says whether anything is wrong", "--daily", "leave out --faulty")
    loaded, chosen, seed_by = choose(drill, seed, daily=daily, surprise=surprise, level=level, exam=exam, faulty=faulty)
    healthy = False if faulty else None
    Case.of(loaded, chosen, healthy)  # whatever is wrong with it is said before anything is made
    require_root()
    if sys.stdin.isatty():
        say("bringing the world up ..", err=True)
    session = client.start(loaded, chosen, healthy=healthy, exam=exam, player=player, seed_by=seed_by, out=out)
    try:
        say(session.ticket()["shown"])
        prompt.play(session, sys.stdin, say)
        on = not exam and not _over(session)
    finally:
        session.leave()
    if on:
        say(f"the drill goes on, on fabric {session.fabric}: testbed drill status, .. give-up ends it", err=True)


def _over(session: Any) -> bool:
    from testbed.base.errors import UserError

    try:
        return bool(session.state()["over"])
    except UserError:
        return True


@command.command()
@click.argument("log", required=False, metavar="[LOG]", type=click.Path(dir_okay=False))
@click.option("-o", "--out", metavar="FILE", help="Write it there: .md (with a picture beside it), .png or .svg.")
@_JSON
def report(log: str | None, out: str | None, as_json: bool) -> None:
    """Say how a game went: the truth, the shortest way to it, what was looked at and done, and what that was worth.

    LOG is a game's log (default: the newest one in results/drills).

    \b
    Examples:
      testbed drill report
      testbed drill report results/drills/20260101-101500-7Q4.log -o game.md
    """
    from pathlib import Path

    from drills import log as logs
    from drills.play.client import newest_log
    from drills.report import as_text, write
    from testbed.base.errors import InputError

    name = Path(log) if log else newest_log()
    game = logs.read(name)
    with logs.whole_log(str(name)):
        content = game.end["report"]
        text = json.dumps(content) if as_json else as_text(content)
    if out:
        target = Path(out)
        if target.suffix.lower() not in (".md", ".png", ".svg") or not target.parent.is_dir():
            hint = "NAME.md, NAME.png or NAME.svg in a folder"
            raise InputError(f"{out} cannot be written", "command line: --out", hint)
        with logs.whole_log(str(name)):
            written = write(content, target)
        for path in written:
            say(str(path))
    else:
        say(text)


@command.command()
@click.argument("log", type=click.Path(dir_okay=False))
@click.option("--verify", is_flag=True, help="Only say whether score and every state are the same.")
@_JSON
def replay(log: str, verify: bool, as_json: bool) -> None:
    """Play a game again from its LOG: the same world, the same lines, the same score.

    \b
    Examples:
      testbed drill replay results/drills/20260101-101500-7Q4.log
      testbed drill replay results/drills/20260101-101500-7Q4.log --verify
    """
    from pathlib import Path

    from drills import log as logs
    from drills.replay import replay as again
    from testbed.base.errors import UserError, require_root
    from testbed.base.text import printable

    read = logs.read(Path(log))
    require_root()

    def told(entry: Any, answer: Any) -> None:
        if not verify and not as_json:
            say(f"drill {entry.time_ns / 1000:g}us> {printable(entry.line)}\n{answer.text}")

    found = again(read, log, on_line=told)
    if found.differs:
        raise UserError(f"played again it is another game: {found.differs}", log)
    _verified(found, as_json)


def _verified(found: Replayed, as_json: bool) -> None:
    result = {"drill": found.log.head["drill"], "seed": found.log.head["seed"], "score": found.score,
            "sha256": found.log.sha256, "lines": len(found.log.entries)}  # fmt: skip
    if as_json:
        say(json.dumps(result))
        return
    say(f"the same in every state: {result['drill']}, seed {result['seed']}, score {found.score:.1f}, "
               f"sha256 {found.log.sha256[:16]}")  # fmt: skip


@command.command()
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--trust", is_flag=True, help="Do not play the games again: only check that the logs are whole.")
@click.option("--key", metavar="KEY", help="Only games that this public key (or the file that has it) has signed.")
@_JSON
def leaderboard(folder: str, trust: bool, key: str | None, as_json: bool) -> None:
    """Rank the players whose games' logs are in FOLDER. Each game is played again first.

    Games with seeds that were drawn, those of suites, drills of the day, and games whose seed the player has chosen (or
    whose world he had played before) are rows of their own; the last stand at the end.

    \b
    Examples:
      testbed drill leaderboard results/drills
      testbed drill leaderboard results/drills --trust
      testbed drill leaderboard results/drills --key referee.key.pub
    """
    from pathlib import Path

    from drills.play.ranking import ranked
    from drills.proof.signing import public
    from testbed.base.errors import require_root

    if not trust:
        require_root()
    table, refused = ranked(Path(folder), play=not trust, key=public(key) if key else "")
    if as_json:
        say(json.dumps({"players": table, "refused": refused}))
        return
    from testbed.tables.results import counters, show

    show(counters("players", table, whole=True), wide=True)
    for name, why in refused.items():
        say((f"{name} does not count: {why}"), err=True)


for _more in (bench, check, compare, instruct, join, key, new, serve, verify):
    command.add_command(_more)
