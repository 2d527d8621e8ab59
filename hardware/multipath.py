"""How packets choose among paths: in their NIC, and in adaptive switches; policies, one entry each.

The experiment file is validated against these entries, fabricd is configured from them, and the table of
docs/spraying.md is made from them. The policies themselves are in fabricd/multipath/<name>.c, and in
fabricd/switch/adaptive.c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hardware.cc import Parameter, Parametrized, Setting

ENTROPIES = tuple(1 << k for k in range(15))
"""How many a queue pair may have: the 14 bits of RoCE's range of source ports."""


@dataclass(frozen=True)
class Policy(Parametrized):
    """`hears`: it goes by marks.  `one_path`: its packets take one path for long, not all of them at once."""

    hears: bool = False
    one_path: bool = False

    def in_fabricd(self, entropies: int, values: Mapping[str, float]) -> dict[str, object]:
        """`multipath` of a NIC in fabricd's configuration."""
        return {"policy": self.name, "entropies": entropies, "params": self.keyed(values)}


def _quarters(s: Setting) -> tuple[int, int, float]:
    """A quarter and three quarters of the bandwidth-delay product: marks have to come before a window's worth waits."""
    return math.ceil(s.network_bdp_bytes / 4), math.ceil(s.network_bdp_bytes * 3 / 4), 1.0


def _bdp_packets(s: Setting) -> float:
    return math.ceil(s.bdp_bytes / s.mtu)


POLICIES: dict[str, Policy] = {
    p.name: p
    for p in (
        Policy(
            "round",
            "each entropy in turn, in another order each time round",
            "UEC 1.0, 3.6.16.3; UecMpOblivious of htsim",
        ),
        Policy("random", "an entropy drawn for each packet", "packet spraying over hashes"),
        Policy(
            "reps",
            "entropies of unmarked acknowledgements once more, the oldest first, otherwise random ones",
            "Bonato et al., REPS, 2025; UecMpReps of htsim",
            (
                Parameter("buffer", "number", 8, "entropies that wait to be used once more", least=1, most=64),
                Parameter("freeze_on", "choice", "loss", "what shows that a path has failed: any loss, or a timeout",
                          choices=("loss", "timeout")),
                Parameter("freeze", "time", 10e6, "then none but known ones are used for so long"),
                Parameter("explore", "number", _bdp_packets, "packets that then take random ones", most=1e6),
            ),
            marks=_quarters,
            hears=True,
        ),
        Policy(
            "bitmap",
            "in turn, but one that was marked or lost is passed over",
            "UEC 1.0, 3.6.16.4; UecMpBitmap of htsim",
            (
                Parameter("mark", "number", 1, "times that a mark has an entropy passed over", most=255),
                Parameter("loss", "number", 4, "and a loss", most=255),
                Parameter("most", "number", 15, "times that are remembered at most", least=1, most=255),
                Parameter("saturated", "number", 0.5, "with more than this share marked none is passed over", most=1),
            ),
            marks=_quarters,
            hears=True,
        ),
        Policy(
            "plb",
            "one entropy, and another after round trips with many marks",
            "Qureshi et al., SIGCOMM 2022; Linux's tcp_plb.c",
            (
                Parameter("threshold", "number", 0.5, "share of marks that makes a round trip congested", most=1),
                Parameter("rounds", "number", 12, "congested round trips after which it moves", least=1, most=1e6),
                Parameter("idle_rounds", "number", 3, "and where nothing is under way (0: never)", most=1e6),
                Parameter("suspend", "time", 60e9, "after a timeout it stays for once to twice so long"),
            ),
            hears=True,
            one_path=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class PortPolicy(Parametrized):
    """How an adaptive switch takes one of several ports. `looks`: it goes by what stands in queues."""

    looks: bool = True

    def in_fabricd(self, values: Mapping[str, float]) -> dict[str, object]:
        """`adaptive` of a switch in fabricd's configuration, as far as it is about the policy."""
        return {"policy": self.name, **({"params": self.keyed(values)} if self.parameters else {})}


PORT_POLICIES: dict[str, PortPolicy] = {
    p.name: p
    for p in (
        PortPolicy("two_choices", "of two that are drawn the one that is free first", "Mitzenmacher, 1996"),
        PortPolicy("shortest", "of all the one that is free first", ""),
        PortPolicy("round_robin", "one after the other", "", looks=False),
        PortPolicy("random", "any", "", looks=False),
    )
}
