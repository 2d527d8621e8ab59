"""Proof: whatever of a drill is killed at whatever moment, `clean` leaves nothing of it.

`./setup.sh prove drill-kills [--kills N] [--seed SEED]`. A seed draws what dies by kill -9 and when: the command line
that plays, the drill's server, its fabricd, or all of them; while the server is started, while the world comes up,
while the drill is on, or while its twins are at work in the end. Or nothing is killed, and `clean ID --force` takes the
fabric away from under the server. Then `testbed clean` is called, and every process and fabric that the drill had must
be gone. A drill whose command line alone has died goes on, as it should: `clean ID --force` ends it.

What it asks is about its own drill alone: processes by a mark that they inherit, fabrics by the server that has begun
them. Whatever else the machine has, dead or alive, is not looked at.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.machine.processes import Process
from tests.parts.drills import ALL_ASKED, star
from tests.parts.machine import ROOT, TESTBED, fabrics_begun_by, traces, wait_until
from tests.prove_kills import record_of

DRILL = star(2) + ALL_ASKED + "budget: {emulated: 2ms}\n"
PLAYED = b"advance 20us\nconfig interface shutdown sw0:1\n"
VICTIMS = ("command line", "server", "server", "fabricd", "everything", "nothing")
MOMENTS = ("as it is started", "as it comes up", "while it is on", "at its end")
STARTED_S = 1.0
COMES_UP_S = 1.5
LATER_S = 0.3
GONE_S = 60.0
_SERVER = b"drills.play.drilld"
_MARK = "RAILBED_PROOF"


@dataclass
class Played:
    """A drill's command line, its server, and all fabrics that were seen of it."""

    process: subprocess.Popen[bytes]
    mark: str
    servers: set[int] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def processes(self) -> dict[int, bytes]:
        """All that run because of it: pid and command line."""
        found = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                if f"{_MARK}={self.mark}".encode() in Path("/proc", name, "environ").read_bytes():
                    found[int(name)] = Path("/proc", name, "cmdline").read_bytes()
        return found

    def server(self) -> Process | None:
        for pid in [pid for pid, command in self.processes().items() if _SERVER in command]:
            self.servers.add(pid)
            with suppress(ProcessLookupError):
                return Process.of(pid)
        return None

    def fabrics(self) -> list[str]:
        """Those that are there now, also of a server that is dead: the drill's own, and in the end its twins."""
        self.server()
        now = {fabric for pid in self.servers for fabric in fabrics_begun_by(pid)}
        self.seen |= now
        return sorted(now)

    def left(self) -> list[str]:
        """What is left of it: processes, and everything of its fabrics."""
        self.fabrics()
        running = [f"process {pid}: {what!r:.80}" for pid, what in self.processes().items()]
        return [*running, *(trace for fabric in self.seen for trace in traces(fabric))]


@contextmanager
def played(folder: Path, *, exam: bool) -> Iterator[Played]:
    """A drill whose command line begins now."""
    file, mark = folder / "drill.yaml", secrets.token_hex(8)
    file.write_text(DRILL)
    words = ["drill", "start", str(file), "--seed", "7Q4", "--faulty", "--out", str(folder / f"{mark}.log")]
    with subprocess.Popen(
        [*TESTBED, *words, *(["--exam"] if exam else [])], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, _MARK: mark},
    ) as process:  # fmt: skip
        one = Played(process, mark)
        try:
            yield one
        finally:
            process.kill()
            with suppress(BrokenPipeError):
                process.communicate()


def kill(draw: random.Random, folder: Path) -> str:
    """One kill that is drawn, and all that is done afterwards. Raises AssertionError if something is left."""
    victim, moment, exam = draw.choice(VICTIMS), draw.choice(MOMENTS), draw.random() < 0.3
    return struck(victim, moment, draw, folder, exam=exam)


def struck(
    victim: str, moment: str, draw: random.Random, folder: Path, *, exam: bool = False, alone: bool = True
) -> str:
    """This kill. Returns what it was. Without `alone` only the drill's own fabrics are cleaned, by their ids: dead ones
    of others may be somebody's test."""
    with played(folder, exam=exam) as game:
        _reach(game, moment, draw)
        game.fabrics()
        there = _strike(game, victim)
        if not there:
            for fabric in game.fabrics():
                _testbed("clean", fabric, "--force", codes=(0, 2))  # 2: it is gone already
        _clean(game, goes_on=not there or (victim == "command line" and not exam), alone=alone)
    return f"{victim} {moment}{', sealed' if exam else ''}"


def _reach(game: Played, moment: str, draw: random.Random) -> None:
    """Waits for the moment."""
    if moment == "as it is started":
        time.sleep(draw.uniform(0, STARTED_S))
        return
    if moment == "as it comes up":
        wait_until(game.fabrics, "its fabric", GONE_S)
        time.sleep(draw.uniform(0, COMES_UP_S))
        return
    wait_until(lambda: any(_is_on(fabric) for fabric in game.fabrics()), "the drill to be on", GONE_S)
    assert game.process.stdin
    game.process.stdin.write(PLAYED)
    if moment == "at its end":
        game.process.stdin.write(b"give-up\n")
        game.process.stdin.flush()
        wait_until(lambda: len(game.fabrics()) > 1 or not game.server(), "its twins", GONE_S)
    game.process.stdin.flush()
    time.sleep(draw.uniform(0, LATER_S))


def _is_on(fabric: str) -> bool:
    return Path("/run/railbed", fabric, "drill.sock").exists()


def _strike(game: Played, victim: str) -> bool:
    """Whether there was anything to kill."""
    server = game.server()
    victims = {
        "command line": [Process.of(game.process.pid)],
        "server": [server],
        "fabricd": [record_of(fabric).processes.get("fabricd") for fabric in game.fabrics()],
        "nothing": [],
    }
    victims["everything"] = [one for several in victims.values() for one in several]
    there = [one for one in victims[victim] if one]
    for one in there:
        one.signal(signal.SIGKILL)
    return bool(there)


def _clean(game: Played, *, goes_on: bool, alone: bool) -> None:
    """`clean`; a drill that goes on is taken away by force."""

    def gone() -> bool:
        if goes_on:
            for fabric in game.fabrics():
                if _is_on(fabric):
                    _testbed("clean", fabric, "--force", codes=(0, 2))
        return game.server() is None

    wait_until(gone, "its server to end", GONE_S)
    game.process.kill()
    game.process.wait()
    wait_until(gone, "a server that was just being started to end", GONE_S)

    def dead() -> bool:
        """A process that is killed lets its memory go before its files: for a moment the owner's lock is held yet."""
        return all(record_of(fabric).state == "dead" for fabric in game.fabrics())

    wait_until(dead, "its fabrics to have no owner", GONE_S)
    if alone:
        _testbed("clean")
    else:
        for fabric in game.fabrics():
            _testbed("clean", fabric, codes=(0, 2))  # 2: somebody else's clean was quicker
    end = time.monotonic() + GONE_S
    while left := game.left():
        assert time.monotonic() < end, left
        time.sleep(0.01)


def _testbed(*words: str, codes: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run([*TESTBED, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in codes, f"{words}: {done.stdout}{done.stderr}"


def prove(kills: int, seed: int, say: Callable[[str], None] = print) -> Counter[str]:
    """Kills so many times; returns what was killed how often. Raises AssertionError."""
    draw, count = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="rbdrillkills-") as folder:
        for number in range(1, kills + 1):
            what = kill(draw, Path(folder))
            count[what] += 1
            say(f"{number:4} of {kills}: {what}; nothing left")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove drill-kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        count = prove(options.kills, options.seed)
    except (AssertionError, subprocess.SubprocessError) as error:
        sys.exit(f"prove drill-kills: {error} (seed {options.seed})")
    for what, times in count.most_common():
        print(f"{times:5} x {what}")
    print(f"{options.kills} kills, seed {options.seed}: nothing left of them")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(ROOT)
    main()
