"""Proof: what `auto` takes is within 3 % of the fastest of all algorithms.

`./setup.sh prove auto [--cases N] [--runs N] [--most RANKS] [--seed N] [--budget SECONDS] [--pauses]`.  Cases are drawn
(default 200) of 3 to RANKS ranks (default 64): a fabric, a collective, a size of 4 B to 64 MiB, whether offloads may be
taken.  With `--pauses` they are fabrics where PFC holds things up (rings, tori, clos with more hosts than uplinks,
small buffers) and vectors of 256 KiB to 16 MiB; and it says how far `auto` would be behind if it knew no pauses.
In each, what `auto` takes is held against the expected times of all algorithms and all sizes of pieces that there are.
In the first of them that are small enough (default 40, of 64 MiB in all) the step is also run, by `auto` and by every
algorithm that it chooses among, each as the first step of a fabric with several spines (else all on one fabric).  The
cases are listed in which `auto` was furthest behind.  After SECONDS no further case begins.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from math import log2
from pathlib import Path
from random import Random

from testbed.experiment import CollectiveStep, Experiment, loads
from testbed.plan.auto import PIECES, Candidate, Choice
from testbed.plan.choose import Chooser
from testbed.run.run import run
from tests.prove_predict import MOST_BYTES, topologies
from workloads.base.entry import NoModel
from workloads.base.vocabulary import AUTO, MOST_PIECES
from workloads.registry import COLLECTIVES, choices

LIMIT = 0.03
WORST = 20
RANKS = (3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 27, 32, 48, 64)
OFFLOADING = "  switch: {accelerator: {}}\n  nic: {kind: on_path}\n"
LARGEST = 64 << 20
SEVERAL = [name for name in COLLECTIVES if len(choices(name)) > 1 and name != "send_recv"]
"""Collectives that there are several ways to; those of send_recv are not the same."""


def drawn(draw: Random, most: int) -> Experiment:
    """One of up to `most` ranks."""
    n = draw.choice([k for k in RANKS if k <= most])
    grids = [d for d in range(2, n) if n % d == 0]
    able = topologies(n, draw.choice(grids or [1]), draw.choice([1, 2, 3]))[: 5 if grids else 2]
    topology = draw.choice([*able, f"{{star: {{hosts: {n}, links: 2}}}}"])
    collective, offloads = draw.choice(SEVERAL), draw.random() < 0.5
    size = 4 * int(2 ** draw.uniform(0, log2(LARGEST / 4)))
    return loads(f"""
name: drawn
fabric:
  topology: {topology}
{OFFLOADING if offloads else ""}
workers: {{memory: 2GiB}}
workload:
  - {{collective: {collective}, algorithm: auto, offloads: {str(offloads).lower()}, sizes: [{size}B]}}
""")


def drawn_with_pauses(draw: Random, most: int) -> Experiment:
    """One of up to `most` ranks on a fabric whose buffers fill up."""
    nodes, rows, columns = (draw.randrange(least, 9) for least in (4, 2, 3))
    able = {
        f"{{ring: {{nodes: {nodes}}}}}": nodes,
        f"{{torus: {{dims: [{rows}, {columns}]}}}}": rows * columns,
        f"{{clos: {{leaves: {rows}, spines: {draw.choice([1, 1, 2])}, hosts_per_leaf: {columns}}}}}": rows * columns,
    }
    topology = draw.choice([one for one, ranks in able.items() if ranks <= most])
    size = 4 * int(2 ** draw.uniform(16, 22))
    return loads(f"""
name: drawn
fabric:
  topology: {topology}
  switch: {{buffer: {draw.choice([1500, 2000, 3000, 6000])}KB, alpha: {draw.choice([0.5, 1, 2])}}}
workers: {{memory: 2GiB}}
workload:
  - {{collective: {draw.choice(SEVERAL)}, algorithm: auto, sizes: [{size}B]}}
""")


def unaware(experiment: Experiment) -> tuple[float, str]:
    """How far behind what `auto` takes it would be if it knew no pauses, by expected times with them."""
    (step,) = experiment.workload
    assert isinstance(step, CollectiveStep)
    chooser, size = Chooser(experiment), step.sizes[0]
    able = {candidate.entry.name: candidate for candidate in chooser.candidates(step)}
    aware, blind = (
        Choice(chooser, step, list(able.values()), {}, numbered=chooser.chooses, cut=True) for _ in range(2)
    )
    taken, other = aware.of(size), blind.of(size, pauses=False)
    candidate = replace(able[other["algorithm"]], chunk=other.get("chunk"))
    expected = min(taken["expected_ns"].values())
    its = Choice(chooser, step, [candidate], {}, numbered=chooser.chooses, cut=False).expected_ns(candidate, size)
    return its / expected - 1, f"{its / expected - 1:+7.2%}  {_about(experiment)}: {candidate.label} {its / 1e3:.2f} us"


def foreseen(experiment: Experiment) -> tuple[float, str]:
    """How far `auto` is behind the fastest of all algorithms in all pieces, by their expected times, and of what."""
    (step,) = experiment.workload
    assert isinstance(step, CollectiveStep)
    chooser, size = Chooser(experiment), step.sizes[0]
    taken = chooser.choose(step)[str(size)]
    label, expected = min(taken["expected_ns"].items(), key=lambda its: its[1])
    able = chooser.candidates(step)
    choice = Choice(chooser, step, able, {}, numbered=chooser.chooses, cut=False)
    times = dict(_times(choice, able, size))
    best = min(times, key=times.__getitem__)
    off = expected / times[best] - 1
    return off, f"{off:+7.2%}  {_about(experiment)}: {label} {expected / 1e3:.2f} us, {best} {times[best] / 1e3:.2f} us"


def _times(choice: Choice, able: list[Candidate], size: int) -> Iterator[tuple[str, float]]:
    for candidate in able:
        cut = [b for b in PIECES if "chunk" in candidate.entry.extra and size // MOST_PIECES <= b < size]
        for one in (candidate, *(replace(candidate, chunk=b) for b in cut)):
            try:
                yield one.label, choice.expected_ns(one, size)
            except NoModel:
                continue


def _about(experiment: Experiment) -> str:
    (step,) = experiment.workload
    assert isinstance(step, CollectiveStep)
    offloads = ", with offloads" if step.offloads else ""
    return f"{experiment.fabric.topology.model_dump()}, {step.collective}, {step.sizes[0]} B{offloads}"


def behind(experiment: Experiment) -> tuple[float, str]:
    """How far `auto` is behind the fastest algorithm in runs, and of what."""
    (step,) = experiment.workload
    assert isinstance(step, CollectiveStep)
    chooser = Chooser(experiment)
    names = [one.entry.name for one in chooser.candidates(step)]
    by = {AUTO: step, **{name: _by(step, name) for name in names}}
    together = [list(by)] if not chooser.chooses else [[name] for name in by]
    times: dict[str, float] = {}
    taken = ""
    with tempfile.TemporaryDirectory() as folder:
        for k, some in enumerate(together):
            one = experiment.model_copy(update={"workload": [by[name] for name in some]})
            rows = run(one, Path(folder) / f"run{k}").results
            times |= {name: row["time_ns"] for name, row in zip(some, rows, strict=True)}
            taken = taken or rows[0]["algorithm"]
    best = min(names, key=lambda name: times[name])
    off = times[AUTO] / times[best] - 1
    what = f"{taken} {times[AUTO] / 1e3:.2f} us, {best} {times[best] / 1e3:.2f} us"
    return off, f"{off:+7.2%}  {_about(experiment)}: {what}"


def _by(step: CollectiveStep, algorithm: str) -> CollectiveStep:
    told = {"collective": step.collective, "algorithm": algorithm, "sizes": [f"{step.sizes[0]}B"]}
    return CollectiveStep.model_validate(told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--most", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pauses", action="store_true")
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS")
    told = parser.parse_args()
    expected, ran, blind = list[tuple[float, str]](), list[tuple[float, str]](), list[tuple[float, str]]()
    end = time.monotonic() + told.budget

    draw = Random(told.seed)
    for case in ((drawn_with_pauses if told.pauses else drawn)(draw, told.most) for _ in range(told.cases)):
        if time.monotonic() > end:
            break
        expected.append(foreseen(case))
        print(f"expected {expected[-1][1]}", flush=True)
        if told.pauses:
            blind.append(unaware(case))
        if len(ran) < told.runs and case.build_fabric().ranks * case.workload[0].sizes[0] <= MOST_BYTES:
            ran.append(behind(case))
            print(f"run      {ran[-1][1]}", flush=True)
    for found, how in ((expected, "by expected times"), (ran, "in runs")):
        print(f"{len(found)} cases {how}, {sum(off > LIMIT for off, _ in found)} behind by more than {LIMIT:.0%}:")
        print("\n".join(f"  {text}" for _, text in sorted(found, reverse=True)[:WORST]))
    if blind:
        worse = sum(off > LIMIT for off, _ in blind)
        print(f"without pauses {worse} would be behind by more than {LIMIT:.0%}: {max(blind)[1]}")
    return int(any(off > LIMIT for off, _ in expected + ran))


if __name__ == "__main__":
    sys.exit(main())
