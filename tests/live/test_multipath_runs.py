"""Queue pairs that spray, over switches of Open vSwitch: who takes which cable, what a cut costs, and the fast path.

Which cable a packet takes follows from its source port by Open vSwitch's hash (topologies/ranks/multipath.py).
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

from results import load
from testbed.experiment import loads
from testbed.run.outcome import RunResult
from testbed.run.run import run
from tests.parts.wire_view import frames
from topologies import Fabric
from topologies.graph.frames import ser_ns
from topologies.kinds import build
from topologies.ranks.hops import Hops

HOSTS, ENTROPIES, TURNS, MTU = 4, 64, 8, 4096
SIZE = ENTROPIES * TURNS * MTU
FLOWS = [(0, 5), (1, 7), (2, 4), (3, 6), (4, 1), (5, 3), (6, 0), (7, 2)]
CUT_NS, DEAD = 40_000, "spine1"
TEXT = """
name: sprayed
control: {reaction: 10ms, fast_path: %(way)s}
fabric:
  topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: %(hosts)d}}
  switch: {pfc: false, ecn: {classes: [3]}}
  nic: {pfc: false}
transport: {cc: nscc, recovery: selective_repeat, sack: {}, loss: {}, multipath: {policy: %(policy)s, entropies: 64}}
workload: [{flows: [%(flows)s]}]
%(more)s
"""


def sprayed(folder: Path, policy: str, way: str, more: str = "", size: int = SIZE) -> RunResult:
    flows = ", ".join(f"{{from: {a}, to: {b}, size: {size}B}}" for a, b in FLOWS)
    return run(loads(TEXT % {"policy": policy, "way": way, "flows": flows, "more": more, "hosts": HOSTS}), folder)


def test_every_cable_carries_what_the_hash_of_all_entropies_gives_it(tmp_path: Path) -> None:
    """In turn, each entropy of a flow carries as many packets; and the fullest cable tells when the last flow ends."""
    assert sprayed(tmp_path / "run", "round", "{sample: 64}").metrics_sha256 == (
        sprayed(tmp_path / "off", "round", "off").metrics_sha256
    )
    found = load(tmp_path / "run")
    assert found.qps["retransmitted"].sum() == 0
    ports = {(q["rank"], q["peer"]): q["udp_src_port"] for q in found.qps.to_dict("records")}
    hops = Hops(fabric())
    expected: Counter[tuple[str, str]] = Counter()
    for a, b in FLOWS:
        for entropy in range(ENTROPIES):
            expected.update(dict.fromkeys(hops.between(a, b, 0xC000 | (ports[a, b] + entropy & 0x3FFF)), TURNS))
    carried = found.priorities[found.priorities["priority"] == 3]
    sent = {
        (row["node"], fabric().cable_at[row["node"], row["port"]].other(row["node"]).node): row["tx_packets"]
        for row in carried.to_dict("records")
    }
    assert {hop: sent[hop] for hop in expected} == expected
    fullest = max(n for (_, to), n in expected.items() if "spine" in to)
    packet_ns = ser_ns(MTU + 14 + 20 + 8 + 12 + 4 + 16, 400e9)
    last_ns = found.results["end_ns"].max()
    assert fullest * packet_ns < last_ns < fullest * packet_ns + 12_000


@cache
def fabric() -> Fabric:
    return build("clos", {"leaves": 2, "spines": 4, "hosts_per_leaf": HOSTS})


def test_reps_leaves_a_path_that_was_cut_within_100_us(tmp_path: Path) -> None:
    """The controller would take 10 ms, and nobody waits for a timeout."""
    cut = f"inject: [{{fault: cable_down, on: 'cable:leaf0-{DEAD}', at: {CUT_NS}ns}}]\ncapture: ['nic:0', 'nic:1']"
    ways = {"on": "{sample: 64}", "off": "off"}
    hashes = {sprayed(tmp_path / name, "reps", way, cut, 4 * SIZE).metrics_sha256 for name, way in ways.items()}
    assert len(hashes) == 1
    found = load(tmp_path / "on")
    hops, by = Hops(fabric()), Counter[str]()
    for rank in (0, 1):
        for fr in frames(tmp_path / "on" / "captures" / f"h{rank}-1.pcapng"):
            if fr.out and fr.dscp == 26:
                when = "before" if fr.time_ns < CUT_NS else "soon" if fr.time_ns < CUT_NS + 100_000 else "after"
                dead = ("leaf0", DEAD) in hops.between(rank, dict(FLOWS)[rank], fr.source_port)
                by[f"{when} {dead}"] += 1
    assert by["after True"] == 0 < by["before True"] and by["after False"] > 1000
    assert found.nics["local_ack_timeout_err"].sum() == 0
    assert found.results["slowdown"].max() < 2
