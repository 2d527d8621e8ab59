"""`testbed inject`: a fault into a live fabric."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from testbed.inject import Injection


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("fault", required=False)
@click.option("--on", "target", metavar="TARGET", help="What it strikes: cable:A-B, port:SWITCH:N, nic:RANK, ...")
@click.option("--at", metavar="TIME", help="Emulated time from now (default: at once).")
@click.option("--for", "lasts", metavar="TIME", help="How long (default: until it is healed).")
@click.option("--every", metavar="TIME", help="Again and again, so often; goes with --for.")
@click.option("--fabric", metavar="ID", help="The fabric (default: the only one that is up).")
@click.option("--list", "listing", is_flag=True, help="List the faults there are; with FAULT, its parameters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED, metavar="[--PARAMETER VALUE]...")
def command(
    fault: str | None,
    target: str | None,
    at: str | None,
    lasts: str | None,
    every: str | None,
    fabric: str | None,
    listing: bool,
    as_json: bool,
    parameters: tuple[str, ...],
) -> None:
    """Put FAULT into the fabric that is up, and print its id, by which `testbed heal` takes it out again.

    \b
    Examples:
      testbed inject --list
      testbed inject loss --on cable:h0-leaf0 --rate 0.01
      testbed inject cable_down --on port:leaf0:3 --for 2ms --every 10ms
      testbed inject straggler --on nic:3 --factor 2
    """
    from testbed.errors import InputError
    from testbed.inject.live import inject

    if listing or fault is None:
        _list(fault)
        return
    written: dict[str, Any] = {"fault": fault, "on": target, "at": at, "for": lasts, "every": every}
    injection = _injection({k: v for k, v in written.items() if v is not None} | _parameters(parameters))
    try:
        name = inject(injection, fabric)
    except ValueError as error:
        raise InputError(getattr(error, "what", str(error)), "command line", getattr(error, "hint", "")) from None
    click.echo(json.dumps({"fault": name, **injection.written()}) if as_json else name)


def _parameters(words: tuple[str, ...]) -> dict[str, Any]:
    """`--rate 0.01 --opcodes [CNP]` as a mapping; values are read as in an experiment file."""
    import yaml

    from testbed.errors import InputError

    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not (equals or rest):
            raise InputError(
                "a parameter is --NAME VALUE", f"command line: {word}", "testbed inject --list FAULT lists them"
            )
        try:
            found[name.replace("-", "_")] = yaml.safe_load(value if equals else rest.pop(0))
        except yaml.YAMLError:
            raise InputError("this value cannot be read", f"command line: --{name}") from None
    return found


def _injection(written: dict[str, Any]) -> Injection:
    from testbed.errors import InputError, Problem
    from testbed.inject import Injection, Mistakes

    try:
        return Injection.of(written)
    except Mistakes as mistakes:
        first, *others = [
            Problem(what, "command line" + (f": {path[0]}" if path else ""), hint)
            for path, what, hint in mistakes.found
        ]
        raise InputError(first.what, first.where, first.hint, others) from None


def _list(fault: str | None) -> None:
    from rich.table import Table

    from testbed.errors import InputError
    from testbed.inject import CATALOGUE
    from testbed.table import show

    if fault is not None and fault not in CATALOGUE:
        raise InputError(f"unknown fault {fault!r}", "command line", f"known: {', '.join(CATALOGUE)}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if fault is None:
        for head in ("fault", "strikes", "what it is"):
            table.add_column(head, no_wrap=head != "what it is")
        for cls in CATALOGUE.values():
            table.add_row(cls.name, " ".join(cls.on), cls.summary)
    else:
        for head in ("parameter", "default", "meaning"):
            table.add_column(head)
        for name, field in CATALOGUE[fault].model_fields.items():
            default = "(needed)" if field.is_required() else str(field.get_default(call_default_factory=True))
            table.add_row(f"--{name}", default, field.description or "")
    show(table)
