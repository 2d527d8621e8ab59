"""`testbed predict`: what an experiment should take, without a fabric."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from testbed.base.errors import InputError
from testbed.commands._complete import FILE

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.predict import Prediction
    from testbed.predict.working import Working
    from testbed.run.sweep import Point


@click.command(short_help="Say what an experiment should take, without a fabric.")
@click.argument("file", shell_complete=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; may repeat.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(file: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Work out how long the steps of the experiment in FILE take: the same schedules, on a model of the fabric.

    It starts nothing, and needs no root. Of a sweep every point is predicted. What the model leaves out it says below
    the figures; what it has no model of (most faults, sparse vectors, drawn flows, ..) it refuses, with the reason.

    \b
    Examples:
      testbed predict experiments/quickstart.yaml
      testbed predict experiments/quickstart.yaml --set fabric.topology.rail.servers=16
      testbed predict experiments/offload/direct-reduce-tori.yaml --json
    """
    from testbed.experiment.overrides import load_with
    from testbed.predict.large import of_any_size
    from testbed.predict.predict import predict
    from testbed.predict.working import Working
    from testbed.run.sweep import check, points

    with of_any_size(), Working() as working:
        experiment = load_with(file, settings)
        if experiment.sweep:
            check(experiment)
            predictions = [({"point": p.values}, p.experiment, _of_point(file, p, working)) for p in points(experiment)]
        else:
            predictions = [({}, experiment, predict(experiment, working.at))]
    if as_json:
        rows = [
            {**of, "results": [f.to_dict() for f in prediction.figures], "left_out": list(prediction.left_out)}
            for of, _, prediction in predictions
        ]
        click.echo(json.dumps({"file": file, **(rows[0] if not experiment.sweep else {"points": rows})}))
        return
    from results.store.sweeps import described
    from testbed.predict.table import of_prediction
    from testbed.tables.results import show

    for of, predicted, prediction in predictions:
        at = described(of.get("point", {}))
        show(of_prediction(prediction, _title(predicted) + (f", {at}" if at else "")))


def _of_point(file: str, point: Point, working: Working) -> Prediction:
    """Its place in the file is that of no point: an error names the values."""
    from results.store.sweeps import described
    from testbed.predict.predict import predict

    values = described(point.values)
    try:
        return predict(point.experiment, lambda text: working.at(f"point {values}, {text}"), point.keys)
    except InputError as error:
        at = f"{file}: point {values}"
        raise InputError(error.what, at, error.hint, [replace(also, where=at) for also in error.also]) from None


def _title(experiment: Experiment) -> str:
    from topologies import in_words

    topology = experiment.fabric.topology
    of = ", ".join(k if v is True else f"{k} {v}" for k, v in in_words(topology.kind, topology.params).items())
    return f"{experiment.name}: {topology.kind} ({of})"
