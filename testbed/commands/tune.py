"""`testbed tune`: values of keys that make a figure least or most."""

from __future__ import annotations

import json

import click

from testbed.base.ranges import Whole
from testbed.commands._complete import FILE


@click.command()
@click.argument("file", shell_complete=FILE)
@click.option("--over", multiple=True, required=True, metavar="KEY=VALUES",
              help="What to search: KEY=LOW..HIGH, 'KEY=LOW..HIGH log', or KEY=[VALUES]; may repeat.")  # fmt: skip
@click.option("--minimize", multiple=True, metavar="FIGURE", help="A figure of the table that is to be small.")
@click.option("--maximize", multiple=True, metavar="FIGURE", help="One that is to be large.")
@click.option("--trials", type=Whole(1, 100_000), default=50, metavar="N", show_default=True, help="How many to run.")
@click.option("--held", metavar="KEY=[VALUES]", help="Then run the best, and the file as it is, with these values.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--on", metavar="WHERE", help="Several trials at a time: local:N, or a FILE that names machines.")
@click.option("--out", metavar="DIR", help="Folder for the search (default: results/runs/<timestamp>-<name>-tune).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout, everything else on stderr.")
def command(
    file: str,
    over: tuple[str, ...],
    minimize: tuple[str, ...],
    maximize: tuple[str, ...],
    trials: int,
    held: str | None,
    settings: tuple[str, ...],
    on: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Search for values of keys that make a figure of an experiment least or most.

    \b
    Examples:
      testbed tune experiments/congestion/tuned-incast.yaml --over transport.cc.dcqcn.g=0.001..1 --minimize last_us
      testbed tune experiments/quickstart.yaml --over workload.0.chunk=[16KiB,64KiB,256KiB] --maximize busbw_GBps

    Each trial is run at every point of the file's `sweep:`, such as seeds; its figures are the means. The first trial
    is the file as it is. With one aim, a trial that looks worse than most after some of its points is given up. With
    two aims the front is found: trials of which none is worse than another in both. A search that was ended goes on
    where it stopped when it is started again with the same --out.

    Exit codes: 0 done, 1 the file as it is fails, 2 bad input, 3 the machine cannot, 130 ended by Ctrl-C, 143 by
    SIGTERM.
    """
    from results.store import environment

    environment.begin()
    from railbed.searches import search_for
    from testbed.base.progress import for_stderr
    from testbed.experiment.overrides import load_with
    from testbed.tune.search import asked
    from testbed.tune.space import over as read
    from testbed.tune.space import values_of

    space, back = [read(text) for text in over], values_of(held, "--held") if held else None
    search = asked(space, minimize, maximize, trials, back)
    found = search_for(load_with(file, settings), search, out, for_stderr(), on=on)
    if as_json:
        click.echo(json.dumps(found.to_dict()))
        return
    from testbed.tables.results import show
    from testbed.tables.search import of_search

    show(of_search(found.to_dict()), wide=True)
