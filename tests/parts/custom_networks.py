"""Drawn networks of no particular shape: connected switches, hosts with one cable or several, some that forward."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from topologies import Fabric, build


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    """Parameters of a custom topology."""
    switches = [f"s{i}" for i in range(draw(st.integers(1, 6)))]
    pairs = {(switches[draw(st.integers(0, i - 1))], switches[i]) for i in range(1, len(switches))}
    if len(switches) > 1:
        two = st.lists(st.sampled_from(switches), min_size=2, max_size=2, unique=True).map(lambda p: tuple(sorted(p)))
        pairs |= set(draw(st.lists(two, max_size=4)))
    nodes: dict[str, Any] = dict.fromkeys(switches, "switch")
    hosts: list[str] = []
    for i in range(draw(st.integers(1, 5))):
        at = draw(st.lists(st.sampled_from(switches + hosts), min_size=1, max_size=3, unique=True))
        if not set(at) & set(switches):  # a host behind hosts that do not forward would be cut off
            at.append(switches[0])
        nodes[f"x{i}"] = {"kind": "host", "forwards": draw(st.booleans())}
        hosts.append(f"x{i}")
        pairs |= {(f"x{i}", other) for other in at}
    named = [f"{a}-{b}" for a, b in sorted(pairs)]
    cables: list[Any] = [{"between": name, "rate_bps": 1e9} if draw(st.booleans()) else name for name in named]
    return {"nodes": nodes, "cables": cables, "classes": draw(st.sampled_from([{}, {"uplink": {"delay_ns": 7.0}}]))}


def networks() -> st.SearchStrategy[Fabric]:
    return descriptions().map(lambda params: build("custom", params))
