"""Proof: selective repeat is never slower than go-back-N, and within 3 % of its closed form.

`./setup.sh prove recovery [--packets N] [--seed N]`.  One flow of N packets (default 20,000) over one switch, with what
a default file gives, over a grid of cable rates, delays and losses, under both recoveries.  The closed form is that
of docs/congestion-control.md.
"""

from __future__ import annotations

import argparse
import sys

from tests.parts.recovery_model import hardware, lossy_flow, packet_ns, selective_ns

RATES = (25e9, 100e9, 200e9, 400e9, 800e9)
DELAYS_NS = (100.0, 500.0, 2000.0, 10_000.0)
LOSSES = (1e-5, 1e-4, 1e-3, 1e-2)
LIMIT = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove recovery", description=__doc__)
    parser.add_argument("--packets", type=int, default=20_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    options = parser.parse_args()
    print("rate_Gbps  delay_ns     loss  go_back_n  selective   form    off   (shares of the line)")
    wrong, worst = 0, 0.0
    for rate in RATES:
        for delay in DELAYS_NS:
            for loss in LOSSES:
                h = hardware("selective_repeat", rate, delay)
                ideal = options.packets * packet_ns(h)
                form = selective_ns(h, options.packets, loss)
                slow = lossy_flow(hardware("go_back_n", rate, delay), options.packets, loss, seed=options.seed)
                fast = lossy_flow(h, options.packets, loss, seed=options.seed)
                off = fast.time_ns / form - 1
                bad = off > LIMIT or -off > LIMIT or fast.time_ns > slow.time_ns
                wrong += bad
                worst = max(worst, abs(off))
                print(
                    f"{rate / 1e9:9.0f} {delay:9.0f} {loss:8.0e} {ideal / slow.time_ns:10.3f}"
                    f" {ideal / fast.time_ns:10.3f} {ideal / form:6.3f} {off:+6.1%}{'  WRONG' if bad else ''}"
                )
    print(f"{len(RATES) * len(DELAYS_NS) * len(LOSSES)} points, {wrong} wrong, the worst {worst:.1%} off")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
