"""`testbed inject`: puts a fault into a live fabric. Each fault is a command of its own, made when it is asked for."""

from __future__ import annotations

import json
from typing import Any

import click

from testbed.commands import _fabric
from testbed.commands._complete import FABRIC


class Faults(click.Group):
    """A group whose commands are the faults of the catalogue."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from testbed.faults import CATALOGUE

        return list(CATALOGUE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from testbed.faults import CATALOGUE

        return _command(cmd_name) if cmd_name in CATALOGUE else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from testbed.base.errors import InputError
        from testbed.base.types import unknown
        from testbed.faults import CATALOGUE

        if args and args[0] not in CATALOGUE and not ctx.resilient_parsing:
            what, hint = unknown("fault", args[0], list(CATALOGUE))
            raise InputError(what, "command line", hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By group, each with its whole summary; click would write `Commands`, cut off."""
        from testbed.faults import GROUPS

        for name, faults in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl([(cls.name, cls.summary) for cls in faults])


class FaultCommand(click.Command):
    """One fault. `--list` says what it takes, as `--help` does, and with --json for a program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--list" in args and not ctx.resilient_parsing:
            _list(ctx, str(self.name), "--json" in args)
        return super().parse_args(ctx, args)


def _list(ctx: click.Context, fault: str | None, as_json: bool) -> None:
    """All faults, or FAULT and its parameters."""
    from testbed.commands._options import described
    from testbed.faults import CATALOGUE

    if as_json:
        click.echo(json.dumps(described(fault) if fault else {"faults": [described(name) for name in CATALOGUE]}))
    elif fault:
        click.echo(ctx.get_help())
    else:
        _table()
    ctx.exit()


def _table() -> None:
    import sys

    from rich.table import Table

    from testbed.faults import CATALOGUE
    from testbed.tables.results import show

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("fault", "strikes", "what it is"):
        table.add_column(head, no_wrap=head != "what it is")
    for cls in CATALOGUE.values():
        table.add_row(cls.name, " ".join(cls.on), cls.summary)
    show(table, wide=not sys.stdout.isatty())  # for grep, one line each


def _command(fault: str) -> click.Command:
    from testbed.commands._options import of
    from testbed.faults import CATALOGUE

    cls = CATALOGUE[fault]

    def run(fabric: str | None, as_json: bool, **given: Any) -> None:
        group = click.get_current_context().parent  # `inject --fabric ID FAULT`
        named = group.params.get("fabric") if group else None
        _inject(fault, _fabric.one_of(named, fabric), as_json, given)

    own = [
        click.Option(["--fabric"], metavar="ID", help=_fabric.ABOUT, shell_complete=FABRIC),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object on stdout."),
    ]
    first = f"{cls.summary[:1].upper()}{cls.summary[1:]}."
    text = f"{first}\n\nSeen by: {cls.shows}" + ("\n\nOnly with the real clock." if cls.only_real_clock else "")
    return FaultCommand(fault, callback=run, params=[*of(cls), *own], help=text.replace("`", ""), short_help=first)


def _inject(fault: str, fabric: str | None, as_json: bool, given: dict[str, Any]) -> None:
    from testbed.base.errors import InputError
    from testbed.commands._held import held
    from testbed.commands._options import injection
    from testbed.inject.live import inject

    made = injection(fault, given)
    try:
        with held(fabric) as kept:
            name = kept.put_in(made) if kept else inject(made, fabric)
    except ValueError as error:
        key = getattr(error, "key", None) or "on"
        where = f"command line: --{key} {given[key]}" if given.get(key) is not None else f"command line: --{key}"
        raise InputError(getattr(error, "what", str(error)), where, getattr(error, "hint", "")) from None
    click.echo(json.dumps({"fault": name, **made.written()}) if as_json else name)


@click.group(
    cls=Faults,
    invoke_without_command=True,
    subcommand_metavar="FAULT [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@_fabric.option
@click.option("--list", "listing", is_flag=True, help="List the faults there are, and what each strikes.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print one JSON object on stdout.")
@click.pass_context
def command(ctx: click.Context, fabric: str | None, listing: bool, as_json: bool) -> None:
    """Put a fault into a live fabric.

    Prints the fault's id, by which `testbed heal` takes it out again.

    `testbed inject FAULT --help` says what a fault takes and what it strikes.

    \b
    Examples:
      testbed inject --list
      testbed inject loss --help
      testbed inject loss --on cable:h0.0-rail0 --rate 0.01
      testbed inject cable_down --on port:rail0:3 --for 2ms --every 10ms
      testbed inject straggler --on nic:3 --factor 2
    """
    from testbed.base.errors import InputError

    fault = ctx.invoked_subcommand
    if fault is None:
        if fabric and not listing:
            raise InputError("which fault?", "command line", "testbed inject --list names them")
        _list(ctx, None, as_json)
    elif listing:  # `inject --list FAULT`, and --json may stand on either side
        with click.Context(_command(fault), info_name=fault, parent=ctx) as own:
            _list(own, fault, as_json or "--json" in ctx.args)
