"""What a frame-hop costs fabricd where packets take many paths, over ECMP: `python -m tests.bench_paths [ROUNDS]`.

A permutation over 32 hosts of a clos, each flow of 4 MB behind another leaf, under four ways to take a path. Each round
runs all of them, in turns, and of each the median counts. Left out is what does not belong to frames: memory that is
registered, and payload that is copied, by the thread that does so or, where processors are busy, by the event loop. How
much that is samples of the processor say, 4 ms apart where the kernel counts in ticks, so of one run it is known to a
tenth; the least of several would be the one where most was taken off. Other work on the machine costs the ways that
spread more than ECMP: times need a quiet one.

So that all ways have the same frames, nothing is marked and receivers pace senders (`rccc`), with the transport of
experiments/congestion/paths/. A control that goes by marks would not do: under ECMP flows collide, receivers answer
almost every packet because it was marked, and two frames in five are acknowledgements, which cost less than data. So it
is one in three under all ways, as `data_percent` says. What is left is how busy ports are: one that has another frame
waiting has an event more for each, and with packets spread nearly all have. So there are three bases: frame-hops,
events, and data frames, which are as many under all.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.run import run

FLOWS = Path(__file__).parent.parent / "experiments" / "congestion" / "paths" / "permutation-32.csv"
PERMUTATION = f"""
name: bench-paths
fabric:
  topology: {{clos: {{leaves: 4, spines: 8, hosts_per_leaf: 8}}}}
  switch: {{ecn: null}}
transport: {{cc: rccc, ordering: any, recovery: selective_repeat, sack: {{}}, loss: {{}}MULTIPATH}}
control: {{routing: ROUTING}}
workload:
  - flows: {FLOWS}
"""
WAYS = {
    "ecmp": ("", "ecmp"),
    "adaptive": ("", "{adaptive: {policy: two_choices}}"),
    "round_256": (", multipath: {policy: round, entropies: 256}", "ecmp"),
    "reps_256": (", multipath: {policy: reps, entropies: 256}", "ecmp"),
}
NOT_OF_FRAMES = ("worker", "copies", "base")
SWITCHES = 3  # between hosts of two leaves
BASES = ("hop", "event", "data")
ROUNDS = 5


def _once(way: str) -> dict[str, float] | None:
    """What one run shows; None if fabricd could not be asked at its end, so that nobody knows where its time went."""
    multipath, routing = WAYS[way]
    text = PERMUTATION.replace("MULTIPATH", multipath).replace("ROUTING", routing)
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(text), Path(folder) / "run", Progress(), profile=True)
        counters = json.loads((Path(result.folder) / "counters.json").read_text())
        profile = json.loads((Path(result.folder) / "profile.json").read_text())
    if "fabricd" not in profile["busy"]:
        return None
    hops, fast = counters["fidelity"]["frame_hops"], counters["fidelity"]["fast_hops"]
    busy_us = (profile["busy"]["fabricd"] - sum(profile["fabricd"].get(room, 0.0) for room in NOT_OF_FRAMES)) * 1e6
    data = sum(qp["tx_packets"] for qp in counters["qps"])
    return {
        "hop_us": busy_us / hops,
        "event_us": busy_us / counters["fidelity"]["events"],
        "data_us": busy_us / data,
        "events_per_hop": counters["fidelity"]["events"] / hops,
        "data_percent": 100 * data * SWITCHES / hops,
        "ovs_percent": 100 * (hops - fast) / hops,
    }


def paths(rounds: int = ROUNDS) -> dict[str, float]:
    seen: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            seen[way] += filter(None, [_once(way)])
    if lacking := [way for way, each in seen.items() if not each]:
        raise SystemExit(f"{', '.join(lacking)}: no run could say where fabricd's time went; try again")
    middle = {way: {key: median(one[key] for one in each) for key in each[0]} for way, each in seen.items()}
    figures = {f"{way}_{key}": value for way in WAYS for key, value in middle[way].items()}
    for way in list(WAYS)[1:]:
        for base in BASES:
            figures[f"{way}_over_ecmp_{base}"] = middle[way][f"{base}_us"] / middle["ecmp"][f"{base}_us"]
    return figures


if __name__ == "__main__":
    for name, value in paths(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS).items():
        print(f"{name:32} {value:8.3f}")
