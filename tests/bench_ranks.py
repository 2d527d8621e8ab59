"""Benchmarks of size: the quickstart by the command line, and runs of 256 and 1,024 ranks. Part of tests/bench.py.

`.venv/bin/python -m tests.bench_ranks [--rounds N] [--rooms] [--partitions N,N] [RANKS ...]` prints what a frame's way
through a switch costs with so many ranks (default: 8, 64, 256, 1024), by whose processor time. Each rank sends to the
next one of its leaf: through one switch, whatever the number of ranks, so what the two ends cost is always divided by
one. Of two runs that differ only in their flows' size the difference is taken, so that nothing counts that a run does
once: starting, connecting, making memory, asking Open vSwitch for the first time. The smaller flow is as large as what
its receiver keeps, so both runs have the same memory. What is left of the smaller run without its frame-hops is done
once: it stands beside, for a rank. Of N rounds (default 1) the least counts: processor time is dearer on a busy
machine.

With `--partitions` each is measured with so many partitions, and with as many as it has by itself without.

`--rooms` prints the same difference by the rooms of fabricd. Of them `worker` makes memory when it is registered: as
much in both runs, but the kernel takes now more time for it, now less, and the difference of that is noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.run.profile import FILE as PROFILE
from testbed.run.run import run
from workloads.base.vocabulary import FLOW_MESSAGE_BYTES
from workloads.parts.flows import ALL_KEPT_BYTES

ROOT = Path(__file__).parent.parent
RUNS = 3
MANY = """
name: bench-many-ranks
fabric: {topology: {clos: {leaves: LEAVES, spines: SPINES, hosts_per_leaf: HOSTS}}}
workload:
  - WORKLOAD
"""
CLOS = {8: (2, 1, 4), 64: (4, 2, 16), 256: (16, 8, 16), 1024: (32, 16, 32)}
"""Ranks -> leaves, spines, hosts of a leaf."""
MORE_BYTES = 8 << 30
"""By which all flows of the larger run exceed those of the smaller one, and at least as much as these again: so many
that what a run does once, whose noise is in the difference, is no more than what they take."""
OURS = ("fabricd", "workers")
PARTS = (*OURS, "Open vSwitch")


def all_reduce(algorithm: str, size: str) -> str:
    """A step.  By its name: what `auto` takes may become another one, and is not what is measured here."""
    return f"{{collective: all_reduce, algorithm: {algorithm}, sizes: [{size}]}}"


def experiment(leaves: int, spines: int, hosts: int, workload: str) -> str:
    """An experiment on a clos of `leaves * hosts` ranks."""
    text = MANY.replace("LEAVES", str(leaves)).replace("SPINES", str(spines)).replace("HOSTS", str(hosts))
    return text.replace("WORKLOAD", workload)


def flows(ranks: int, hosts: int, size_bytes: int) -> str:
    """Each rank sends to the next one of its leaf, which has `hosts`."""
    to = [i - i % hosts + (i + 1) % hosts for i in range(ranks)]
    return f"flows: [{', '.join(f'{{from: {i}, to: {other}, size: {size_bytes}B}}' for i, other in enumerate(to))}]"


def whole_s(text: str) -> float:
    """Wall time of a run, its fabric and all."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        result = run(loads(text), Path(folder) / "run", Progress())
        assert not any(row["wrong"] for row in result.results)
        return time.monotonic() - began


@dataclass(frozen=True)
class Cost:
    """Processor time by whose it is: of a frame's way through a switch, and of what a run does once, for each rank."""

    hop_us: dict[str, float]
    rank_ms: dict[str, float]
    rooms_us: dict[str, float]  # of a frame-hop: fabricd's

    @property
    def our_hop_us(self) -> float:
        return sum(self.hop_us[part] for part in OURS)


def cost(ranks: int, rounds: int = RUNS, partitions: str = "auto") -> Cost:
    kept_bytes = max(ALL_KEPT_BYTES // ranks, FLOW_MESSAGE_BYTES)
    sizes = (kept_bytes, kept_bytes + max(MORE_BYTES // ranks, kept_bytes))
    clock = f"clock: {{virtual: {{partitions: {partitions}}}}}\n"
    texts = [experiment(*CLOS[ranks], flows(ranks, CLOS[ranks][2], size)) + clock for size in sizes]
    (few, before), (hops, busy) = (
        _least(seen) for seen in zip(*(map(_busy, texts) for _ in range(rounds)), strict=True)
    )
    hop_s = {part: (busy[part] - before.get(part, 0.0)) / (hops - few) for part in busy}
    return Cost(
        {part: hop_s[part] * 1e6 for part in PARTS},
        {part: (before[part] - few * hop_s[part]) / ranks * 1e3 for part in PARTS},
        {part: seconds * 1e6 for part, seconds in hop_s.items() if part not in PARTS},
    )


def _least(seen: Sequence[tuple[float, dict[str, float]]]) -> tuple[float, dict[str, float]]:
    """Of several times the same run."""
    return seen[0][0], {part: min(busy.get(part, 0.0) for _, busy in seen) for part in seen[0][1]}


def _busy(text: str) -> tuple[float, dict[str, float]]:
    """A run's frame-hops, and processor seconds of its parts and of fabricd's rooms."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(loads(text), Path(folder) / "run", Progress(), profile=True)
        assert not any(row["wrong"] for row in result.results)
        counters = json.loads((Path(result.folder) / "counters.json").read_text())
        profile = json.loads((Path(result.folder) / PROFILE).read_text())
        busy = {part: profile["busy"][part] for part in PARTS}
        return counters["fidelity"]["frame_hops"], busy | profile["fabricd"]  # no room is called as a part


def with_memory_gb(action: Callable[[], float]) -> tuple[float, float]:
    """What `action` returns, and by how much the machine's available memory fell at most meanwhile."""
    over = threading.Event()
    least = [before := _available_bytes()]

    def watch() -> None:
        while not over.wait(0.2):
            least[0] = min(least[0], _available_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return action(), (before - least[0]) / 1e9
    finally:
        over.set()
        watcher.join()


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024


def quickstart_s() -> float:
    """`testbed run experiments/quickstart.yaml`, from the command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "testbed", "run", "experiments/quickstart.yaml", "--out", f"{folder}/run"]
        began = time.monotonic()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.monotonic() - began


def size() -> dict[str, float]:
    """Medians; memory is the most of the runs."""
    large = experiment(16, 8, 16, all_reduce("double_binary_tree", "16MiB"))
    wide = experiment(32, 16, 32, all_reduce("halving_doubling", "64KiB"))
    seen = [with_memory_gb(lambda: whole_s(wide)) for _ in range(RUNS)]
    few, many = cost(8), cost(1024)
    return {
        "quickstart_wall_s": statistics.median(quickstart_s() for _ in range(RUNS)),
        "all_reduce_256_ranks_16MiB_wall_s": statistics.median(whole_s(large) for _ in range(RUNS)),
        "all_reduce_1024_ranks_64KiB_wall_s": statistics.median(wall_s for wall_s, _ in seen),
        "all_reduce_1024_ranks_memory_GB": max(memory_gb for _, memory_gb in seen),
        "hop_cost_1024_ranks_over_8": many.our_hop_us / few.our_hop_us,
        "once_1024_ranks_ms_per_rank": sum(many.rank_ms.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_ranks", description=__doc__)
    parser.add_argument("ranks", nargs="*", type=int, choices=list(CLOS), default=list(CLOS), metavar="RANKS")
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument("--partitions", default="auto", metavar="N,N", help="how the fabric is divided, in turns")
    parser.add_argument("--rooms", action="store_true", help="and fabricd's by its rooms")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load before {os.getloadavg()[0]:.2f}; processor time")
    print(f"{'':8}{'of a frame-hop, in us':>56}{'of a run, once, in ms for a rank':>44}")
    print(f"{'ranks':>8}" + "".join(f"{part:>14}" for part in (*PARTS, "ours", *PARTS)), flush=True)
    for ranks, partitions in itertools.product(options.ranks, options.partitions.split(",")):
        its = cost(ranks, options.rounds, partitions)
        hop = [its.hop_us[part] for part in PARTS]
        once = [its.rank_ms[part] for part in PARTS]
        print(f"{ranks:8}" + "".join(f"{figure:14.2f}" for figure in (*hop, its.our_hop_us, *once)), flush=True)
        if options.rooms:
            rooms = sorted(its.rooms_us.items(), key=lambda room: -room[1])
            print(f"{'':8}" + ", ".join(f"{room} {us:.2f}" for room, us in rooms), flush=True)


if __name__ == "__main__":
    main()
