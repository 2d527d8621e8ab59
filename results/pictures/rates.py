"""Rates of queue pairs over time: bytes sent, in windows that are whole sample periods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.figures.values import amount
from results.pictures.drawing import PlotError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from results.store.load import Run

Pair = tuple[int, int, int]
"""Rank, number of the queue pair, peer."""
WINDOWS = 200
FRAMES = 20
"""Of which a window in which rates are taken has room for at least so many: one more or less is then a twentieth."""


@dataclass(frozen=True)
class Rates:
    """`rates` in bit/s, a value for each window between two `edges` (ns); `inside`: those of scale-up domains.

    `sent_again`: packets, and which share of all that is.
    """

    edges: NDArray[np.float64]
    rates: dict[Pair, NDArray[np.float64]]
    inside: set[tuple[int, int]]
    left_out: int
    about: str
    sent_again: dict[tuple[int, int], tuple[int, float]]

    @property
    def slowest(self) -> list[Pair]:
        """All pairs by their rate of new payload while they are under way; of equals (to a twentieth of the fastest)
        first the one that sends most again."""
        new = {who: self._new(who) for who in self.rates}
        unit = max(new.values(), default=0.0) / 20 or 1.0
        return sorted(self.rates, key=lambda who: (round(new[who] / unit), -self._again(who)[0], who))

    def _new(self, who: Pair) -> float:
        """Mean rate from the first to the last byte."""
        import numpy as np

        (some,) = np.nonzero(self.rates[who])
        under_way = self.rates[who][some[0] : some[-1] + 1] if len(some) else self.rates[who]
        return float(under_way.mean()) * (1 - self._again(who)[1])

    def _again(self, who: Pair) -> tuple[int, float]:
        return self.sent_again.get(who[:2], (0, 0.0))

    def named(self, who: Pair) -> str:
        """`rank 6 to 0, QP 16 (615 packets sent again)`."""
        rank, qp, peer = who
        more = ["scale-up"] if who[:2] in self.inside else []
        more += [f"{again} packets sent again"] if (again := self._again(who)[0]) else []
        return f"rank {rank} to {peer}, QP {qp}" + (f" ({', '.join(more)})" if more else "")


def of_pairs(run: Run) -> Rates | None:
    """The rates of a sampled run; None if nothing was sent. Raises StoreError, PlotError.

    Queue pairs inside a scale-up domain are left out if others use the network.
    """
    import numpy as np

    sent = run.series("qp_sent")
    if sent.empty:
        return None
    window, why = _window_ns(run, float(sent["time_ns"].max()))
    edges = np.arange(0, sent["time_ns"].max() + window, window)
    pairs: list[tuple[Any, pd.DataFrame]] = list(sent.groupby(["rank", "qp", "peer"]))
    inside = _scale_up(run)
    network = [(who, one) for who, one in pairs if who[:2] not in inside]
    left_out = len(pairs) - len(network) if network else 0
    rates = {who: _rates(one, edges) * 8e9 / window for who, one in network or pairs}
    counted = zip(*(run.qps[key] for key in ("rank", "qp", "retransmitted", "tx_packets")), strict=True)
    again = {(int(rank), int(qp)): (int(n), n / packets) for rank, qp, n, packets in counted if n}
    return Rates(edges, rates, inside, left_out, f"each step: the mean over {window / 1000:g} us, {why}", again)


def _scale_up(run: Run) -> set[tuple[int, int]]:
    """Rank and number of the queue pairs that stay inside a server."""
    inside = run.qps[run.qps["path"] == "scale_up"]
    return set(zip(inside["rank"], inside["qp"], strict=True))


def _window_ns(run: Run, end_ns: float) -> tuple[float, str]:
    """A whole number of sample periods: enough for FRAMES frames at the fastest cable's rate, and few to draw.

    Returns also why it is as long, for users who have asked for shorter samples.
    """
    if "measure" not in run.experiment:
        raise PlotError("its experiment.yaml is missing: nobody knows how often it was sampled")
    period, _ = amount(run.experiment["measure"]["sample"]) or (1.0, "ns")
    frame_ns = run.experiment["fabric"]["nic"]["mtu"] * 8e9 / run.fastest_bps if run.fastest_bps else 0
    for_frames, for_windows = math.ceil(FRAMES * frame_ns / period), math.ceil(end_ns / WINDOWS / period)
    if max(for_frames, for_windows) <= 1:
        return period, "as sampled"
    why = f"in which a cable carries {FRAMES} frames" if for_frames >= for_windows else f"{WINDOWS} in all"
    return period * max(for_frames, for_windows), why


def _rates(sent: pd.DataFrame, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes in each window: between two rows the count is that of the earlier one."""
    import numpy as np

    counts = np.concatenate(([0.0], sent["bytes"].to_numpy(dtype=float)))
    return np.diff(counts[np.searchsorted(sent["time_ns"].to_numpy(), edges, side="right")])
