"""Where traffic goes: rails, and uplinks that are narrower than what is sent over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from testbed.base.units import format_rate
from testbed.checklist.exchanges import Exchange, Pair
from testbed.checklist.finding import Case, Found, check, some
from topologies.graph.fabric import EMBEDDED
from topologies.kinds import DIMENSION_ORDER

MOST = 1.05
"""Demand over capacity of uplinks that nobody need be told of."""


@check("rails", "messages between servers stay on their rail")
def rails(case: Case) -> Found:
    if case.fabric.kind != "rail":
        return
    gpu = {nic.rank: nic.gpu for nic in case.fabric.nics}
    for one in case.exchanges:
        network = over_network(case, one)
        crossing = [(a, b) for a, b in network if gpu[a] != gpu[b]]
        if not crossing or one.everyone or one.drawn:
            continue
        share = sum(one.sent[p] for p in crossing) / sum(one.sent[p] for p in network)
        said = some(f"rank {a} on rail {gpu[a]} -> rank {b} on rail {gpu[b]}" for a, b in crossing[:1])
        what = f"{one.name}: {share:.0%} of what goes between servers crosses rails, over the spines ({said})"
        yield what, one.path, (
            "let the ranks that talk sit on one rail, or in one server; an order of ranks in which neighbours do, "
            "is the default where `ranks` is left out"
        )  # fmt: skip


def over_network(case: Case, one: Exchange) -> list[Pair]:
    """Its pairs that share no scale-up domain."""
    return [pair for pair, n in one.sent.items() if n and not case.hops.in_scale_up(*pair)]


@check("uplinks", "uplinks carry what is sent over them")
def uplinks(case: Case) -> Found:
    if case.fabric.kind in DIMENSION_ORDER:
        return
    rates = {c.name: case.hardware.cable(case.fabric, c)[0] for c in case.fabric.cables}
    up: dict[str, list[float]] = defaultdict(list)
    for cable in case.fabric.cables:
        ends = [case.fabric.switch_by_name.get(end.node) for end in (cable.a, cable.b)]
        for end in ends:
            if end and all(ends) and end.role not in EMBEDDED:
                up[end.name].append(rates[cable.name])
    for _, together in groupby(case.exchanges, key=lambda one: one.path[:2]):
        some_of_them = list(together)
        narrow: dict[float, list[str]] = defaultdict(list)
        for switch, demand in sorted(demands(case, some_of_them, rates).items()):
            if switch in up and demand > MOST * sum(up[switch]):
                narrow[round(demand / sum(up[switch]), 2)].append(switch)
        for ratio, switches in narrow.items():
            cables = up[switches[0]]
            one = some_of_them[0]
            what = (
                f"{one.name}: ranks at {some(switches)} send {ratio:g} x what their uplinks carry "
                f"({len(cables)} x {format_rate(int(cables[0]))})"
            )
            yield what, one.path[:2], (
                "expect queues or pauses there: more spines in fabric.topology, faster cables in fabric.cables, "
                "or ranks that stay below one switch"
            )  # fmt: skip


def demands(case: Case, together: Iterable[Exchange], rates: dict[str, float]) -> dict[str, float]:
    """Bit/s that the ranks at each switch send to other switches, each at its line rate, by the share that leaves."""
    sent: dict[int, int] = defaultdict(int)
    leaving: dict[int, float] = defaultdict(float)
    at: dict[int, str] = {}
    for one in together:
        for a, b in over_network(case, one):
            way = case.hops.between(a, b)
            first = next(switches(case, way))
            at[a] = first
            sent[a] += one.sent[a, b]
            leaving[a] += one.load * one.sent[a, b] * any(s != first for s in switches(case, way))
    found: dict[str, float] = defaultdict(float)
    for rank, switch in at.items():
        nic = case.fabric.nics[rank].name
        found[switch] += rates[case.fabric.cable_at[nic, 1].name] * leaving[rank] / sent[rank]
    return dict(found)


def switches(case: Case, way: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Those on a way, in order, without bridges inside NICs."""
    for _, node in way:
        switch = case.fabric.switch_by_name.get(node)
        if switch is not None and switch.role not in EMBEDDED:
            yield switch.name
