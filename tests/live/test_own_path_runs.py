"""Choices of one's own in whole runs: the same figures whichever way frames go, a copy of each file kept."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.experiment import Experiment, loads
from testbed.run.run import run

EXAMPLES = Path(__file__).parents[2] / "experiments" / "own"
FILE = """
name: own
fabric:
  topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}
  switch: {pfc: false, ecn: {kmin: 10KB, kmax: 30KB, pmax: 1}}
  nic: {pfc: false}
  cables: {"cable:leaf0-spine0": {rate: 100Gbps}}
control: {routing: %s, fast_path: %s}
transport: {cc: nscc, recovery: selective_repeat, sack: {}, loss: {}, multipath: %s}
workload:
  - flows: [{from: 0, to: 2, size: 500KB}, {from: 1, to: 2, size: 500KB}, {from: 3, to: 0, size: 500KB}]
"""


def experiment(routing: str, multipath: str, fast_path: str) -> Experiment:
    return loads(FILE % (routing, fast_path, multipath), directory=EXAMPLES)


def test_they_see_the_same_with_the_fast_path_and_without(tmp_path: Path) -> None:
    for name, routing, multipath in (
        ("drill.c", "{adaptive: {policy: {file: drill.c, d: 2, m: 2}}}", "null"),
        ("flowbender.c", "ecmp", "{file: flowbender.c, entropies: 64}"),
    ):
        fast = run(experiment(routing, multipath, "{sample: 64}"), tmp_path / f"fast-{name}")
        slow = run(experiment(routing, multipath, "off"), tmp_path / f"slow-{name}")
        assert fast.metrics_sha256 == slow.metrics_sha256 and fast.fidelity.verdict == "exact"
        kept = tmp_path / f"fast-{name}" / "controls" / name
        assert kept.read_text() == (EXAMPLES / name).read_text()
        ports = json.loads((tmp_path / f"fast-{name}" / "counters.json").read_text())["ports"]
        up = [port["tx_frames"] for port in ports if port["node"] == "leaf0" and port["port"] > 2]
        assert sum(frames > 5 for frames in up) > 2  # of two senders: they have chosen
