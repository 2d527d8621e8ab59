"""Benchmarks: `./setup.sh bench [--out FILE] [PART ...]`.  Ratios measured in one run, printed and stored as JSON as
they come.

- frame-hops: frames through a switch (Open vSwitch's userspace datapath) per wall second, at an MTU of 4096; a ring
  all-reduce of 8 ranks x 64 MiB, wall time against its floor: frames x what one costs Open vSwitch alone
- fast-path: frame-hops per wall second with it, of that ring and of plain writes (all frames, and data alone),
  over what Open vSwitch carries alone, and without it likewise; with shared buffers, PFC, ECN and DCQCN over without;
  fabricd's processor time for a frame; the ring over its floor. Medians of five rounds, each of which has all of it.
  Beside it what a RoCE packet simulator does on a machine of this class, without payload and without switches to ask,
  counted the same way: frames through a switch per wall second, data alone, and with acknowledgements (SIMULATOR)
- up-down: a fabric of 64 servers, against stock Mininet with the same topology
- features: the frame-hop rate with shared buffers, PFC, ECN and DCQCN over that of one buffer without any of it,
  and with samples each 10 us over that without; neighbours in time
- offload: wall time of an all-reduce of 8 ranks x 64 MiB by the ring over the same in the network, and that of a
  whole run of 64 ranks x 1 MiB on a clos, by two trees
- crowd: fabricd's CPU time for 3,900 SYNCs with 60,000 records of the same worker for later over that without, and for
  an all-reduce by the NICs with 4,000 groups that wait for members over that without: 1 if what piles up costs nothing
- size: `testbed run experiments/quickstart.yaml` as a command; runs of 256 ranks x 16 MiB and 1,024 ranks x 64 KiB on a
  clos, fabric and all, and the memory of the latter; processor time of a frame-hop at 1,024 ranks over that at 8
- start (tests/bench_start.py, also by itself): processor time of 8 workers that are forked over that of workers that
  are started
- steps (tests/bench_steps.py, also by itself): CPU time of a run with 1,000 tasks a rank over that of as many
  iterations of one all-reduce; wall time of a training step of 64 ranks and ten million frame-hops
- large: CPU time to build a rail of 64 servers over that of 16, which has a quarter of the nodes
- help: `testbed --help` against a Python that imports click alone
- plan (tests/bench_plan.py): CPU time and memory of planning an all-reduce by `auto` among 1,024 ranks, over 64 ranks
- predict (tests/bench_predict.py): CPU time and memory of `testbed predict` of a torus of 262,144 nodes
- library (tests/bench_library.py, also by itself): a ring of 80 ranks x 16 channels predicted, of 16 x 16 emulated
- paths (tests/bench_paths.py, also by itself): fabricd's processor time for a frame-hop where switches or NICs spread
  packets over paths, over ECMP
- programs (tests/bench_programs.py, also by itself): wall and CPU time of 1 GiB by `ib_write_bw` over those of a flow
- unused (tests/bench_unused.py, also by itself): instructions of a frame-hop without RDMA programs over those of before
  there were any; ends with 3 where there is no valgrind, or not all of git's history
- sweep (tests/bench_sweeps.py): wall time of 12 small points one after the other over that of two at a time; of 60 tiny
  points with a fabric each over that of 60 that share one
- drills (tests/bench_drills.py): wall time to a drill's first prompt, and of `advance 300us` there
- memory: fabricd, Open vSwitch, the controller and Mininet of a fabric of 64 servers
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from results.store.environment import environment
from tests import (
    bench_crowd,
    bench_drills,
    bench_fabrics,
    bench_frames,
    bench_help,
    bench_library,
    bench_paths,
    bench_plan,
    bench_predict,
    bench_programs,
    bench_ranks,
    bench_start,
    bench_steps,
    bench_sweeps,
    bench_unused,
)

ROOT = Path(__file__).parent.parent


def named(name: str, figures: dict[str, float]) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in figures.items()}


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "frame-hops": bench_frames.frame_hops,
    "up-down": bench_fabrics.up_down,
    "offload": bench_frames.offload,
    "features": bench_frames.costs_of_features,
    "fast-path": lambda: {**bench_frames.fast_path(), **bench_frames.SIMULATOR},
    "size": bench_ranks.size,
    "crowd": bench_crowd.crowd,
    "start": lambda: named("start", bench_start.measure()),
    "steps": bench_steps.measure,
    "large": lambda: {"rail_64_over_16_servers": bench_fabrics.large_over_small()},
    "help": bench_help.help_s,
    "plan": lambda: named("plan", bench_plan.plan_1024()),
    "predict": lambda: named("predict_64x64x64", bench_predict.predict_torus()),
    "library": lambda: named("library", bench_library.library()),
    "drills": bench_drills.drills,
    "paths": lambda: named("paths", bench_paths.paths()),
    "programs": lambda: named("programs", bench_programs.programs()),
    "sweep": lambda: {
        **named("sweep_local_2", bench_sweeps.two_at_a_time()),
        **named("sweep_shared", bench_sweeps.shared()),
    },
    "memory": bench_fabrics.memory_mb,
    "unused": lambda: named("unused", bench_unused.unused()),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh bench", description=__doc__)
    default = ROOT / "results" / "bench" / "bench.json"
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--out", type=Path, default=default, help="where the JSON goes")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    out: Path = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, float] = {}
    for part in options.parts or PARTS:
        its = PARTS[part]()
        for name, value in its.items():
            print(f"{name:40} {value:12.2f}", flush=True)
        figures |= its
        stored = {"environment": environment(1), "figures": figures, "profiles": bench_frames.profiles}
        out.write_text(json.dumps(stored, indent=1, default=str) + "\n")
    print(f"stored in {out}")


if __name__ == "__main__":
    main()
