"""An experiment that differs from the fabric it is to run on: where it says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
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


def test_a_job_sends_by_what_it_likes(tmp_path: Path) -> None:
    """It names what NICs do not have, and nothing else; what receivers have must be as it is."""
    fabric = STAR + "transport: {cc: dcqcn, nics: {1: {cc: dctcp}}}\n"
    (tmp_path / "experiment.json").write_text(json.dumps(loads(fabric).resolved()))
    file, record = tmp_path / "job.yaml", SimpleNamespace(id="0bad", dir=tmp_path)
    workload = "name: job\nworkload: [{collective: all_reduce, sizes: [1KiB]}]\n"

    def of(transport: str) -> list[Any]:
        file.write_text(f"{workload}transport: {transport}\n" if transport else workload)
        made = plan(load_for(file, record))  # type: ignore[arg-type]
        by = made.told()["steps"][0].get("sends_by", {"": 0})[""]
        controls = ["NIC's", *(one["cc"]["algorithm"] for one in made.transports)]
        return [controls[by if isinstance(by, int) else by[rank]] for rank in (0, 1)]

    assert of("") == of("{cc: dcqcn, nics: {1: {cc: dctcp}}}") == ["NIC's", "NIC's"]
    assert of("{cc: dcqcn, nics: {}}") == ["NIC's", "dcqcn"]
    assert of("{cc: swift, nics: {}}") == ["swift", "swift"]
    with pytest.raises(InputError, match="it is 3 here, and 48 on fabric 0bad"):
        of("{ack_dscp: 3}")
    own = Path(__file__).parents[2] / "experiments" / "own" / "reno-ecn.c"
    with pytest.raises(InputError, match=r"came up without reno-ecn.c") as told:
        of(f"{{nics: {{0: {{cc: {{file: {own}}}}}}}}}")
    assert told.value.where.endswith("job.yaml: transport.nics.0")
