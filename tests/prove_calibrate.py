"""Proof: calibration finds constants again, and what it says of rows that it has not seen.

`./setup.sh prove calibrate [--seeds N] [--first SEED] [--only constants|clusters] [--most SIZE]`.
- N clusters (default 200) whose constants are drawn from the priors, with 2 % of noise: of the constants that are told
  at least 90 % have to lie within their intervals, each constant, told or not, in 90 % of the clusters but for chance,
  and of a cluster with sizes of 1 GiB alone no latency is told;
- of the measured clusters in experiments/clusters each collective, nodes and GPUs is held back in turn, predicted by
  the others, and carried out by a fabric that has their profile (up to SIZE of all ranks' vectors together, default
  6GiB; it needs root): errors by size against the marks, and the worst points. They are shown, and fail nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import numpy as np

from testbed.base.units import parse_size
from testbed.calibrate.calibration import calibrate
from testbed.calibrate.held import Predicted, scores
from testbed.calibrate.prior import prior
from testbed.calibrate.told import of_scores
from testbed.cluster.model import NAMES, LibraryModel
from testbed.cluster.profile import Z90
from testbed.logs.row import Log
from testbed.tables.results import show
from tests.parts.made_clusters import HARDWARE, SIZES, points_of
from tests.parts.measured_clusters import GB10, H100, emulated, held_back

NOISE = 0.02
WANTED = 0.9


def constants(seeds: int, first: int) -> list[str]:
    """What is not as it should be."""
    model = LibraryModel(HARDWARE, {})
    known = prior(model)
    told, inside, anyway = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(first, first + seeds):
        drawn = np.linalg.cholesky(known.correlation) @ np.random.default_rng(seed).standard_normal(len(known.x))
        truth = known.x + known.sigma * drawn.clip(-2, 2)
        made = calibrate(model, points_of(truth, SIZES, NOISE, seed), Log())
        for k, name in enumerate(NAMES):
            its = bool(abs(made.fitted.x[k] - truth[k]) <= Z90 * made.sd[k])
            anyway[name] += its
            if made.told[k]:
                told[name] += 1
                inside[name] += its
    print(f"{'':18} {'told':>6} {'inside':>7} {'told or not':>12}")
    for name in NAMES:
        of_told = f"{inside[name] / told[name]:.1%}" if told[name] else "-"
        print(f"{name:18} {told[name]:6} {of_told:>7} {anyway[name] / seeds:12.1%}")
    share = inside.total() / max(told.total(), 1)
    chance = 2 * (WANTED * (1 - WANTED) / seeds) ** 0.5
    wrong = [f"{name} is outside too often" for name in NAMES if anyway[name] / seeds < WANTED - chance]
    if share < WANTED:
        wrong.append("constants that are told are outside too often")
    large = calibrate(model, points_of(known.x, [1 << 30, 1 << 31], NOISE, first), Log())
    latencies = [name for k, name in enumerate(NAMES) if large.told[k] and name.endswith((".hop", "launch", "message"))]
    print(f"sizes of 1 GiB alone: {', '.join(latencies) or 'no latency'} told")
    print(f"{seeds} clusters, {told.total()} constants told, {share:.1%} within their intervals of 90 %")
    return wrong + [f"{name} is told by large sizes alone" for name in latencies]


def clusters(most: int) -> None:
    for cluster in (H100, GB10):
        predictions: list[Predicted] = []
        emulations: list[Predicted] = []
        for profile, found in held_back(cluster):
            predictions += found
            emulations += emulated(cluster, profile, found, most)
        for how, its in (("predicted", predictions), ("emulated", emulations)):
            print(f"\n{cluster.log}, {how}")
            show(of_scores(its, scores(its, more_nodes=False)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove calibrate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--only", choices=("constants", "clusters"))
    parser.add_argument("--most", type=parse_size, default=parse_size("6GiB"), metavar="SIZE")
    options = parser.parse_args()
    wrong: list[str] = []
    if options.only in (None, "clusters"):
        clusters(options.most)
    if options.only in (None, "constants"):
        wrong += constants(options.seeds, options.first)
    for text in wrong:
        print(f"WRONG: {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
