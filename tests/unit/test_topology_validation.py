"""Validation: break a good fabric, and it says what is wrong."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

import topologies
from topologies import KINDS, Cable, End, Fabric, TopologyError, build, validate
from topologies.graph import address

GOOD = build("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 2})
RAIL = build("rail", {"servers": 2, "gpus": 2})
a, b = GOOD.cables[0], GOOD.cables[1]
first, second = GOOD.nics[:2]


def cables(*changed: Cable) -> tuple[Cable, ...]:
    return changed + GOOD.cables[len(changed) :]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(GOOD, nics=GOOD.nics[::-1]), "h3: has rank 3"),
        (replace(GOOD, switches=GOOD.switches[::-1]), "has index"),
        (replace(GOOD, nics=(first, replace(second, name="h0"), *GOOD.nics[2:])), "h0: is the name of two nodes"),
        (replace(GOOD, hosts=(GOOD.hosts[0], replace(GOOD.hosts[1], name="leaf0"), *GOOD.hosts[2:])), "leaf0: is the"),
        (replace(GOOD, hosts=(*GOOD.hosts, GOOD.hosts[0])), "h0: is the name of two hosts"),
        (replace(GOOD, hosts=GOOD.hosts[1:]), "h0: is not among the NICs of its host h0"),
        (replace(RAIL, hosts=(RAIL.hosts[0], replace(RAIL.hosts[1], nics=RAIL.hosts[0].nics))), "is a NIC of two"),
        (replace(GOOD, hosts=(*GOOD.hosts, replace(GOOD.hosts[0], name="h9", nics=("h9",)))), "h9: is no NIC"),
        (replace(RAIL, scale_up=(("h0.0", "h7.7"),)), "h7.7: is no NIC"),
        (replace(RAIL, scale_up=(("h0.0", "h0.1"), ("h0.0", "h1.0"))), "h0.0: is in two scale-up domains"),
        (replace(GOOD, nics=(first, replace(second, ip=first.ip), *GOOD.nics[2:])), "10.0.0.1: is the address of two"),
        (replace(GOOD, nics=(replace(first, ip=IPv4Address("9.0.0.1")), *GOOD.nics[1:])), "lie in 10.0.0.0/8"),
        (replace(GOOD, nics=(replace(first, mac="02:00:00:00:00:01"), *GOOD.nics[1:])), "has MAC"),
        (replace(GOOD, cables=cables(Cable(a.a, b.a), b)), "has no switch at either end"),
        (replace(GOOD, cables=cables(Cable(a.a, End("leaf0", 9)))), "ends in port 9 of leaf0"),
        (replace(GOOD, cables=cables(Cable(a.a, End("leaf9", 1)))), "h0-leaf9: has no switch"),
        (replace(GOOD, cables=cables(Cable(a.a, b.b))), "leaf0:2: has two cables in one port"),
        (replace(GOOD, cables=(*GOOD.cables, Cable(a.b, a.a))), "h0-leaf0: is cabled twice"),
        (replace(GOOD, cables=GOOD.cables[1:]), "no cable is plugged in"),
        (
            replace(GOOD, cables=cables(Cable(End("leaf0", 1), End("leaf0", 2)))),
            "leaf0-leaf0: joins a switch to itself",
        ),
        (replace(GOOD, hosts=(), nics=(), switches=(), cables=()), "has no NIC"),
    ],
)
def test_validation_names_what_is_wrong(broken: Fabric, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        validate(broken)
    assert says in str(caught.value)


def test_what_is_built_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["star"], "build", lambda self: replace(GOOD, cables=GOOD.cables[1:]))
    with pytest.raises(TopologyError, match="no cable is plugged in"):
        build("star", {"hosts": 2})


def test_validation_finds_a_fabric_in_two_parts() -> None:
    # Two stars side by side, every port cabled.
    left = build("star", {"hosts": 2})
    nics = tuple(
        replace(n, name=f"x{n.rank}", host=f"x{n.rank}", rank=n.rank + 2, ip=n.ip + 8, mac=address.mac(n.ip + 8))
        for n in left.nics
    )
    hosts = tuple(replace(h, name=f"x{h.name[1:]}", nics=(f"x{h.name[1:]}",)) for h in left.hosts)
    wires = tuple(Cable(End(f"x{i}", 1), End("sw1", i + 1)) for i in range(2))
    both = replace(
        left,
        hosts=left.hosts + hosts,
        nics=left.nics + nics,
        switches=(*left.switches, replace(left.switches[0], name="sw1", index=1)),
        cables=left.cables + wires,
    )
    with pytest.raises(TopologyError, match="not connected to the rest: 2 parts"):
        validate(both)


def test_the_package_offers_what_other_layers_use() -> None:
    assert topologies.build is build
    assert set(KINDS) == {"rail", "clos", "torus", "ring", "star", "custom"}
