"""Proof: predictions are within 3 % of the emulation.

`./setup.sh prove predict [--cases N] [--most RANKS] [--seed N] [--budget SECONDS] [--paths | --credits]`.  Hypothesis
draws cases of 8 to RANKS ranks (default 128): a fabric, a collective and algorithm, a size, rates, delays, costs; in
two cases of three some cables differ from the others.  Each is run and predicted; the worst are listed, and of those
that also have a model for large fabrics, how far that is off, too.  After SECONDS no further case begins.  With --paths
all fabrics have several spines, and packets their ways over them: hashes by other seeds and fields, several queue
pairs, spraying, adaptive switches.  With --credits receivers let senders send, by all controls that have them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.predict import Prediction, predict
from testbed.predict.large import large_figures
from testbed.run.run import run
from workloads.registry import ALGORITHMS, unpredicted

LIMIT = 0.03
WORST = 20
_LATE = "recovery: selective_repeat, sack: {}, loss: {}"
MOST_BYTES = 64 << 20
"""Of all ranks' vectors together: a few seconds of emulation."""
RANKS = (8, 9, 12, 15, 16, 24, 27, 32, 48, 64, 96, 128)


PATHS = (
    "control: {routing: {ecmp: {seed: 7}}}",
    "control: {routing: {ecmp: {dest_qp: true}}}\ntransport: {source_port: fixed}",
    *(f"transport: {{qps: {n}, qps_split: {split}}}" for n in (2, 4, 16) for split in ("true", "false")),
    *(
        f"transport: {{{_LATE}, multipath: {{policy: {name}}}}}"
        for name in ("round", "random", "reps", "bitmap", "plb")
    ),
    *(
        f"control: {{routing: {{adaptive: {{policy: {name}}}}}}}\ntransport: {{{_LATE}}}"
        for name in ("round_robin", "random", "two_choices", "shortest")
    ),
)
"""How packets may choose their ways, each in the words of the file."""
CREDITS = tuple(
    f"transport: {{cc: {name}, recovery: selective_repeat}}" for name in ("rccc", "uec", "eqds", "ndp", "homa")
)
"""Controls by credit."""


@st.composite
def cases(
    draw: st.DrawFn, most: int, most_bytes: int = MOST_BYTES, *, paths: bool = False, credits: bool = False
) -> tuple[Experiment, Prediction]:
    """One of up to `most` ranks that neither the file nor the prediction refuses."""
    n = draw(st.sampled_from([k for k in RANKS if k <= most]))
    entry = draw(st.sampled_from([e for key, e in ALGORITHMS.items() if not unpredicted(*key)]))
    assume(entry.max_ranks is None or entry.max_ranks >= n)
    rows = draw(st.sampled_from([d for d in range(2, n) if n % d == 0]))
    spines = draw(st.sampled_from([2, 3, 4, 8] if paths else [1, 1, 2, 3]))
    fabric = draw(st.sampled_from(topologies(n, rows, spines)[3 if paths else 0 :]))
    own = draw(st.sampled_from(PATHS)) if paths else draw(st.sampled_from(CREDITS)) if credits else ""
    about = 1 << draw(st.sampled_from(range(20)))
    elements = draw(st.integers(about, 2 * about - 1))
    assume(4 * elements * n <= most_bytes)
    size = f"sizes: [{4 * elements}B], " if entry.collective.sized else ""
    text = f"""
name: drawn
fabric:
  topology: {fabric}
  cable: {{rate: {draw(st.sampled_from([100, 200, 400]))}Gbps, delay: {draw(st.sampled_from([100, 500, 1000]))}ns}}
  switch: {{latency: {draw(st.sampled_from([300, 500, 1000]))}ns}}
{"" if paths else draw(_unequal(fabric))}
{own}
costs: {{post: {draw(st.sampled_from([0, 100, 300]))}ns}}
workers: {{memory: 2GiB}}
workload:
  - {{collective: {entry.collective.name}, algorithm: {entry.name}, {size}iterations: 1, warmup: 0}}
"""
    try:
        experiment = loads(text)
        return experiment, predict(experiment)
    except InputError:
        assume(False)
        raise


def topologies(n: int, rows: int, spines: int) -> list[str]:
    """Of so many ranks; `rows` of them, or leaves or servers."""
    return [
        f"{{star: {{hosts: {n}}}}}",
        f"{{ring: {{nodes: {n}}}}}",
        f"{{torus: {{dims: [{rows}, {n // rows}]}}}}",
        f"{{rail: {{servers: {rows}, gpus: {n // rows}, spines: {spines}}}}}",
        f"{{clos: {{leaves: {rows}, spines: {spines}, hosts_per_leaf: {n // rows}}}}}",
    ]


@st.composite
def _unequal(draw: st.DrawFn, fabric: str) -> str:
    """Cables that are not as `fabric.cable` says: none, those of all hosts, or one to three of them."""
    which = draw(st.sampled_from(["", "hosts", "some"]))
    rate, delay = draw(st.sampled_from([50, 100, 200, 400])), draw(st.sampled_from([100, 500, 3000]))
    told = f"{{rate: {rate}Gbps, delay: {delay}ns}}"
    if which == "some":
        cables = [cable.name for cable in loads(f"name: t\nfabric: {{topology: {fabric}}}").build_fabric().cables]
        some = draw(st.lists(st.sampled_from(cables), min_size=1, max_size=3, unique=True))
        own = ", ".join(f"'cable:{name}': {told}" for name in some)
        return f"  cables: {{{own}}}"
    return f"  host_cable: {told}" if which else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS")
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--paths", action="store_true", help="several ways for packets")
    of.add_argument("--credits", action="store_true", help="credit of receivers")
    told = parser.parse_args()
    found: list[tuple[float, str]] = []
    large: list[tuple[float, str]] = []
    end = time.monotonic() + told.budget

    @seed(told.seed)
    @settings(
        max_examples=told.cases, phases=[Phase.generate], deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases(told.most, paths=told.paths, credits=told.credits))
    def each(case: tuple[Experiment, Prediction]) -> None:
        if time.monotonic() < end:
            _compare(*case, found, large)

    each()
    for name, its in (("predictions", found), ("of those as on large fabrics", large)):
        print(f"{len(its)} {name}, {sum(off > LIMIT for off, _ in its)} off by more than {LIMIT:.0%}; the worst:")
        print("\n".join(f"  {text}" for _, text in sorted(its, reverse=True)[:WORST]))
    return int(any(off > LIMIT for off, _ in found))


def _compare(
    experiment: Experiment, prediction: Prediction, found: list[tuple[float, str]], large: list[tuple[float, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (row,) = run(experiment, Path(folder) / "run").results
    (figure,) = prediction.figures
    fabric = experiment.fabric
    of = (
        f"{fabric.topology.model_dump()}, {figure.name} by {figure.algorithm}, {figure.size_bytes} B, "
        f"{fabric.cable.rate / 1e9:.0f} Gb/s, {fabric.cable.delay:.0f} + {fabric.switch.latency:.0f} ns"
    )
    unlike = dict(fabric.cables) or ({"hosts": fabric.host_cable} if fabric.host_cable.model_fields_set else {})
    of += "".join(f", {name} {its.rate / 1e9:.0f} Gb/s {its.delay:.0f} ns" for name, its in unlike.items())
    transport, routing = experiment.transport, experiment.control.routing
    if transport.multipath or transport.qps > 1 or routing.model_dump() != "ecmp":
        of += f", {routing.model_dump()}, qps {transport.qps}{' split' * transport.qps_split}"
        of += f", {transport.multipath.policy}" if transport.multipath else ""
    if transport.cc.name != "none":
        of += f", {transport.cc.name}"
    off = figure.time_ns / row["time_ns"] - 1
    fell = f", but {row['fallback']}" if row.get("fallback") else ""
    if not fell:
        found.append((abs(off), f"{off:+7.2%}  {of}"))
    try:
        (other,) = large_figures(experiment)
        wide = other.time_ns / row["time_ns"] - 1
        large.append((abs(wide), f"{wide:+7.2%}  {of}"))
    except InputError:
        wide = None
    beside = "" if wide is None else f" ({wide:+.2%})"
    print(f"{row['time_ns'] / 1e3:10.2f} us {off:+7.2%}{beside}  {of}{fell}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
