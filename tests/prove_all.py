"""Proof of everything: each `prove` verb's worth of a night, one after the other, and a table in the end.

`./setup.sh prove all [--only VERB,VERB..] [--but VERB,VERB..] [--seed S] [--limit HOURS]`. What a verb says is shown
as it comes. What is drawn is drawn by the day of the year, unless there is a seed. A verb that lasts longer than its
HOURS (default 2) is stopped as by Ctrl-C, and is not proved. It fails if one of them does.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.prove_hashes import ROOT

NIGHTLY: dict[str, tuple[str, ...]] = {
    "hashes": ("--points", "1", "--partitions", "2,5,32"),
    "fastpath": (),
    "load": (),
    "recovery": ("--seed", "SEED"),
    "controls": ("--seed", "SEED"),
    "predict": ("--seed", "SEED"),
    "auto": ("--seed", "SEED", "--budget", "3600"),
    "simgrid": (),
    "calibrate": (),
    "gallery": (),
    "notebook": (),
    "packages": (),
    "drills": (),
    "drill-leaks": (),
    "drill-replay": ("--seed", "SEED"),
    "drill-kills": ("--seed", "SEED"),
    "parts": ("--seed", "SEED"),
    "kills": ("--seed", "SEED"),
    "programs": (),
    "program-kills": ("--seed", "SEED"),
    "machines": ("--seed", "SEED"),
    "mutants": ("all", "--seed", "SEED"),
}
"""The arguments of each; the quickest to find something wrong come first."""
_MOST = 88


@dataclass(frozen=True)
class Row:
    verb: str
    looked_at: str
    verdict: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.verb:12} {self.looked_at:{_MOST}.{_MOST}} {self.verdict:9} {self.seconds:7.0f}"


def command(verb: str, seed: str) -> list[str]:
    arguments = [seed if one == "SEED" else one for one in NIGHTLY[verb]]
    return [sys.executable, "-m", f"tests.prove_{verb.replace('-', '_')}", *arguments]


def looked_at(said: Sequence[str]) -> str:
    """What a verb says in the end of what it has looked at: its last line with a number in it."""
    return next((" ".join(line.split()) for line in reversed(said) if re.search(r"\d", line)), "-")


def proved(verb: str, argv: list[str], limit_s: float) -> Row:
    """Runs it, shows what it says, and sums it up."""
    began, said, late = time.monotonic(), [], threading.Event()
    child = subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )

    def stop() -> None:
        late.set()
        child.send_signal(signal.SIGINT)  # it takes down what it has made

    timer = threading.Timer(limit_s, stop)
    timer.start()
    try:
        assert child.stdout
        for line in child.stdout:
            print(line, end="", flush=True)
            said.append(line)
        code = child.wait()
    finally:
        timer.cancel()
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait()
    verdict = "time up" if late.is_set() else "FAILED" if code else "proved"
    return Row(verb, looked_at(said), verdict, time.monotonic() - began)


def verbs(text: str) -> list[str]:
    """Of a list with commas. Raises argparse.ArgumentTypeError."""
    named = [one for one in text.split(",") if one]
    if unknown := [one for one in named if one not in NIGHTLY]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(NIGHTLY)}")
    return named


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove all", description=__doc__)
    parser.add_argument("--only", type=verbs, default=list(NIGHTLY), metavar="VERB,VERB..")
    parser.add_argument("--but", type=verbs, default=[], metavar="VERB,VERB..")
    parser.add_argument("--seed", default=time.strftime("%j").lstrip("0"), help="default: the day of the year")
    parser.add_argument("--limit", type=float, default=2, metavar="HOURS", help="of each verb (default 2)")
    options = parser.parse_args()
    rows = []
    for verb in (one for one in NIGHTLY if one in options.only and one not in options.but):
        print(f"== prove {verb}", flush=True)
        rows.append(proved(verb, command(verb, options.seed), 3600 * options.limit))
    print(f"\n{Row('verb', 'what it looked at', 'verdict', 0)}".replace("      0", "seconds"), *rows, sep="\n")
    sys.exit(any(row.verdict != "proved" for row in rows))


if __name__ == "__main__":
    main()
