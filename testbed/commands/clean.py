"""`testbed clean`: removes what killed runs have left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.machine.ownership import Removed


@click.command()
@_fabric.either
@click.option("--force", is_flag=True, help="Also if the fabric is in use (only with ID).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(fabric: str | None, force: bool, as_json: bool) -> None:
    """Remove what killed runs have left, and nothing else.

    That is what fabrics have left whose owner has died: processes, links, bridges, control groups, directories; and the
    folders of PyTorch scripts that were being run for what they do.

    Fabrics that are in use, and whatever is not a fabric's, are not touched.

    \b
    Examples:
      testbed clean
      testbed clean 3f2a --force
    """
    from testbed.base.errors import InputError
    from testbed.machine import ownership, scratch

    if force and not fabric:
        raise InputError("--force needs the id of the fabric", where="command line", hint="testbed status --all")
    failed: ownership.CleanFailed | None = None
    try:
        removed = ownership.clean(fabric, force)
    except ownership.CleanFailed as error:
        failed, removed = error, error.removed
    folders = [] if fabric else scratch.remove_abandoned()
    if not as_json:
        _tell(removed, folders, failed)
    elif not failed:
        click.echo(json.dumps({"removed": [r.to_dict() for r in removed], "folders": [str(f) for f in folders]}))
    if failed:
        raise failed


def _tell(removed: Sequence[Removed], folders: Sequence[Path], failed: Exception | None) -> None:
    for fabric in removed:
        parts = {k: v for k, v in fabric.to_dict().items() if k != "id" and v}
        what = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in parts.items())
        click.echo(f"removed fabric {fabric.id}: {what or 'its directory'}")
    for folder in folders:
        click.echo(f"removed {folder}")
    if not removed and not folders and not failed:
        click.echo("nothing to clean")
