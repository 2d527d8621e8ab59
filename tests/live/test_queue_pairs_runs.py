"""Several queue pairs of a connection in whole runs: as predicted, and the same with the fast path and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from results import load
from testbed.experiment import Experiment, loads
from testbed.predict.predict import predict
from testbed.run.run import run

TEXT = """
name: several
control: {routing: {ecmp: {seed: 3}}, fast_path: %(way)s}
fabric: {topology: {clos: {leaves: 2, spines: 3, hosts_per_leaf: 2}}}
transport: {qps: 4, qps_split: %(split)s}
workload:
- {collective: all_reduce, algorithm: ring, sizes: [1KiB, 1MiB]}
- {collective: all_reduce, algorithm: halving_doubling, sizes: [1MiB]}
- {collective: all_to_all, algorithm: spread, sizes: [1MiB]}
- flows: [{from: 0, to: 2, size: 5MB}]
"""


def experiment(split: bool, way: str = "{sample: 64}") -> Experiment:
    return loads(TEXT % {"split": str(split).lower(), "way": way})


@pytest.mark.parametrize("split", [False, True])
def test_runs_are_as_predicted(split: bool, tmp_path: Path) -> None:
    one = experiment(split)
    done = run(one, tmp_path / "run")
    assert done.metrics_sha256 == run(experiment(split, "off"), tmp_path / "off").metrics_sha256
    *collectives, flow = done.results
    without_flows = loads("".join(line for line in (TEXT % {"split": str(split).lower(), "way": "off"}).splitlines(True)
                                  if "flows" not in line))  # fmt: skip
    for row, figure in zip(collectives, predict(without_flows).figures, strict=True):
        assert figure.time_ns == pytest.approx(row["time_ns"], rel=0.01)
    assert flow["time_ns"] == pytest.approx(flow["ideal_ns"], rel=0.01)
    its = load(tmp_path / "run").qps
    between = its[(its["rank"] == 0) & (its["peer"] == 2) & (its["tx_packets"] > 0)]
    assert between["udp_src_port"].nunique() == len(between) >= (8 if split else 5)  # four are the flow's
