"""Faults of the forwarding on two fabrics, with the fast path and with every frame through Open vSwitch."""

from __future__ import annotations

from contextlib import ExitStack

from tests.parts.fault_cases import CASES
from tests.parts.faulty_fabric import FaultyFabric, Outcome, faulty_fabric

NAMES = ("missing_entry", "shadow_rule", "loop", "dead_ecmp_member", "partial_write")


def hops(f: FaultyFabric) -> int:
    """Frame hops by the fast path so far."""
    return int(f.fabricd.request("counters")["fidelity"].get("fast_hops", 0))


def stale(f: FaultyFabric) -> int:
    """Times that the cache was wrong, or that tables changed while nobody was waited for."""
    counted = f.fabricd.request("counters")["fidelity"]
    return int(counted["fast_stale"] + counted["tables_changed"])


class BothWays:
    """The same faults and flows on both, step by step."""

    def __init__(self, without: FaultyFabric, with_it: FaultyFabric) -> None:
        self.without, self.with_it = without, with_it

    def measure(self, name: str) -> tuple[tuple[Outcome, Outcome], tuple[Outcome, Outcome], tuple[Outcome, Outcome]]:
        """Before, with and after a fault, each (every frame through Open vSwitch, with the fast path)."""
        case = CASES[name]
        both = self.without, self.with_it

        def measured() -> tuple[Outcome, Outcome]:
            without, with_it = (f.measure(case.flows) for f in both)
            return without, with_it

        before = measured()
        ids = [f.inject(case.fault) for f in both]
        faulty = measured()
        for f, own in zip(both, ids, strict=True):
            f.heal(own)
        return before, faulty, measured()


def two_fabrics(stack: ExitStack, spines: int) -> BothWays:
    """Their tables are the same, so the flows of one are those of the other."""
    off, on = (
        stack.enter_context(faulty_fabric(spines, more=f"control: {{fast_path: {value}}}\n"))
        for value in ("off", "{sample: 64}")
    )
    return BothWays(off, on)
