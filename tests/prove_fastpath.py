"""Proof: no figure depends on the fast path.

`./setup.sh prove fastpath [--points N | --all] [--limit SECONDS] [--sample N] [FILE ...]`. Runs the experiments in
`experiments/` (or those named) with the fast path and with every frame through Open vSwitch, and compares the
`metrics_sha256`. Of a sweep it takes N points (default 1), as `prove hashes` does. A point that takes longer than
SECONDS is left out, and says so. Then faults of the forwarding, on one fabric with the fast path and one without: the
same times, drops and counters of all ports.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def studies(files: list[Path], most: int | None, limit: float, sample: int) -> int:
    """How many points differ."""
    from tests.prove_hashes import FAILED, TOO_LONG, hashes

    differ = compared = left_out = 0
    took = [0.0, 0.0]
    off, on = (hashes(files, most, limit, f"control.fast_path={value}") for value in ("off", f"{{sample: {sample}}}"))
    for (name, was, was_s), (_, now, now_s) in zip(off, on, strict=True):
        if TOO_LONG in (was, now):
            left_out += 1
            print(f"{name:56} {was_s:7.1f} s {now_s:7.1f} s  {TOO_LONG}")
            continue
        compared += 1
        took = [took[0] + was_s, took[1] + now_s]
        differ += was != now
        verdict = f"  WITHOUT {was[:16]}" if was != now else ""
        print(f"{name:56} {was_s:7.1f} s {now_s:7.1f} s  {now if now == FAILED else now[:16]}{verdict}")
    print(
        f"{compared} points, {left_out} left out, {differ} differ; "
        f"{took[0]:.0f} s with every frame through Open vSwitch, {took[1]:.0f} s with the fast path"
    )
    return differ


def faults() -> int:
    """How many faults of the forwarding show otherwise with the fast path."""
    from tests.parts.fast_path_faults import NAMES, two_fabrics
    from tests.parts.fault_cases import CASES

    differ = 0
    with ExitStack() as stack:
        fabrics = {spines: two_fabrics(stack, spines) for spines in {CASES[name].spines for name in NAMES}}
        for name in NAMES:
            measured = fabrics[CASES[name].spines].measure(name)
            same = all(without.figures() == with_it.figures() for without, with_it in measured)
            differ += not same
            dropped = ", ".join(f"{count} {why}" for why, count in sorted(measured[1][1].reasons.items()))
            print(f"{name:56} dropped: {dropped}{'' if same else '  DIFFERS'}")
    return differ


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove fastpath", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--points", type=int, default=1, metavar="N", help="of each sweep (default 1: the first)")
    parser.add_argument("--all", action="store_true", help="every point of every sweep: takes long")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="for one run (default 120)")
    parser.add_argument("--sample", type=int, default=1024, metavar="N", help="control.fast_path.sample (default 1024)")
    options = parser.parse_args()
    files = [Path(f) for f in options.files] or sorted((ROOT / "experiments").rglob("*.yaml"))
    differ = studies(files, None if options.all else options.points, options.limit, options.sample)
    if not options.files:
        differ += faults()
    if differ:
        sys.exit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
