"""Flows from a file, emulated: each in its class, and the run's folder needs the file no more."""

from __future__ import annotations

from pathlib import Path

import results
from testbed.experiment import load
from testbed.run.run import run


def test_flows_of_a_file_go_in_their_classes_and_can_be_repeated_without_it(tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text("from,to,size,class\n0,1,40960,5\n2,3,81920,\n")
    (tmp_path / "e.yaml").write_text(
        "name: t\nfabric: {topology: {star: {hosts: 4}}, switch: {dscp: {40: 5, 26: 3, 48: 6}}}\n"
        "workload:\n- flows: flows.csv\n"
    )
    first = run(load(tmp_path / "e.yaml"), tmp_path / "first")
    sent = {
        row["priority"]: row["tx_bytes"]
        for row in results.load(first.folder).rows("priorities")
        if row["node"] in ("h0", "h2") and row["tx_bytes"]
    }
    assert sent[5] > 40960 and sent[3] > 81920, "the first flow by its class, the second by that of transport.dscp"
    (tmp_path / "flows.csv").unlink()
    again = run(load(first.folder / "experiment.yaml"), tmp_path / "again")
    assert again.metrics_sha256 == first.metrics_sha256
