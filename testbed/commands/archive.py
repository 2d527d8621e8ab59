"""`testbed archive`: a run or sweep in one file."""

from __future__ import annotations

import click

from testbed.commands._complete import RUN


@click.command()
@click.argument("run", shell_complete=RUN)
@click.option("-o", "--out", metavar="FILE", help="Where to (default: the name of the run's folder, .zip).")
def command(run: str, out: str | None) -> None:
    """Pack RUN, a run or a sweep, into one file that `testbed verify` can do again.

    It has the experiment, files of your own that it names, versions, the command, all figures, and their hashes: what
    is asked for beside a paper.

    \b
    Examples:
      testbed run experiments/quickstart.yaml --out results/runs/first
      testbed archive first -o first.zip
    """
    from testbed.run.archive import archive

    made = archive(run, out)
    click.echo(f"{made}: {made.stat().st_size / 1e6:.1f} MB; testbed verify {made}")
