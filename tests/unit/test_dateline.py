"""The dateline: no circle of buffers can wait for each other, with it; and there are circles without it."""

from __future__ import annotations

import networkx as nx
import pytest

from controllers.routing.dateline import DSCP, DSCP_ACROSS
from tests.parts.channels import dependencies, ways
from topologies import build

GRIDS = [
    ("ring", {"nodes": 3}), ("ring", {"nodes": 4}), ("ring", {"nodes": 7}), ("torus", {"dims": [4, 4]}),
    ("torus", {"dims": [3, 5]}), ("torus", {"dims": [2, 4]}), ("torus", {"dims": [3, 3, 3]}),
    ("ring", {"nodes": 4, "direct": True}), ("torus", {"dims": [3, 4], "direct": True}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "params"), GRIDS)
def test_channels_never_wait_in_a_circle(kind: str, params: dict) -> None:
    fabric = build(kind, params)
    assert nx.is_directed_acyclic_graph(dependencies(fabric, dateline=True))


@pytest.mark.parametrize(("kind", "params"), [g for g in GRIDS if g[1] not in ({"nodes": 3}, {"dims": [3, 3, 3]})])
def test_without_the_dateline_they_do(kind: str, params: dict) -> None:
    """(A ring of three has no way of two hops in one direction.)"""
    assert not nx.is_directed_acyclic_graph(dependencies(build(kind, params), dateline=False))


def test_frames_reach_their_host_in_the_class_that_they_began_in_or_the_other() -> None:
    for way in ways(build("torus", {"dims": [4, 4]}), dateline=True):
        assert {dscp for _, _, dscp in way} <= {DSCP, DSCP_ACROSS}
        assert way[-1][2] in (DSCP, DSCP_ACROSS)
