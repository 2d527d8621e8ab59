"""Proof: predictions are within 3 % of the emulation.

`./setup.sh prove predict [--cases N] [--most RANKS] [--seed N]`. Draws cases of 8 to RANKS ranks (default 128): a
topology, a collective and algorithm, a size, rates, delays, costs. Runs each, predicts it, and lists the worst ones; of
those that also have a model for large fabrics, how far that is off, too. Several spines are not drawn: which of them
ECMP's hash takes is not predicted.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.predict import predict
from testbed.predict.large import large_figures
from testbed.predict.limits import REFUSED
from testbed.run.run import run
from workloads.registry import ALGORITHMS

LIMIT = 0.03
WORST = 20


def drawn(draw: random.Random, most: int) -> Experiment:
    """A case.  Those that the file or the prediction refuses are drawn again."""
    while True:
        n = draw.choice([k for k in (8, 9, 12, 15, 16, 24, 27, 32, 48, 64, 96, 128) if k <= most])
        entry = draw.choice([e for e in ALGORITHMS.values() if not {e.name, e.collective.name} & REFUSED.keys()])
        rows = draw.choice([d for d in range(1, n) if n % d == 0 and n // d > 1])
        topology = draw.choice(
            [
                f"{{star: {{hosts: {n}}}}}",
                f"{{ring: {{nodes: {n}}}}}",
                f"{{torus: {{dims: [{rows}, {n // rows}]}}}}" if rows > 1 else f"{{ring: {{nodes: {n}}}}}",
                f"{{rail: {{servers: {rows}, gpus: {n // rows}, spines: 1}}}}",
                f"{{clos: {{leaves: {rows}, spines: 1, hosts_per_leaf: {n // rows}}}}}",
            ]
        )
        size = f"sizes: [{4 * draw.randint(1, 1 << draw.randint(1, 18))}B]" if entry.collective.sized else ""
        delay, latency = draw.choice([100, 500, 1000]), draw.choice([300, 500, 1000])
        text = f"""
name: drawn
fabric:
  topology: {topology}
  cable: {{rate: {draw.choice([100, 200, 400])}Gbps, delay: {delay}ns}}
  switch: {{latency: {latency}ns}}
costs: {{post: {draw.choice([0, 100, 300])}ns}}
workers: {{memory: 2GiB}}
workload:
  - {{collective: {entry.collective.name}, algorithm: {entry.name}, {size}}}
"""
        try:
            experiment = loads(text)
            predict(experiment)
        except InputError:
            continue
        return experiment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    draw, found, large = random.Random(told.seed), [], []
    for number in range(told.cases):
        experiment = drawn(draw, told.most)
        with tempfile.TemporaryDirectory() as folder:
            (row,) = run(experiment, Path(folder) / "run").results
        (figure,) = predict(experiment).figures
        of = f"{experiment.fabric.topology.model_dump()}, {figure.name} by {figure.algorithm}, {figure.size_bytes} B"
        off = figure.time_ns / row["time_ns"] - 1
        fell = f", but {row['fallback']}" if row.get("fallback") else ""
        if not fell:
            found.append((abs(off), f"{off:+7.2%}  {of}"))
        try:
            (other,) = large_figures(experiment)
            wide = other.time_ns / row["time_ns"] - 1
            large.append((abs(wide), f"{wide:+7.2%}  {of}"))
        except InputError:
            pass
        print(f"{number:4} {row['time_ns'] / 1e3:10.2f} us {off:+7.2%}  {of}{fell}", flush=True)
    beyond = sum(off > LIMIT for off, _ in found)
    for name, its in (("predictions", found), ("of those as on large fabrics", large)):
        print(f"{len(its)} {name}, {sum(off > LIMIT for off, _ in its)} off by more than {LIMIT:.0%}; the worst:")
        print("\n".join(f"  {text}" for _, text in sorted(its, reverse=True)[:WORST]))
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
