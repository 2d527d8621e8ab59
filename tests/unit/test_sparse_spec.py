"""Keys of sparse collectives in an experiment: defaults of the registry, and what does not fit."""

from __future__ import annotations

import json

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.steps.plan import plan

TEXT = "name: s\nfabric: {topology: {star: {hosts: 4}}}\nworkload:\n- {collective: all_reduce, sizes: [64KiB], STEP}\n"


def test_defaults_are_the_registrys_and_reach_the_workers() -> None:
    experiment = loads(TEXT.replace("STEP", "algorithm: omnireduce, density: 0.25, aggregators: 1"))
    options = {"density": 0.25, "overlap": 0.0, "block": 256, "fusion": 4, "slots": 256, "aggregators": 1}
    made = plan(experiment)
    assert options.items() <= made.told()["steps"][0].items()
    assert made.described()[0]["ranks"] == 4
    assert made.described()[0]["busbw_factor"] == pytest.approx(4 / 3)  # three workers
    assert "density" not in plan(loads(TEXT.replace("STEP", "algorithm: ring"))).told()["steps"][0]
    assert loads(json.dumps(experiment.resolved())) == experiment


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("algorithm: ring, density: 0.5", "all_reduce by ring has no density"),
        ("algorithm: omnireduce, density: 1.5", "1.5 is out of bounds"),
        ("algorithm: omnireduce, density: .nan", "nan is not a finite number"),
        ("algorithm: omnireduce, overlap: -1", "-1 is out of bounds"),
        ("algorithm: omnireduce, fusion: 33", "33 is out of bounds"),
        ("algorithm: omnireduce, block: 0", "0 is out of bounds"),
        ("algorithm: omnireduce, op: max", "unknown op 'max'"),
        ("algorithm: omnireduce, aggregators: 3", "3 of 4 ranks aggregate, which leaves too few workers"),
        ("algorithm: omnireduce, aggregators: 4", "4 of 4 ranks aggregate, which leaves too few workers"),
    ],
)
def test_mistakes(step: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        loads(TEXT.replace("STEP", step))
    assert what in error.value.what
    assert "workload[0]." in error.value.where
