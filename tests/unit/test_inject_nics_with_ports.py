"""Faults at NICs with several ports: `nic:RANK` is all of the NIC's cables, and forward is away from the NIC."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.faults import CannotInject, Injection
from topologies import Fabric, TopologyError, build
from topologies.graph.targets import resolve

NODES = {"a": "host", "b": "host", "s": "switch", "t": "switch"}
SITES = build("custom", {"nodes": NODES, "cables": ["a-s", "t-a", "b-s", "s-t"]})
TORUS = build("torus", {"dims": [3, 3], "direct": True})


def primitives(fabric: Fabric, **said: Any) -> list[dict[str, Any]]:
    injection = Injection.of(said)
    return injection.fault.primitives(injection.place(fabric))


@pytest.mark.parametrize(
    ("fabric", "cables"),
    [(SITES, {"nic0-s", "t-nic0"}), (TORUS, {"nic0-0-nic0-1", "nic0-2-nic0-0", "nic0-0-nic1-0", "nic2-0-nic0-0"})],
)
def test_a_nic_that_loses_its_cable_loses_all_of_them(fabric: Fabric, cables: set[str]) -> None:
    cut = {p["cable"] for p in primitives(fabric, fault="cable_down", on="nic:0")}
    assert cut == {fabric.cable(name).name for name in cables}


def test_forward_is_from_the_nic_and_from_the_end_that_is_named_first() -> None:
    def ports(on: str, direction: str) -> list[str]:
        (one,) = primitives(SITES, fault="loss", on=on, rate=0.5, direction=direction)
        return list(one["ports"])

    bridge = {SITES.cable_at["nic0", port].other("nic0").node: f"nic0:{port}" for port in (1, 2, 3)}
    assert sorted(ports("nic:0", "forward")) == sorted([bridge["s"], bridge["t"]])
    assert ports("cable:a-t", "forward") == ports("cable:t-a", "backward") == [bridge["t"]]


def test_one_cable_must_be_named_to_swap_it() -> None:
    with pytest.raises(CannotInject) as told:
        primitives(SITES, fault="miswired", on="nic:0", other=1)
    assert (told.value.args[0], told.value.hint) == ("nic:0 has 2 cables", "name one: cable:nic0-s, cable:t-nic0")


def test_a_cable_that_is_not_there_says_which_are_at_its_node() -> None:
    with pytest.raises(TopologyError) as told:
        resolve(SITES, "cable:a-b")
    assert told.value.hint == "a has a-s, a-t; b has b-s"
