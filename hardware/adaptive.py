"""How an adaptive switch takes one of several ports: policies, one entry each.

The experiment file is validated against these entries. The policies themselves are in fabricd/switch/adaptive.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardware.cc import Parametrized


@dataclass(frozen=True)
class Policy(Parametrized):
    """`looks`: it goes by what stands in queues."""

    looks: bool = True

    def in_fabricd(self, values: Mapping[str, float]) -> dict[str, object]:
        """`adaptive` of a switch in fabricd's configuration, as far as it is about the policy."""
        return {"policy": self.name, **({"params": self.keyed(values)} if self.parameters else {})}


POLICIES: dict[str, Policy] = {
    p.name: p
    for p in (
        Policy("two_choices", "of two that are drawn the one that is free first", "Mitzenmacher, 1996"),
        Policy("shortest", "of all the one that is free first", ""),
        Policy("round_robin", "one after the other", "", looks=False),
        Policy("random", "any", "", looks=False),
    )
}
