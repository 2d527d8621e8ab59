"""Proof: selective repeat is never slower than go-back-N, and within 3 % of its closed form.

`./setup.sh prove recovery [--packets N] [--seed N] [--only flows|incasts|reordering]`, with what a default file gives,
under both recoveries:
- one flow of N packets (default 20,000) over one switch, over a grid of cable rates, delays and losses. The closed form
  is that of docs/congestion-control.md;
- incasts on a lossy class over a grid of rates, senders, sizes and buffers. There selective repeat may take 1 % and two
  idle round trips longer, which is when its first probe goes: go-back-N sometimes sends at once what was lost;
- one such flow whose packets come late, each by a time drawn up to some round trips: with `sack` and `loss` it is as
  fast as by any of them alone and as without, and the receiver answers a third as often at most, or every 13th packet;
  likewise with `ordering: any`, but for the addresses on the cable.
"""

from __future__ import annotations

import argparse
import itertools
import sys

from tests.parts.recovery_model import Incast, hardware, idle_ns, lossy_flow, packet_ns, selective_ns

RATES = (25e9, 100e9, 200e9, 400e9, 800e9)
DELAYS_NS = (100.0, 500.0, 2000.0, 10_000.0)
LOSSES = (1e-5, 1e-4, 1e-3, 1e-2)
LIMIT = 0.03

GBPS = (25, 100, 400)
FAN_INS = (2, 4, 8, 16, 32)
SIZES = (64_000, 256_000, 1_000_000, 4_000_000)
BUFFERS = (256_000, 1_000_000, 8_000_000)
MOST = 32_000_000
"""Of an incast: go-back-N takes minutes for more."""
MARGIN = 0.01


def flows(packets: int, seed: int) -> int:
    """Prints the rows of single flows. Return: how many are wrong."""
    print("rate_Gbps  delay_ns     loss  go_back_n  selective   form    off   (shares of the line)")
    wrong, worst = 0, 0.0
    for rate, delay, loss in itertools.product(RATES, DELAYS_NS, LOSSES):
        h = hardware("selective_repeat", rate, delay)
        ideal = packets * packet_ns(h)
        form = selective_ns(h, packets, loss)
        slow = lossy_flow(hardware("go_back_n", rate, delay), packets, loss, seed=seed)
        fast = lossy_flow(h, packets, loss, seed=seed)
        off = fast.time_ns / form - 1
        bad = off > LIMIT or -off > LIMIT or fast.time_ns > slow.time_ns
        wrong += bad
        worst = max(worst, abs(off))
        print(
            f"{rate / 1e9:9.0f} {delay:9.0f} {loss:8.0e} {ideal / slow.time_ns:10.3f}"
            f" {ideal / fast.time_ns:10.3f} {ideal / form:6.3f} {off:+6.1%}{'  WRONG' if bad else ''}"
        )
    print(f"{len(RATES) * len(DELAYS_NS) * len(LOSSES)} points, {wrong} wrong, the worst {worst:.1%} off")
    return wrong


def incasts() -> int:
    """Likewise of incasts."""
    print("rate_Gbps  senders     size   buffer    ideal_us go_back_n_us selective_us  ratio  timeouts  again-lost")
    ratios, wrong = [], 0
    for values in itertools.product(GBPS, FAN_INS, SIZES, BUFFERS):
        case = Incast(*values)
        if not case.buffer < case.fan_in * case.size <= MOST:
            continue
        slow, fast = (case.run(recovery) for recovery in ("go_back_n", "selective_repeat"))
        bad = fast.time_ns > (1 + MARGIN) * slow.time_ns + 2 * case.round_trip_ns
        wrong += bad
        ratios.append(fast.time_ns / slow.time_ns)
        print(
            f"{case.gbps:9.0f} {case.fan_in:8d} {case.size:8d} {case.buffer:8d} {case.ideal_ns / 1000:11.0f}"
            f" {slow.time_ns / 1000:12.0f} {fast.time_ns / 1000:12.0f} {ratios[-1]:6.2f}"
            f" {slow.timeouts:4d} {fast.timeouts:4d} {fast.retransmitted - fast.lost:12d}{'  WRONG' if bad else ''}"
        )
    print(f"{len(ratios)} incasts, {wrong} wrong, selective repeat takes {min(ratios):.2f} to {max(ratios):.2f} of it")
    return wrong


def reordering(packets: int, seed: int) -> int:
    """Likewise of flows whose packets overtake each other: without `sack` and `loss`, with one of them, with both."""
    settings = {"naks": "", "sack": ", sack: {}", "loss": ", loss: {}", "both": ", sack: {}, loss: {}"}
    settings["any"] = settings["both"] + ", ordering: any"
    print("rate_Gbps  late_us     loss " + "".join(f"{name + '_us':>9} again answers" for name in settings))
    wrong = 0
    for rate, trips, loss in itertools.product(RATES[::2], (0.0, 0.3, 0.8, 3.0), (0.0, 1e-3, 1e-2)):
        jitter_ns = trips * idle_ns(hardware("selective_repeat", rate, 500))
        took = {}
        for name, keys in settings.items():
            h = hardware("selective_repeat", rate, 500, keys)
            took[name] = lossy_flow(h, packets, loss, jitter_ns=jitter_ns, seed=seed)
        least = min(t.time_ns for t in took.values())
        most = max(took["naks"].answers / 3, 1.2 * packets / 16)
        bad = any(
            took[name].time_ns > (1 + MARGIN) * least + 2 * idle_ns(h) or took[name].answers > most
            for name in ("both", "any")
        )
        wrong += bad
        cells = (f"{t.time_ns / 1000:9.1f} {t.retransmitted:5d} {t.answers:7d}" for t in took.values())
        print(f"{rate / 1e9:9.0f} {jitter_ns / 1000:8.2f} {loss:8.0e} {''.join(cells)}{'  WRONG' if bad else ''}")
    print(f"36 flows, {wrong} wrong")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove recovery", description=__doc__)
    parser.add_argument("--packets", type=int, default=20_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--only", choices=("flows", "incasts", "reordering"))
    options = parser.parse_args()
    wrong = 0
    if options.only in (None, "flows"):
        wrong += flows(options.packets, options.seed)
    if options.only in (None, "incasts"):
        wrong += incasts()
    if options.only in (None, "reordering"):
        wrong += reordering(options.packets, options.seed)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
