"""Targets name parts of a fabric, and a wrong one says what is there."""

from __future__ import annotations

import pytest

from topologies import TopologyError, build
from topologies.graph.targets import (
    AllTarget,
    CableTarget,
    ControllerTarget,
    FlowTarget,
    NicTarget,
    PortTarget,
    SwitchTarget,
    resolve,
)

RAIL = build("rail", {"servers": 4, "gpus": 2})
TORUS = build("torus", {"dims": [3, 3]})


def test_each_form_finds_its_part() -> None:
    cable = RAIL.cable("h0.0-rail0")
    assert resolve(RAIL, "cable:h0.0-rail0") == resolve(RAIL, "cable:rail0-h0.0") == CableTarget(cable)
    assert resolve(RAIL, "port:rail0:1") == PortTarget(RAIL.switches[0], 1, cable)
    assert resolve(RAIL, "nic:3") == NicTarget(RAIL.nic_by_name["h1.1"])
    assert resolve(RAIL, "switch:spine0") == SwitchTarget(RAIL.switch_by_name["spine0"])
    assert resolve(RAIL, "flow:0->7") == FlowTarget(RAIL.nics[0], RAIL.nics[7])
    assert resolve(RAIL, "flow: 0 -> 7") == FlowTarget(RAIL.nics[0], RAIL.nics[7])
    assert resolve(RAIL, "controller") == ControllerTarget()
    assert resolve(RAIL, "all") == AllTarget(RAIL.cables)


@pytest.mark.parametrize("fabric", [RAIL, TORUS], ids=["rail", "torus"])
def test_the_text_of_a_target_finds_it_again(fabric) -> None:  # type: ignore[no-untyped-def]
    texts = ["controller", "all", "flow:1->0", "nic:2"]
    texts += [f"cable:{c.name}" for c in fabric.cables]
    texts += [f"switch:{s.name}" for s in fabric.switches]
    texts += [f"port:{s.name}:{p}" for s in fabric.switches for p in range(1, s.ports + 1)]
    for text in texts:
        assert str(resolve(fabric, text)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cabel:h0.0-rail0", "there is no such target (did you mean cable? cable:A-B, port:SWITCH:N"),
        ("h0.0-rail0", "there is no such target (did you mean cable:h0.0-rail0?"),
        ("rail0", "there is no such target (did you mean switch:rail0?"),
        ("h1.0", "there is no such target (did you mean nic:2?"),
        ("nic", "which nic? (write nic:RANK)"),
        ("flow", "which flow? (write flow:RANK->RANK)"),
        ("", "there is no such target"),
        ("all:x", "there is no such target"),
        (
            "cable:h0.0-rail1",
            "did you mean h0.1-rail1? h0.0 has h0.0-rail0; "
            "rail1 has rail1-h0.1, rail1-h1.1, rail1-h2.1, rail1-h3.1, rail1-spine0)",
        ),
        ("cable:h0.0-spine0", "h0.0 has h0.0-rail0; spine0 has spine0-rail0, spine0-rail1)"),
        ("cable:x-rail0", "rail0 has rail0-h0.0, "),
        ("cable:rial0-spine0", "did you mean rail0-spine0?"),
        ("cable:x", "for example h0.0-rail0"),
        ("port:rail0:6", "rail0 has no port 6 (ports 1 to 5)"),
        ("port:rail0:0", "no port 0"),
        ("port:rail0:²", "no port ²"),
        ("port:rail0:-1", "no port -1"),
        ("port:rail0", "port:SWITCH:N, for example port:rail0:1"),
        ("port:raul0:1", "there is no switch raul0 (did you mean rail0? there are rail0, rail1, spine0)"),
        ("port:h0.0:1", "there is no switch h0.0"),
        ("nic:8", "there is no rank 8 (ranks 0 to 7)"),
        ("nic:-1", "there is no rank -1"),
        ("nic:h1.1", "h1.1 is rank 3"),
        ("nic:", "there is no rank"),
        ("nic:" + "9" * 5000, "there is no rank"),
        ("switch:leaf0", "there is no switch leaf0"),
        ("flow:0", "this names no flow (flow:RANK->RANK"),
        ("flow:0->8", "there is no rank 8"),
        ("flow:1->1", "a rank sends nothing to itself"),
    ],
)
def test_a_wrong_target_says_what_is_there(text: str, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        resolve(RAIL, text)
    assert caught.value.key == text
    assert says in str(caught.value)


def test_long_lists_are_cut() -> None:
    wide = build("clos", {"leaves": 40, "spines": 2, "hosts_per_leaf": 1})
    with pytest.raises(TopologyError, match="leaf0, leaf1, .* and 34 more"):
        resolve(wide, "switch:zzz")


def test_the_cable_of_a_nic_with_a_bridge_has_its_hosts_name_too() -> None:
    nodes = {"a": "host", "b": "host", "s": "switch", "t": "switch"}
    fabric = build("custom", {"nodes": nodes, "cables": ["a-s", "b-s", "t-a", "s-t"]})
    for text in ("cable:nic0-t", "cable:a-t", "cable:t-a", "cable:t-nic0"):
        assert str(resolve(fabric, text)) == "cable:t-nic0"
    assert [fabric.named_backwards(name) for name in ("t-a", "t-nic0", "a-t", "nic0-t")] == [False, False, True, True]
    assert str(resolve(build("ring", {"nodes": 3, "direct": True}), "cable:h1-h0")) == "cable:nic0-nic1"
