"""Experiments with an algorithm of a file, checked, and run on the fake fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError, Problem
from testbed.experiment import Experiment, loads
from testbed.plan.steps.plan import plan
from tests.parts import fake_run
from tests.parts.fake_fabric import FakeFabric

EXAMPLES = Path(__file__).parents[2] / "experiments" / "own"


def experiment(folder: Path, ranks: int, algorithm: str, collective: str = "all_reduce", **more: Any) -> Experiment:
    step = {"collective": collective, "algorithm": algorithm, "sizes": ["64KiB"], **more}
    return loads(
        f"name: own\nfabric: {{topology: {{star: {{hosts: {ranks}}}}}}}\nworkload:\n  - {step}", "x.yaml", folder
    )


def refused(folder: Path, ranks: int, algorithm: str, collective: str = "all_reduce", **more: Any) -> Problem:
    """What is said of an experiment with this algorithm."""
    with pytest.raises(InputError) as info:
        experiment(folder, ranks, algorithm, collective, **more)
    return Problem(info.value.what, info.value.where, info.value.hint)


def wrong_elements(its: Experiment, seed: int = 0) -> tuple[list[int], int]:
    """Of each result that ranks report, and how many messages went."""
    planned = plan(its)
    told = planned.told(range(planned.ranks)) | {"costs": {"wake_ns": 0, "reduce_bps": None}}
    fake = FakeFabric(planned.ranks, seed)
    lines, errors = fake_run.run(fake, told)
    assert (fake.error, errors) == (None, [])
    return [line["wrong"] for line in lines], fake.messages
