"""An experiment that differs from the fabric it is to run on: where it says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.run.compatibility import load_for

STAR = "name: star\nfabric: {topology: {star: {hosts: 2}}}\n"


@pytest.mark.parametrize(
    ("written", "settings", "where"),
    [
        ("seed: 4", (), "{file}: seed"),
        ("", ("seed=4",), "--set seed=4"),
        ("seed: 3", ("seed=5", "seed=4"), "--set seed=4"),
        ("", ("name=x", "fabric.cable={rate: 1Gbps}"), "--set fabric.cable={{rate: 1Gbps}}"),
        ("", ("fabric.cable.rate=1Gbps",), "--set fabric.cable.rate=1Gbps"),
        ("control: {reaction: 3ms}", ("seed=1",), "{file}: control.reaction"),
    ],
)
def test_what_differs_is_named_where_it_was_said(
    written: str, settings: tuple[str, ...], where: str, tmp_path: Path
) -> None:
    (tmp_path / "experiment.json").write_text(json.dumps(loads(STAR).resolved()))
    file = tmp_path / "star.yaml"
    file.write_text(STAR + written)
    record: Any = SimpleNamespace(id="0bad", dir=tmp_path)
    with pytest.raises(InputError) as told:
        load_for(file, record, settings)
    assert told.value.where == where.format(file=file)
    assert "on fabric 0bad" in told.value.what and told.value.hint and not told.value.also
