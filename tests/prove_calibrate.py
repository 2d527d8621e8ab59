"""Proof: calibration finds constants again, and what it says of rows that it has not seen.

`./setup.sh prove calibrate [--seeds N] [--first SEED] [--only constants|clusters]`.
- N clusters (default 200) whose constants are drawn from the priors, with 2 % of noise: of the constants that are told
  at least 90 % have to lie within their intervals, and of a cluster with sizes of 1 GiB alone no latency is told;
- of the measured clusters in experiments/clusters each collective, nodes and GPUs is held back in turn, and predicted
  by the others: errors by size against the marks, and the worst points. They are shown, and fail nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import numpy as np

from testbed.calibrate.calibration import calibrate
from testbed.calibrate.found import Told
from testbed.calibrate.held import scores
from testbed.calibrate.prior import prior
from testbed.calibrate.told import of_scores
from testbed.calibrate.work import EACH, Asked, work
from testbed.cluster.model import NAMES, LibraryModel
from testbed.cluster.profile import Z90
from testbed.logs.row import Log
from testbed.tables.results import show
from tests.parts.made_clusters import HARDWARE, SIZES, points_of

NOISE = 0.02
WANTED = 0.9
CLUSTERS = {
    "experiments/clusters/h100-10-nodes.csv": Told("8x400Gbps", gpu="hopper", version="2.29.2"),
    "experiments/clusters/gb10-ring-of-4.csv": Told("1x200Gbps", gpu="blackwell", host="arm"),
}


def constants(seeds: int, first: int) -> int:
    """How many clusters' constants are not what they say."""
    model = LibraryModel(HARDWARE, {})
    known = prior(model)
    told, inside = Counter[str](), Counter[str]()
    for seed in range(first, first + seeds):
        drawn = np.linalg.cholesky(known.correlation) @ np.random.default_rng(seed).standard_normal(len(known.x))
        truth = known.x + known.sigma * drawn.clip(-2, 2)
        made = calibrate(model, points_of(truth, SIZES, NOISE, seed), Log())
        for k, name in enumerate(NAMES):
            if made.told[k]:
                told[name] += 1
                inside[name] += abs(made.fitted.x[k] - truth[k]) <= Z90 * made.sd[k]
    print(f"{'constant':18} {'told':>6} {'inside':>7}")
    for name in NAMES:
        if told[name]:
            print(f"{name:18} {told[name]:6} {100 * inside[name] / told[name]:6.1f}%")
    share = inside.total() / max(told.total(), 1)
    print(f"{seeds} clusters, {told.total()} constants told, {100 * share:.1f} % within their intervals of 90 %")
    large = calibrate(model, points_of(known.x, [1 << 30, 1 << 31], NOISE, first), Log())
    latencies = [name for k, name in enumerate(NAMES) if large.told[k] and name.endswith((".hop", "launch", "message"))]
    print(f"sizes of 1 GiB alone: {', '.join(latencies) or 'no latency'} told")
    return (share < WANTED) + bool(latencies)


def clusters() -> None:
    for path, said in CLUSTERS.items():
        outcome = work(Asked([path], said, hold=(EACH,) if "h100" in path else ("size>=64MiB",)))
        print(f"\n{path}")
        show(of_scores(outcome.held, scores(outcome.held, more_nodes=outcome.more_nodes)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove calibrate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--only", choices=("constants", "clusters"))
    options = parser.parse_args()
    wrong = 0
    if options.only in (None, "constants"):
        wrong += constants(options.seeds, options.first)
    if options.only in (None, "clusters"):
        clusters()
    sys.exit(wrong > 0)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
