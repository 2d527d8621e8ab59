"""The dateline: no circle of buffers can wait for each other, with it; and there are circles without it."""

from __future__ import annotations

import networkx as nx
import pytest
from channels import dependencies, ways

from controllers.dateline import DSCP, DSCP_ACROSS
from testbed.errors import UserError
from testbed.run import RunFailed, run
from testbed.spec import loads
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


RING = """
name: circle
fabric:
  topology: {ring: {nodes: 4}}
  switch: {buffer: 2MB, watchdog: WATCHDOG}
  nic: {timeout: 400us}
control: {dateline: DATELINE}
workload:
  - flows: [{from: 0, to: 2, size: 4MB}, {from: 1, to: 3, size: 4MB}, {from: 2, to: 0, size: 4MB}, {from: 3, to: 1, size: 4MB}]
"""  # noqa: E501


def _ring(dateline: str, watchdog: str) -> str:
    return RING.replace("DATELINE", dateline).replace("WATCHDOG", watchdog)


def test_a_deadlock_ends_the_run_and_names_its_ports(tmp_path) -> None:
    with pytest.raises(RunFailed) as failed:
        run(loads(_ring("false", "null")), tmp_path / "run")
    assert isinstance(failed.value, UserError)
    for switch in ("sw0", "sw1", "sw2", "sw3"):
        assert f"{switch} port" in failed.value.what
    assert "deadlock" in failed.value.what and "dateline" in failed.value.hint


def test_the_dateline_or_a_watchdog_keeps_it_going(tmp_path) -> None:
    across = run(loads(_ring("true", "null")), tmp_path / "across")
    assert not across.counters["drops"] and across.counters["pause_rx"] > 0
    broken = run(loads(_ring("false", "{detect: 100us, restore: 100us}")), tmp_path / "broken")
    assert broken.counters["drops"]["watchdog"] > 0
