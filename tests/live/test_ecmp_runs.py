"""ECMP by a seed, and E-ECMP, in whole runs: flows take the cables that models say, whichever way frames go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from results import load
from testbed.experiment import loads
from testbed.run.outcome import RunResult
from testbed.run.run import run
from topologies.kinds import build
from topologies.ranks.hops import Hops

CLOS = {"leaves": 2, "spines": 4, "hosts_per_leaf": 2}
PACKETS, MTU = 50, 4096
TEXT = """
name: hashed
control: {routing: {ecmp: %(ecmp)s}, fast_path: %(way)s}
fabric: {topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}}
transport: {source_port: %(port)s}
workload: [{flows: [%(flows)s]}]
"""


def hashed(folder: Path, ecmp: str, port: str, way: str) -> RunResult:
    flows = ", ".join(
        f"{{from: {a}, to: {b}, size: {PACKETS * MTU}B}}" for a in range(4) for b in range(4) if a // 2 != b // 2
    )
    return run(loads(TEXT % {"ecmp": ecmp, "port": port, "way": way, "flows": flows}), folder)


@pytest.mark.parametrize(("ecmp", "port"), [("{seed: 5}", "per_qp"), ("{seed: 5, dest_qp: true}", "fixed")])
def test_flows_take_the_cables_that_the_hash_says(ecmp: str, port: str, tmp_path: Path) -> None:
    done = hashed(tmp_path / "run", ecmp, port, "{sample: 16}")
    assert done.metrics_sha256 == hashed(tmp_path / "off", ecmp, port, "off").metrics_sha256
    assert done.fidelity.verdict == "exact"
    found, fabric = load(tmp_path / "run"), build("clos", CLOS)
    routing = loads(TEXT % {"ecmp": ecmp, "port": port, "way": "off", "flows": "{from: 0, to: 2, size: 1KB}"})
    hops = Hops(fabric, routing.control.routing.hashing)
    expected: Counter[tuple[str, str]] = Counter()
    for q in found.qps[found.qps["tx_packets"] > 0].to_dict("records"):
        way = hops.between(q["rank"], q["peer"], q["udp_src_port"], q["peer_qp"])
        expected.update(dict.fromkeys(way, q["tx_packets"]))
    assert (found.qps["udp_src_port"].nunique() == 1) == (port == "fixed")
    carried = found.priorities[found.priorities["priority"] == 3]
    sent = {
        (row["node"], fabric.cable_at[row["node"], row["port"]].other(row["node"]).node): row["tx_packets"]
        for row in carried.to_dict("records")
    }
    assert {hop: sent[hop] for hop in expected} == expected
