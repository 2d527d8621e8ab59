"""A topology in a line: its parameters, or of a custom network how much of what it has."""

from __future__ import annotations

from testbed.fabric.inventory import topology_text
from topologies import build, in_words


def test_a_custom_network_is_told_by_what_it_has_and_others_by_their_parameters() -> None:
    nodes = {"a": "host", "b": {"kind": "host", "forwards": True}, "s": "switch"}
    network = build("custom", {"nodes": nodes, "cables": ["a-s", "b-s", "a-b"]})
    assert topology_text("custom", network.params) == "custom hosts=2 switches=1 cables=3"
    assert (
        topology_text("torus", build("torus", {"dims": [4, 4], "direct": True}).params) == "torus dims=4x4 direct=true"
    )
    assert in_words("ring", build("ring", {"nodes": 3}).params) == {"nodes": 3}
