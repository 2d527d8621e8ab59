"""`testbed config`: an operator's actions at a live fabric, and the way back."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.operate.record import Done

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older ones are not generic


class _Words(ParamType):
    """A line of the registry; the shell is offered what may come next."""

    name = "words"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from testbed.fabric.lab import Lab
        from testbed.operate.registry import ACTIONS
        from testbed.words.entry import offers

        words = list(ctx.params.get("words") or ())
        try:
            with closing(Lab.attach(ctx.params.get("fabric") or None)) as lab:
                offered = offers(ACTIONS.values(), words, lab.fabric)
        except Exception:  # it must never disturb the line that is being typed
            return []
        if not words:
            offered += [("rollback", "take back what was done")]
        return [CompletionItem(word, help=text) for word, text in offered if word.startswith(incomplete)]


class Config(click.Command):
    """`testbed config ACTION --help` is the action's, made from its entry."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if words and {"-h", "--help"} & set(args) and not ctx.resilient_parsing:
            click.echo(_about(words))
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from testbed.operate.registry import GROUPS

        for title, actions in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(action.words, action.about) for action in actions])
        with formatter.section("What was done"):
            formatter.write_dl([("rollback [N|all]", "Takes it back: the last, one, or all.")])


def _about(words: list[str]) -> str:
    from testbed.base.units import format_time
    from testbed.operate.registry import ACTIONS
    from testbed.words.entry import find

    action, _ = find(ACTIONS.values(), words)
    shown = [f"Usage: testbed config {action.usage}", "", f"  {action.about}", ""]
    shown += [f"  {p.usage:24} {p.help}" for p in action.parameters]
    shown += ["", f"  Takes {format_time(action.cost_ns)}. Touches: {action.blast}.", f"  Frames: {action.traffic}."]
    return "\n".join([*shown, "", f"  Such as: testbed config {action.words} {action.example}"])


@click.command(
    cls=Config,
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
    options_metavar="[--fabric ID] [--json]",
)
@click.argument("words", nargs=-1, type=_Words(), metavar="ACTION ..", is_eager=True)
@_fabric.option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(words: tuple[str, ...], fabric: str | None, as_json: bool) -> None:
    """Change a live fabric as an operator does, and back.

    Ports, cables, queues, NICs, routes.

    What is set lies over everything else, injected faults too. All of it is recorded: testbed show config log.

    \b
    Examples:
      testbed config interface shutdown rail0:5
      testbed config ecn rail0 --kmin 100KB --kmax 400KB
      testbed config cable replace rail0-spine0
      testbed config rollback all
    """
    from testbed.base.errors import InputError
    from testbed.commands._held import held
    from testbed.fabric.lab import Lab
    from testbed.operate.carry_out import config
    from testbed.operate.steps.site import Site

    if not words:
        raise InputError("which action?", "command line", "testbed config --help lists them")
    with held(fabric) as kept:
        lab = kept.lab if kept else Lab.attach(fabric)
        try:
            done = kept.config(words) if kept else config(Site.of(lab), list(words))
        finally:
            if not kept:
                lab.close()
    if as_json:
        click.echo(json.dumps([_shown(one) for one in done]))
        return
    for one in done:
        click.echo(in_words(one))


def in_words(done: Done) -> str:
    """An action that was carried out, as the operator reads it."""
    from testbed.base.units import format_time

    what = f"{done.number}: {done.line}" + (" rolled back" if done.rollback else "")
    return "\n".join([f"{what}; takes {format_time(done.cost_ns)}", *(f"   {note}" for note in done.notes)])


def _shown(done: Done) -> dict[str, Any]:
    hidden = ("undo", "rollback", "for_good")
    return {key: value for key, value in asdict(done).items() if key not in hidden} | {"state": done.state}
