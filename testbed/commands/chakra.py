"""`testbed chakra`: the tasks of an experiment as execution traces."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.commands._complete import FILE


@click.command(short_help="Write an experiment's tasks as Chakra traces.")
@click.argument("file", shell_complete=FILE)
@click.option("--out", metavar="DIR", required=True, help="Folder for the traces; it is made, and must be empty.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
def command(file: str, out: str, settings: tuple[str, ...]) -> None:
    """Write the steps of tasks of the experiment in FILE as execution traces of Chakra: DIR/stepK.RANK.et and
    DIR/stepK.json with the groups. Nothing is run on a fabric; a PyTorch script is run once, to be recorded.

    A step `{chakra: DIR/stepK, groups: DIR/stepK.json}` replays them, and other tools read them (docs/chakra.md).

    \b
    Examples:
      testbed chakra experiments/training/schedules.yaml --out traces
    """
    from testbed.base.errors import InputError
    from testbed.experiment.overrides import load_with
    from testbed.plan.steps.kinds import graphs
    from workloads.chakra import record

    experiment = load_with(file, settings)
    by_step = graphs(experiment)
    if not by_step:
        raise InputError("this experiment has no step of tasks", file, "docs/chakra.md says which steps become traces")
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("the folder exists and is not empty", out, "name another one with --out")
    for number, graph in by_step.items():
        for path in record.write(graph, folder, f"step{number}"):
            click.echo(str(path))
