"""Where traffic goes: rails, and uplinks that are narrower than what is sent over them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from testbed.base.units import format_rate
from testbed.checklist.exchange import Exchange
from testbed.checklist.finding import Case, Found, check, over_network, size, some
from topologies.graph.fabric import EMBEDDED
from topologies.kinds import DIMENSION_ORDER

SENDS_MORE = 2.0
"""Times what a group in a scale-up domain sends: from there on another one should rather be in it."""
MOST = 1.05
"""Demand over capacity of uplinks that nobody need be told of."""


@check("rails", "messages between servers stay on their rail")
def rails(case: Case) -> Found:
    if case.fabric.kind != "rail":
        return
    gpu = {nic.rank: nic.gpu for nic in case.fabric.nics}
    told: set[str] = set()
    for one in case.exchanges:
        if one.group in told:  # the other tuples of a group are alike
            continue
        network = over_network(case, one)
        crossing = [(a, b) for a, b in network if gpu[a] != gpu[b]]
        if not crossing or one.everyone or one.drawn:
            continue
        told |= {one.group} - {""}
        share = sum(one.sent[p] for p in crossing) / sum(one.sent[p] for p in network)
        said = some(f"rank {a} on rail {gpu[a]} -> rank {b} on rail {gpu[b]}" for a, b in crossing[:1])
        what = f"{one.name}: {share:.0%} of what goes between servers crosses rails, over the spines ({said})"
        yield what, one.path, (
            "let the ranks that talk sit on one rail, or in one server; an order of ranks in which neighbours do, "
            "is the default where `ranks` is left out"
        )  # fmt: skip


@check("placement", "groups that send most stay in scale-up domains")
def placement(case: Case) -> Found:
    """Whether a group leaves its server that could stay, while one that sends less, and no more often, is inside."""
    largest = max(map(len, case.fabric.scale_up), default=0)
    for _, together in groupby(case.exchanges, key=lambda one: one.path[:2]):
        inside: dict[str, float] = {}
        outside: dict[str, float] = {}
        where: dict[str, tuple[str | int, ...]] = {}
        times: dict[str, int] = {}
        for one in together:
            if one.group and one.sent and not one.drawn and 1 < len(one.ranks) <= largest:
                of = outside if over_network(case, one) else inside
                of[one.group] = max(of.get(one.group, 0), sum(one.sent.values()) / len(one.ranks))
                where[one.group], times[one.group] = one.path, one.times
        for name, nbytes in outside.items():
            others = [n for n in inside if n not in outside and times[n] <= times[name]]
            if less := [n for n in others if SENDS_MORE * inside[n] < nbytes]:
                other = min(less, key=inside.__getitem__)
                what = (
                    f"a rank of group {name!r} sends {size(nbytes)} in the group, which leaves the scale-up domain; of "
                    f"group {other!r}, which stays in it, {size(inside[other])}"
                )
                yield what, where[name], f"let {name!r} have the GPUs of a server, and {other!r} go along the rails"


@check("uplinks", "uplinks carry what is sent over them")
def uplinks(case: Case) -> Found:
    if case.fabric.kind in DIMENSION_ORDER:
        return
    rates = {c.name: case.basis.hardware.cable(case.fabric, c)[0] for c in case.fabric.cables}
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
            cables = Counter(map(int, up[switches[0]])).most_common()
            one = max(some_of_them, key=lambda one: sum(demands(case, [one], rates, all_of_it=True).values()))
            what = (
                f"{one.name}: ranks at {some(switches)} send {ratio:g} x what their uplinks carry "
                f"({' and '.join(f'{many} x {format_rate(rate)}' for rate, many in cables)})"
            )
            yield what, one.path[:2], (
                "expect queues or pauses there: more spines in fabric.topology, faster cables in fabric.cables, "
                "or ranks that stay below one switch"
            )  # fmt: skip


def demands(
    case: Case, together: Iterable[Exchange], rates: dict[str, float], *, all_of_it: bool = False
) -> dict[str, float]:
    """Bit/s that the ranks at each switch send to other switches, each at its line rate, by the share that leaves.

    `all_of_it`: the bytes instead.
    """
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
        rate = rates[case.fabric.cable_at[nic, 1].name]
        found[switch] += leaving[rank] if all_of_it else rate * leaving[rank] / sent[rank]
    return dict(found)


def switches(case: Case, way: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Those on a way, in order, without bridges inside NICs."""
    for _, node in way:
        switch = case.fabric.switch_by_name.get(node)
        if switch is not None and switch.role not in EMBEDDED:
            yield switch.name
