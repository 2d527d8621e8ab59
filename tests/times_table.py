"""Every algorithm of the hosts against its expected time: `.venv/bin/python tests/times_table.py` (needs root).

Runs topologies x groups x algorithms x sizes, prints measured and expected time and by how much it is off, and ends
with 1 if anything is off by more than 2 % (docs/collectives.md lists what is known to be).  Options choose a part.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.steps.collective import CollectiveStep
from testbed.plan.choose import Chooser
from testbed.run.run import run
from workloads.base.entry import Algorithm
from workloads.registry import ALGORITHMS

LIMIT = 0.02
TOPOLOGIES = {
    "star": "{star: {hosts: 12}}",
    "rail": "{rail: {servers: 6, gpus: 2, spines: 1}}",
    "clos": "{clos: {leaves: 4, spines: 1, hosts_per_leaf: 3}}",
    "torus": "{torus: {dims: [4, 3]}}",
    "ring": "{ring: {nodes: 12}}",
}
RANKS = (2, 3, 5, 6, 7, 8, 12)
SIZES = ("4B", "200KB", "4MB")


class Row(NamedTuple):
    ranks: int
    entry: Algorithm
    size_bytes: int
    measured_ns: float
    expected_ns: float

    @property
    def off(self) -> float:
        """By which share the expected time is longer than the measured one."""
        return self.expected_ns / self.measured_ns - 1

    def __str__(self) -> str:
        name = f"{self.entry.collective.name}/{self.entry.name}"
        times = f"{self.measured_ns / 1e3:10.2f} {self.expected_ns / 1e3:10.2f} {self.off:+7.2%}"
        return f"{self.ranks:3} {name:36} {self.size_bytes:>9} {times}{' !' if abs(self.off) > LIMIT else ''}"


def step(entry: Algorithm, ranks: int, sizes: Iterable[str], **more: str) -> str:
    told = {"collective": entry.collective.name, "algorithm": entry.name, "ranks": str(list(range(ranks)))}
    told |= {"sizes": f"[{', '.join(sizes)}]"} if entry.collective.sized else {}
    return "{" + ", ".join(f"{key}: {value}" for key, value in (told | more).items()) + "}"


def text(topology: str, steps: Iterable[str]) -> str:
    lines = "".join(f"  - {s}\n" for s in steps)
    return f"name: times\nfabric: {{topology: {topology}}}\nworkers: {{memory: 2GiB}}\nworkload:\n{lines}"


def steps(topology: str, ranks: Sequence[int], sizes: Sequence[str], collectives: Sequence[str] = ()) -> Iterator[str]:
    """One for each group and algorithm that the hosts carry out and this topology has."""
    for n in ranks:
        for entry in ALGORITHMS.values():
            if (
                not entry.schedule
                or n > (entry.max_ranks or n)
                or (collectives and entry.collective.name not in collectives)
            ):
                continue
            written = step(entry, n, sizes)
            try:
                loads(text(topology, [written]))
            except InputError:  # no grid, no domains
                continue
            yield written


def rows(topology: str, workload: Sequence[str], folder: Path) -> list[Row]:
    """Measured against expected, of a run of these steps; every result must be right."""
    experiment = loads(text(topology, workload))
    chooser = Chooser(experiment)
    result = run(experiment, folder)
    assert result.fidelity.verdict == "exact" and {row["wrong"] for row in result.results} == {0}
    measured, found = iter(result.results), []
    for told in experiment.workload:
        assert isinstance(told, CollectiveStep)
        (candidate,) = chooser.candidates(told)
        for size_bytes in told.sizes or [0]:
            expected_ns = chooser.expected_ns(candidate, told, size_bytes)
            ranks = len(candidate.ways.ranks)
            found.append(Row(ranks, candidate.entry, size_bytes, next(measured)["time_ns"], expected_ns))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", nargs="*", default=list(TOPOLOGIES), choices=TOPOLOGIES)
    parser.add_argument("--ranks", nargs="*", type=int, default=RANKS)
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    parser.add_argument("--collective", nargs="*", default=[])
    parser.add_argument("--json", type=argparse.FileType("w"), help="write (topology, ranks, .., off) here")
    told, found = parser.parse_args(), []
    for kind in told.topology:
        workload = list(steps(TOPOLOGIES[kind], told.ranks, told.sizes, told.collective))
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(TOPOLOGIES[kind], workload, Path(folder) / "run"):
                found.append((kind, row))
                print(f"{kind:6}{row}", flush=True)
    off = [abs(row.off) for _, row in found]
    print(f"{len(off)} cases, {sum(o > LIMIT for o in off)} off by more than {LIMIT:.0%}, at most {max(off):.1%}")
    if told.json:
        json.dump([(k, r.ranks, r.entry.collective.name, r.entry.name, *r[2:], r.off) for k, r in found], told.json)
    return int(max(off) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
