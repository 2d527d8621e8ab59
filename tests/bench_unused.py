"""What RDMA programs cost who does not use them: instructions of a frame-hop, over those of before there were any.

`.venv/bin/python -m tests.bench_unused [--against COMMIT]`, also part of tests/bench.py. Both commits, this one and the
other, are taken out of git into a temporary folder and fabricd is built there. A plain fabric runs on each
(tests/parts/counted_flows.py), and valgrind counts what its fabricd executes: all but the kernel, the same however busy
the machine is. Two lengths of the same flows are run, and what the longer has more counts: so neither a start nor an
end is in it. Ends with 1 if a frame-hop takes over LIMIT times as many.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "14f874225017a6a2cc872b8666b732e14cce1d31"
"""The last commit without a libibverbs of ours."""
LIMIT = 1.03
SHORT, LONG = 2_000_000, 18_000_000
FLOWS = ROOT / "tests" / "parts" / "counted_flows.py"
_COUNTED = re.compile(r"I +refs: +([\d,]+)")

# valgrind does not know this call of the kernel's before release 3.21, and fabricd waits by it
WAITS = """
#include <sys/epoll.h>
#include <time.h>
int epoll_pwait2(int epoll, struct epoll_event *e, int most, const struct timespec *t, const sigset_t *mask)
{
	return epoll_pwait(epoll, e, most, t ? (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000) : -1, mask);
}
"""
# A fabricd that is counted: valgrind goes on as it, with its descriptors and its place among processes
COUNTS = """#!/bin/sh
LD_PRELOAD={folder}/../waits.so exec valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \\
    --log-file={folder}/counted {tree}/hardware/bin/fabricd "$@"
"""


class Cannot(SystemExit):
    """This machine, or this checkout, cannot: said, with exit code 3, as by the testbed's commands."""

    def __init__(self, why: str) -> None:
        print(f"bench unused: {why}", file=sys.stderr)
        super().__init__(3)


def _run(command: Sequence[str | Path], **more: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise Cannot(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    said: str = done.stdout
    return said


def known(commit: str) -> str:
    """Its whole name, if all of it is here."""
    named = ["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(named, capture_output=True, text=True)
    if found.returncode:
        raise Cannot(
            f"git has no commit {commit} here. In a shallow clone: git fetch --unshallow; where there is no history "
            f"(an archive, a package) nothing can be compared. --against takes another commit"
        )
    return found.stdout.strip()


class Tree:
    """A commit's files, with its fabricd built."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.path = folder / "tree"
        self.path.mkdir(parents=True)
        archive = folder / "tree.tar"
        _run(["git", "-C", ROOT, "archive", "--output", archive, commit])
        _run(["tar", "-C", self.path, "-xf", archive])
        archive.unlink()
        _run([sys.executable, "-c", "from hardware.build import build; build()"], cwd=self.path)
        self.counted = folder / "fabricd"
        self.counted.write_text(COUNTS.format(folder=folder, tree=self.path))
        self.counted.chmod(0o755)

    def _count(self, nbytes: int) -> tuple[int, int]:
        """Instructions and frame-hops."""
        environment = {**os.environ, "PYTHONPATH": str(self.path)}
        command = [sys.executable, "-P", FLOWS, str(nbytes), self.counted]
        hops = int(_run(command, cwd=self.path, env=environment))
        log = (self.path.parent / "counted").read_text()
        found = _COUNTED.search(log)
        if not found:
            raise Cannot(f"valgrind has not said how many instructions there were: {log[-500:]}")
        return int(found[1].replace(",", "")), hops

    def hop_instructions(self) -> float:
        (few, short), (many, long) = self._count(SHORT), self._count(LONG)
        return (many - few) / (long - short)


def unused(against: str = BEFORE) -> dict[str, float]:
    for program in ("git", "valgrind", "cc", "ovs-vswitchd"):
        if not shutil.which(program):
            raise Cannot(f"{program} is not installed: ./setup.sh bench installs it")
    commits = [known("HEAD"), known(against)]
    with tempfile.TemporaryDirectory(prefix="rbunused-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # fabricd runs as a user of its own
        (folder / "waits.c").write_text(WAITS)
        _run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O2", "-o", folder / "waits.so", folder / "waits.c"])
        now, before = (Tree(commit, folder / str(k)).hop_instructions() for k, commit in enumerate(commits))
    return {"hop_instructions": now, "hop_instructions_before": before, "over_before": now / before}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_unused", description=__doc__)
    parser.add_argument("--against", default=BEFORE, metavar="COMMIT", help="what HEAD is compared with")
    figures = unused(parser.parse_args().against)
    for name, value in figures.items():
        print(f"{name:28} {value:10.3f}")
    return figures["over_before"] > LIMIT


if __name__ == "__main__":
    sys.exit(main())
