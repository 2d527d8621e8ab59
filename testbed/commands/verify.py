"""`testbed verify`: does an archive's run come to the same figures here?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import FILE

if TYPE_CHECKING:
    from testbed.run.archive import Verified


@click.command()
@click.argument("archive", shell_complete=FILE)
@click.option("--points", type=Whole(1), metavar="N", help="Of a sweep the first N points only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(archive: str, points: int | None, as_json: bool) -> None:
    """Run what is in ARCHIVE once more, and say whether every figure is the same.

    On the virtual clock all figures must be, on whatever machine; on the real clock it says which are not. Programs of
    one's own that are in it are run: verify archives of people you trust.

    Exit codes: 0 the same (real clock: it ran), 1 a figure is another, or a run failed, 2 no archive, or one that was
    changed.

    \b
    Examples:
      testbed run experiments/quickstart.yaml --out results/runs/first
      testbed archive first -o first.zip
      testbed verify first.zip
    """
    from testbed.base.progress import for_stderr
    from testbed.run.archive import verify

    with for_stderr() as progress:
        found = verify(archive, progress, points)
    if as_json:
        click.echo(json.dumps({**asdict(found), "good": found.good}))
    else:
        _show(found)
    if not found.good:
        sys.exit(1)


def _show(found: Verified) -> None:
    from results.figures.values import full

    for run in found.runs:
        name = found.name if run.name == "." else f"{found.name}, {run.name}"
        differ = f"{len(run.differ)} figures differ" if run.differ else "rows of its tables differ"
        word = f"FAILED: {run.error}" if run.error else "the same" if run.same else differ
        click.echo(f"{name}: {word}")
        for key, (before, now) in run.differ.items():
            ratio = (
                f" (x {now / before:.4g})" if isinstance(before, float) and isinstance(now, float) and before else ""
            )
            click.echo(f"  {key}: {full(before)} -> {full(now)}{ratio}")
    clock = "" if found.exact else "; the real clock: figures depend on the machine"
    click.echo(f"archived by {found.archived_by}, done again by {found.now}{clock}")
