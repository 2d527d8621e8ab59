"""Proof: a change of the code has changed no figure.

`./setup.sh prove hashes [--points N | --all] [--limit SECONDS] [--save TABLE] [--compare TABLE] [--partitions N,N]
[FILE ...]`. Runs the experiments in `experiments/` (or those named) and prints the `metrics_sha256` of each. Of a sweep
it takes N points (default 2), evenly spread from the first to the last, or all of them with --all. A point that takes
longer than SECONDS is left out, and says so. Save a table before a change and compare with it afterwards.
With --partitions each point on the virtual clock runs in a fabric that is divided into so many, too, and has to have
the same figures.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.experiment import Experiment

ROOT = Path(__file__).resolve().parents[1]
TOO_LONG, FAILED = "too long", "failed"
"""Instead of a hash. That a point fails (buffers that wait for each other) is a result like any other."""


def one(file: str, number: int, settings: list[str]) -> None:
    """Runs one point of a file and prints its hash: in a process of its own, so that it can be stopped."""
    from testbed.base.progress import for_stderr
    from testbed.experiment import load
    from testbed.experiment.overrides import override
    from testbed.run.run import run
    from testbed.run.sweep import points

    experiment = load(file)
    if experiment.sweep:
        experiment = next(p for n, p in enumerate(points(experiment)) if n == number).experiment
    experiment = override(experiment, settings)
    with tempfile.TemporaryDirectory(prefix="rbhash-") as folder, for_stderr() as progress:
        print(run(experiment, str(Path(folder, "run")), progress).to_dict()["metrics_sha256"])


def chosen(experiment: Experiment, most: int | None) -> list[int]:
    """Numbers of the points to run: spread evenly over the sweep, the first and the last among them."""
    from testbed.run.sweep import count

    total = count(experiment) if experiment.sweep else 1
    if most is None or total <= most:
        return list(range(total))
    return sorted({round(i * (total - 1) / max(most - 1, 1)) for i in range(most)})


def hashes(files: list[Path], most: int | None, limit: float, *settings: str) -> Iterator[tuple[str, str, float]]:
    """Of each point: its name, its hash or why there is none, and the seconds that it took.

    `settings` are keys and values, as of `testbed run --set`.
    """
    from testbed.experiment import load

    for file in files:
        name = file.resolve().relative_to(ROOT)
        for number in chosen(load(str(file)), most):
            command = [sys.executable, str(Path(__file__).resolve()), "--one", str(name), str(number), *settings]
            began = time.monotonic()
            child = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            try:
                printed, said = child.communicate(timeout=limit)
                answer = printed.strip() if child.returncode == 0 else FAILED
                if answer == FAILED:
                    print(said.rstrip().rpartition("\n")[2], file=sys.stderr)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGINT)  # as Ctrl-C: it takes its fabric down
                child.communicate()
                answer = TOO_LONG
            yield f"{name} {number}", answer, time.monotonic() - began


def divided(files: list[Path], most: int | None, limit: float, partitions: list[int]) -> int:
    """Prints each point's hash in an undivided fabric and in divided ones; returns how many differ."""
    from testbed.experiment import load

    files = [file for file in files if load(str(file)).clock.mode == "virtual"]
    settings = [f"clock={{virtual: {{partitions: {n}}}}}" for n in (1, *partitions)]
    differ = left_out = count = 0
    for runs in zip(*(hashes(files, most, limit, setting) for setting in settings), strict=True):
        (name, undivided, _), *others = runs
        count += 1
        left_out += TOO_LONG in (answer for _, answer, _ in runs)
        other = [n for n, (_, answer, _) in zip(partitions, others, strict=True) if answer not in (undivided, TOO_LONG)]
        differ += bool(other) and undivided != TOO_LONG
        said = f"  OTHERWISE WITH {other} PARTITIONS" if other else ""
        print(f"{name:56} {sum(seconds for *_, seconds in runs):7.1f} s  {undivided[:16]}{said}")
    print(f"{count} points with {partitions} partitions, {left_out} left out, {differ} differ")
    return differ


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove hashes", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--points", type=int, default=2, metavar="N", help="of each sweep (default 2)")
    parser.add_argument("--all", action="store_true", help="every point of every sweep: takes long")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="for one point (default 120)")
    parser.add_argument("--save", metavar="TABLE")
    parser.add_argument("--compare", metavar="TABLE")
    parser.add_argument("--partitions", metavar="N,N", help="the same in fabrics that are divided into so many")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]), options.one[2:])
        return
    before = json.loads(Path(options.compare).read_text()) if options.compare else {}
    files = [Path(f) for f in options.files] or sorted((ROOT / "experiments").rglob("*.yaml"))
    if options.partitions:
        partitions = [int(n) for n in options.partitions.split(",")]
        sys.exit(bool(divided(files, None if options.all else options.points, options.limit, partitions)))
    table: dict[str, str] = {}
    for name, answer, seconds in hashes(files, None if options.all else options.points, options.limit):
        table[name] = answer
        was = before.get(name, answer)
        differs = f"  BEFORE {was[:16]}" if was != answer else ""
        print(f"{name:56} {seconds:7.1f} s  {answer[:16]}{differs}")
        if options.save:
            Path(options.save).write_text(json.dumps(table, indent=1) + "\n")
    known = {name for name in table if name in before} if before else set(table)
    other = [n for n in known if before and TOO_LONG not in (before[n], table[n]) and before[n] != table[n]]
    left_out = sum(answer == TOO_LONG for answer in table.values())
    print(f"{len(table)} points, {left_out} left out, {len(other)} differ" + (f" of {len(known)}" if before else ""))
    if other:
        sys.exit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
