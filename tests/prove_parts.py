"""Proof: whichever process of a standing fabric ends or stands still is named at once, and no command waits for it.

`./setup.sh prove parts [--events N] [--seed SEED]`. Fabrics are left up, in turns with a held clock and with the real
one. On each, some processes are stopped (SIGSTOP) and let go on, as a seed draws; then one is killed (SIGKILL), or a
rank's worker is ended or stopped: each in its turn. After each, `status` has to name it within 2 s of wall time.
Commands that need it have to fail and to name it, the others to succeed, and all long before patience has run out. What
was stopped and goes on has done no harm. At the end `clean` leaves nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from testbed.base.errors import UserError
from testbed.machine import ownership
from testbed.machine.ownership import Record
from testbed.machine.processes import Process
from tests.parts.machine import ROOT, wait_until
from tests.parts.standing import ENDS_S, HELD, REAL, SAID_S, ends, go_on, kill, named, standing, stop

COMMANDS = {
    HELD: (
        ("advance", "2us"),
        ("inject", "straggler", "--on", "nic:0", "--factor", "2"),
        ("show", "interfaces", "status"),
    ),
    REAL: (("inject", "loss", "--on", "cable:h0-sw0", "--rate", "0.1"), ("show", "interfaces", "status")),
}
Say = Callable[[str], None]


def hinders(part: str, ended: bool) -> bool:
    """Whether commands need it: of those that only hold namespaces, that they are there."""
    return part != "controller" and (ended or not (part == "holder" or part.startswith("host ")))


def commands(text: str, record: Record, part: str, pid: int, ended: bool) -> None:
    for words in COMMANDS[text]:
        done = ends(*words, "--fabric", record.id)
        if not hinders(part, ended):
            assert done.returncode == 0, f"{words}: {done.stderr}"
        else:
            assert done.returncode == 1, f"{words} without {part}: code {done.returncode}, {done.stdout}"
            assert f"{part} (process {pid})" in done.stderr, f"{words} without {part}: {done.stderr}"
    if not hinders(part, ended):
        ends("heal", "all", "--fabric", record.id)


def a_stop(text: str, record: Record, part: str) -> float:
    pid = stop(record, part)
    took = named(record, f"{part} (process {pid}) is stopped", SAID_S)
    commands(text, record, part, pid, ended=False)
    go_on(record, part)
    for words in COMMANDS[text]:
        done = ends(*words, "--fabric", record.id)
        assert done.returncode == 0, f"{words}, after {part} was let go on: {done.stderr}"
    ends("heal", "all", "--fabric", record.id)
    return took


def a_kill(text: str, record: Record, part: str) -> float:
    pid = kill(record, part)
    took = named(record, f"{part} (process {pid})", SAID_S)
    if part == "keeper":
        wait_until(lambda: ownership.find(record.id).state == "dead", "its lock to be free")
    commands(text, record, part, pid, ended=True)
    if part != "controller":
        wait_until(lambda: ownership.find(record.id).state == "dead", f"the fabric to be dead without {part}")
    return took


def a_worker(record: Record, rank: int, number: int) -> float:
    """A worker of the job that is repeated."""
    file = record.dir / "runc" / f"rb{record.id}-r{rank}" / "state.json"
    init = Process.of(int(json.loads(file.read_text())["init_process_pid"]))
    assert init.signal(number)
    if number == signal.SIGKILL:
        return named(record, f"rank {rank} is lost", SAID_S)
    wait_until(init.stopped, "the worker to stand still")
    return named(record, f"a program of rank {rank} (process {init.pid}) is stopped", SAID_S)


STOPS = 3
WORKERS = ("SIGKILL of a worker", "SIGSTOP of a worker")


def one_fabric(text: str, draw: random.Random, folder: Path, most: int, to_end: list[str], say: Say) -> Counter[str]:
    """So many events at most; the last is the fabric's end, by the first of `to_end`, which is filled again."""
    count: Counter[str] = Counter()

    def note(what: str, took: float) -> None:
        count[what] += 1
        say(f"{what}, {'held' if text == HELD else 'real clock'}: named after {took:.2f} s")

    with standing(text, folder) as record:
        parts = list(record.processes)
        for part in draw.sample(parts, min(STOPS, most - 1)):
            note(f"stop of {part}", a_stop(text, record, part))
        if not to_end:
            every = [*parts, *(WORKERS if text == HELD else ())]
            to_end += draw.sample(every, len(every))
        last = to_end.pop(0)
        if last in WORKERS:
            note(last, a_worker(record, draw.randrange(3), signal.Signals[last.partition(" ")[0]]))
        else:
            note(f"kill of {last}", a_kill(text, record, last))
    return count


def prove(events: int, seed: int, say: Say = print) -> Counter[str]:
    """Raises AssertionError."""
    draw, count, fabrics = random.Random(seed), Counter[str](), 0
    to_end: dict[str, list[str]] = {HELD: [], REAL: []}
    with tempfile.TemporaryDirectory(prefix="rbparts-") as folder:
        while (left := events - count.total()) > 0:
            text = HELD if fabrics % 2 else REAL
            count += one_fabric(text, draw, Path(folder), left, to_end[text], say)
            fabrics += 1
            say(f"{count.total():4} of {events}")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove parts", description=__doc__)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        count = prove(options.events, options.seed)
    except (AssertionError, UserError) as error:
        sys.exit(f"prove parts: {error} (seed {options.seed})")
    for what, times in count.most_common():
        print(f"{times:5} x {what}")
    bounds = f"each was named within {SAID_S:g} s, no command took {ENDS_S:g} s"
    print(f"{options.events} kills and stops, seed {options.seed}: {bounds}")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(ROOT)
    main()
