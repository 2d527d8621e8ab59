"""A star whose frames go by the fast path once it has learned their flows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, Pair, bare_fabric
from tests.parts.timing_model import timed_write

MTU = 4096


@contextmanager
def star(sample: int = 1024, *, hosts: int = 3, hardware: Hardware | None = None, **more: Any) -> Iterator[BareFabric]:
    hardware = hardware or Hardware(timeout_ns=1e9)
    with bare_fabric("star", {"hosts": hosts}, hardware, sample=sample, **more) as f:
        yield f


def rule(f: BareFabric, what: str) -> None:
    """A rule that is met before all others; `{h1}` is the port to h1."""
    ports = {n.name: f.port_to("sw0", n.name) for n in f.fabric.nics}
    f.ofctl("add-flow", f.bridge("sw0"), f"priority=50000,{what.format(**ports)}")


def fast(f: BareFabric) -> dict[str, int]:
    counted = f.counters()["fidelity"]
    names = {"hops": "fast_hops", "checked": "fast_checked", "stale": "fast_stale", "changed": "tables_changed"}
    return {short: counted[name] for short, name in names.items()}


def learn(f: BareFabric, pair: Pair) -> int:
    """Frames until the fast path carries some, in both directions; returns how many writes that took."""
    before = fast(f)["hops"]
    for n in range(1, 500):
        timed_write(pair, 8)
        if fast(f)["hops"] >= before + 4:
            return n
    raise AssertionError(f"not cached: {fast(f)}")
