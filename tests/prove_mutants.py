"""Proof: tests notice when what makes figures changes.

`./setup.sh prove mutants ROOM.. [--sample N] [--seed S] [--only TEXT] [--limit SECONDS] [--keep FOLDER]`. Of each room
named (or `all`) N lines (default 25) are drawn, and of each line one change: a relation, a sign, a constant, a
condition, a statement, an argument. The tests of its subject then run upon it. It prints which changes they noticed and
which survived, and fails below 85 % of a room.

- A room's tests are, of Python, the unit tests that import its package, themselves or through tests/parts, and those
  named below, which come to it by another package; of C, the files of tests/fabricd named below.
- They run once without a mutant, watched: line by line by coverage.py, and in fabricd block by block as the compiler
  reports them. A mutant runs those that come to its line, up to SECONDS of CPU (default 60): first those that have
  noticed most mutants for their time, then the quickest of each file.
- fabricd is built as it is used, which is quick; what survives so is tried with sanitizers, as most tests have it.
- With --keep, FOLDER has each verdict as it comes, and a proof that was stopped goes on from there. After a change of
  tests, only what survived is tried again, by the tests that changed.
- A test that fails without a mutant, or that lasts longer than SECONDS, judges nothing.
- tests/equivalent_mutants.toml lists changes that change nothing that anybody can see, with the reason.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests import prove_mutants_c as c
from tests import prove_mutants_python as python
from tests.prove_mutants_bench import ENDLESS, SURVIVED, Bench, Mutant, bench, used_s
from tests.prove_mutants_cover import Cover, cover_c, cover_python
from tests.prove_mutants_kept import Kept

FLOOR = 0.85
SLOWER = 4
"""Times that fabricd is slower with sanitizers, at most."""


@dataclass(frozen=True)
class Room:
    files: tuple[str, ...]
    package: str = ""
    tests: tuple[str, ...] = ()
    """Patterns of names, without `test_`."""
    first: tuple[str, ...] = ()
    """Of what runs where a file is imported, which all tests come to: those that hold what is made of it."""

    @property
    def is_c(self) -> bool:
        return self.files[0].endswith(".c")

    def paths(self, tree: Path) -> list[Path]:
        return sorted(path for pattern in self.files for path in tree.glob(pattern))


ROOMS = {
    "experiment": Room(
        ("testbed/experiment/**/*.py",),
        "testbed.experiment",
        first=("tests/unit/test_spec.py::test_schema_file_and_tables_are_those_of_the_models",),
    ),
    "plan": Room(("testbed/plan/**/*.py",), "testbed.plan", ("predict*",)),
    "drills": Room(("drills/sheet/score.py", "drills/twins.py", "drills/ending.py", "drills/solve/*.py"), "drills"),
    "figures": Room(("results/figures/**/*.py",), "results.figures"),
    "times": Room(("workloads/times/**/*.py",), "workloads.times", ("predict*", "nvls", "collnet*")),
    "cc": Room(
        ("hardware/fabricd/cc/*.c",),
        tests=(
            *("fabricd_cc_*", "fabricd_ecn", "fabricd_incast", "fabricd_pacer", "fabricd_credits", "fabricd_pulls"),
            *("fabricd_trimming*", "own_controls"),
        ),
    ),
    "transport": Room(
        ("hardware/fabricd/transport/*.c",),
        tests=(
            *("fabricd_recovery*", "fabricd_selective_repeat", "fabricd_pacer", "fabricd_packets", "fabricd_workers"),
            *("fabricd_timing", "fabricd_nic_counters", "fabricd_hostile", "fabricd_cc_*", "fabricd_probe"),
            *("fabricd_lent", "fabricd_psn_wrap", "fabricd_ring_options", "fabricd_seen", "fabricd_sack"),
            *("fabricd_ordering", "fabricd_credits", "fabricd_pulls", "fabricd_trimming*", "fabricd_transports"),
            *("fabricd_ways", "fabricd_multipath", "fabricd_retry", "verbs_reads", "verbs_programs"),
        ),
    ),
    "switch": Room(
        ("hardware/fabricd/switch/*.c",),
        tests=(
            *("fabricd_buffer", "fabricd_ecn", "fabricd_ovs", "fabricd_timing", "fabricd_incast", "fabricd_thresholds"),
            *("fabricd_seen", "views_of_faults", "fabricd_multicast", "fabricd_determinism", "fabricd_deadlock"),
            *("fabricd_fast_path*", "fabricd_lent", "fabricd_ended", "fabricd_until", "fabricd_cc_controls"),
            *("fabricd_adaptive", "fabricd_trimming", "trimming_faults", "fabricd_cut_through", "own_paths"),
        ),
    ),
}


def drawn(at: Bench, files: Sequence[Path], seed: str, only: str = "") -> tuple[int, Iterator[Mutant]]:
    """Lines that can be changed, evenly drawn, and one change of each. How many there are, and they, one by one."""
    draw = random.Random(seed)
    codes = {str(path.relative_to(at.tree)): path.read_text() for path in sorted(files)}
    of = {file: (c if file.endswith(".c") else python).mutants(file, code) for file, code in codes.items()}
    lines = [(file, line) for file, found in of.items() for line in sorted(found) if only in f"{file}:{line}:"]
    draw.shuffle(lines)
    return len(lines), (draw.choice(of[file][line])() for file, line in lines)


def equivalent() -> set[tuple[str, str, str]]:
    listed = tomllib.loads(Path(__file__).with_name("equivalent_mutants.toml").read_text()).get("mutant", [])
    return {(one["file"], one["was"], one["now"]) for one in listed}


def judges(at: Bench, cover: Cover) -> None:
    """Raises SystemExit if fabricd with sanitizers fails without a mutant: it would notice each."""
    test = cover.quickest()
    with c.sanitized():
        if at.verdict([test], 600) != SURVIVED:
            raise SystemExit(f"prove mutants: with sanitizers {test} fails without a mutant:\n{at.said}")


def judged(room: Room, at: Bench, cover: Cover, mutant: Mutant, limit: float, tests: Sequence[str]) -> str:
    """What became of it; "" if the compiler refuses it. A test may take three times as long as the slowest does."""
    each = 10 + 3 * cover.slowest(tests)
    with at.changed(mutant):
        if not room.is_c:
            return at.verdict(tests, limit + 30, each)
        if not at.builds():
            return ""
        plain = at.verdict(tests, limit + 30, each)
        if plain != SURVIVED:
            return plain
        with c.sanitized():
            return at.verdict(tests, SLOWER * limit + 60, 60 + SLOWER * each)


def prove(name: str, options: argparse.Namespace, at: Bench) -> tuple[int, int, int]:
    """Prints a line for each mutant. Return: how many were noticed, tried, and are listed as equivalent."""
    room = ROOMS[name]
    files = room.paths(at.tree)
    known, noticed, tried, same = equivalent(), 0, 0, 0
    count, mutants = drawn(at, files, f"{options.seed} {name}", options.only)
    at.struck.clear()
    kept = Kept(options.keep, name, at)
    alike = [str(p.relative_to(at.tree)) for one in ROOMS.values() if one.is_c == room.is_c for p in one.paths(at.tree)]
    cover = (cover_c if room.is_c else cover_python)(at, kept, room.package, room.tests, alike)
    if room.is_c:
        judges(at, cover)
    print(f"{name}: {count} lines of {len(files)} files can be changed; {cover.about}")
    for mutant in mutants:
        if tried == options.sample:
            break
        if (mutant.file, mutant.was, mutant.now) in known:
            same += 1
            continue
        began = used_s(os.getpid())
        tests = cover.of(mutant, options.limit, at.struck, room.first)
        verdict, ran = kept.verdict(mutant, tests, partial(judged, room, at, cover, mutant, options.limit))
        if not verdict:
            continue
        tried += 1
        noticed += verdict != SURVIVED
        how = f"{ran} tests, {used_s(os.getpid()) - began:.1f} s" if ran else "no test comes there"
        print(f"{verdict:8} {mutant.file}:{mutant.line} ({how})")
        if verdict in (SURVIVED, ENDLESS):
            print(f"    - {mutant.was}\n    + {mutant.now}")
    if room.is_c:
        at.builds()
    return noticed, tried, same


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./setup.sh prove mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="+", metavar="ROOM", choices=[*ROOMS, "all"], help=", ".join(ROOMS) + ", or all")
    parser.add_argument("--sample", type=int, default=25, metavar="N", help="of each room (default 25)")
    parser.add_argument("--seed", default="1", metavar="S")
    parser.add_argument("--only", default="", metavar="TEXT", help="FILE:LINE: of a mutant, or a part of it")
    parser.add_argument(
        "--limit", type=float, default=60, metavar="SECONDS", help="of CPU, of tests for each (default 60)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for verdicts; goes on from those that are there")
    options = parser.parse_args()
    rows, below = [], False
    with bench() as at:
        for name in ROOMS if "all" in options.rooms else options.rooms:
            began = used_s(os.getpid())
            noticed, tried, same = prove(name, options, at)
            below |= tried > 0 and noticed < FLOOR * tried
            share = f"{noticed / tried:.0%}" if tried else "-"
            took = used_s(os.getpid()) - began
            rows.append(f"{name:12} {noticed:4} of {tried:4} noticed  {share:>4}  {same} equivalent  {took:5.0f} s")
    print("\n".join(rows))
    if below:
        print(f"below the floor of {FLOOR:.0%}")
        sys.exit(1)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
