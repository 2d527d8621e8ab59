"""`testbed examples`: the ready experiments and the pages, where somebody can work with them."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Copy the ready experiments and the pages into a folder.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def command(folder: Path) -> None:
    """Copy experiments/ and docs/ of this installation into FOLDER (default: this one).

    Whoever has installed Railbed has no checkout: these are the files that pages and errors name. Nothing is
    overwritten.

    \b
    Examples:
      testbed examples study
    """
    from testbed.doctor.shipped import copy

    for made in copy(folder):
        click.echo(f"{made}/: {sum(file.is_file() for file in made.rglob('*'))} files")
    click.echo(f"Next: {f'cd {folder} && ' * (folder != Path())}testbed run experiments/quickstart.yaml")
