"""Proof: congestion controls as a default file has them starve nobody, cause no timeouts and bound the queue.

`./setup.sh prove controls [--cases N | --all] [--seed N] [--control NAME|FILE.c ...]`. A case is some senders to one
receiver over a chain of switches (tests/parts/control_case.py), drawn from a grid of rates, cables' delays, switches,
senders, `nic.ack_every` and both recoveries; lossless, and up to 100 Gb/s lossy too. The last sender joins late. For
each control the worst rows are printed, as they stand in docs/congestion-control.md, and what is out of bounds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from hardware.cc import CONTROLS
from tests.parts.control_case import SHARED, Case, Outcome, measure

RATES, DELAYS_US, SWITCHES, SENDERS, ACKS = (25, 100, 400, 800), (0.1, 1, 10), (1, 3, 9), (2, 8, 32), (1, 16, 64)
NAMES = [name for name in CONTROLS if name != "none"]
RECOVERIES = ("go_back_n", "selective_repeat")
LOSSY_GBPS = 100
LONGEST_NS = 100e3
"""Light takes no longer there and back: a late sender needs hundreds of round trips."""
SHORTEST_FIRST = ("homa",)
"""Of flows without end the others wait: nobody is promised a share."""
DEAF = ("dcqcn", "timely", "hpcc")
"""To loss: they are made for lossless classes, and nobody is promised a share where there are none."""
LEAST = 0.1
"""Of its fair share: who has less starves."""


def control(text: str) -> str:
    """A name, or a C file of one's own."""
    if text not in NAMES and not (text.endswith(".c") and Path(text).is_file()):
        raise argparse.ArgumentTypeError(f"{text} is no control and no C file: {', '.join(NAMES)} or FILE.c")
    return text if text in NAMES else str(Path(text).absolute())


def grid(names: Sequence[str]) -> Iterator[Case]:
    for values in itertools.product(names, RATES, DELAYS_US, SWITCHES, SENDERS, ACKS, RECOVERIES, (False, True)):
        case = Case(*values)
        if 2000 * case.delay_us * (case.switches + 1) < LONGEST_NS and not (case.lossy and case.gbps > LOSSY_GBPS):
            yield case


def time_ns(case: Case) -> float:
    """Long enough for a full buffer to empty, for what all windows hold at first, and for some timeouts."""
    buffer = 6 * SHARED * 8 / case.gbps
    return max(buffer, (60 + 6 * case.senders) * case.setting.base_rtt_ns, 16e6 if case.lossy else 0)


def packets_bytes(case: Case) -> float:
    """A packet of each sender: less cannot be under way."""
    return case.senders * 4190 - case.setting.network_bdp_bytes


def aimed(case: Case, delay_ns: float) -> float:
    """A queue that lasts so long, but for packets that have to be somewhere."""
    return max(delay_ns * case.gbps / 8, packets_bytes(case))


def nscc(case: Case) -> float:
    return 1.1 * aimed(case, case.setting.network_rtt_ns)


def swift(case: Case) -> float:
    return 1.1 * aimed(case, 20e3 + 1e3 * case.switches + 12e3)  # flow scaling at a packet of window


def dctcp(case: Case) -> float:
    return 1.1 * max(max(3000 * case.gbps, case.bdp_bytes / 7) + 4190 * case.senders, packets_bytes(case))


def hpcc(case: Case) -> float:
    return 0.5 * case.bdp_bytes + case.senders * 4190


def credit(case: Case) -> float:
    """What all send before there is any credit: of what is granted nothing stays."""
    return 1.1 * case.senders * 1.5 * case.bdp_bytes


CREDIT = [name for name, control in CONTROLS.items() if control.hears == ("credit",)]
BOUNDS: dict[str, Callable[[Case], float]] = {
    "nscc": nscc, "swift": swift, "dctcp": dctcp, "hpcc": hpcc, **dict.fromkeys(CREDIT, credit),
}  # fmt: skip
"""Of the mean queue in the second half, in bytes. DCQCN and TIMELY have none: they leave it to PFC."""


def wrong(case: Case, found: Outcome) -> list[str]:
    told = []
    if found.least < LEAST and case.control not in SHORTEST_FIRST and not (case.lossy and case.control in DEAF):
        told.append("starves")
    if found.timeouts and not found.lost:
        told.append("timeout without loss")
    if found.lost and not case.lossy:
        told.append("loss")
    if case.control in BOUNDS and not found.lost and found.queue > BOUNDS[case.control](case):
        told.append("queue")
    return told


def row(case: Case, found: Outcome) -> str:
    bound = f"{BOUNDS[case.control](case) * 8 / case.gbps / 1000:.1f}" if case.control in BOUNDS else ""
    cells = [
        f"`{Path(case.control).name}`", f"{case.gbps:g}", f"{case.delay_us:g}", case.switches, case.senders,
        case.ack_every, case.recovery, "lossy" if case.lossy else "", f"{found.used:.3f}", f"{found.least:.2f}",
        f"{found.queue * 8 / case.gbps / 1000:.1f}", bound, f"{found.longest_queue / 1e6:.2f}", found.timeouts,
        found.lost,
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| control | Gb/s | cable, us | switches | senders | `ack_every` | recovery | | used | least share | queue, us | "
    "bound | longest, MB | timeouts | lost |\n|" + "---|" * 15
)


def one(case: Case) -> tuple[Case, Outcome]:
    return case, measure(case, time_ns(case))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--all", action="store_true", help="the whole grid: hours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--control", type=control, nargs="+", default=NAMES, help="or FILE.c")
    asked = parser.parse_args()
    cases = list(grid(asked.control))
    if not asked.all:
        draw = random.Random(asked.seed)
        each = max(asked.cases // len(asked.control), 1)
        of = [[case for case in cases if case.control == name] for name in asked.control]
        cases = [case for its in of for case in draw.sample(its, min(each, len(its)))]
    found: list[tuple[Case, Outcome]] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for case, outcome in pool.map(one, cases):
            found.append((case, outcome))
            print(row(case, outcome), *wrong(case, outcome), file=sys.stderr, flush=True)
    print(HEAD)
    for name in asked.control:
        its = [(case, outcome) for case, outcome in found if case.control == name]
        worst = [
            min(its, key=lambda pair: pair[1].least),
            max(its, key=lambda pair: pair[1].queue / BOUNDS.get(name, lambda case: case.bdp_bytes)(pair[0])),
        ]
        print(*dict.fromkeys(row(*pair) for pair in worst), sep="\n")
    bad = [(case, wrong(case, outcome)) for case, outcome in found if wrong(case, outcome)]
    for case, told in bad:
        print(f"out of bounds: {case}: {', '.join(told)}")
    print(f"{len(found)} cases, {len(bad)} out of bounds")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
