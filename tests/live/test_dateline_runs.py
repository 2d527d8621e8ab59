"""A deadlock of a ring, and what keeps it going: whole runs."""

from __future__ import annotations

import pytest

from testbed.base.errors import UserError
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.faults import Injection
from testbed.inject.live import put_in, take_out
from testbed.operate.carry_out import config, rollback
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import flows_of
from testbed.run.outcome import RunFailed
from testbed.run.run import run

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


def test_a_live_fabric_loses_its_dateline_and_gets_it_back() -> None:
    """By a fault, and by an operator: what Open vSwitch then holds."""
    with Lab.up(loads("name: ring\nfabric: {topology: {ring: {nodes: 4}}}\n")) as lab:
        site = Site.of(lab)

        def changing() -> int:
            return sum("ip_dscp" in flow for s in lab.fabric.switches for flow in flows_of(site, s.name))

        right = changing()
        assert right > 0
        name = put_in(lab, Injection.of({"fault": "dateline_off", "on": "all"}))
        assert changing() == 0
        config(site, ["route", "dateline", "on"])
        assert changing() == right
        rollback(site, None)
        assert changing() == 0
        take_out(lab, name)
        config(site, ["route", "dateline", "off"])
        assert changing() == 0
        rollback(site, None)
        assert changing() == right


def test_a_dateline_that_was_never_there_can_be_switched_on() -> None:
    with Lab.up(loads("name: ring\nfabric: {topology: {ring: {nodes: 4}}}\ncontrol: {dateline: false}\n")) as lab:
        site = Site.of(lab)
        assert not any("ip_dscp" in flow for flow in flows_of(site, "sw0"))
        config(site, ["route", "dateline", "on"])
        assert any("ip_dscp" in flow for flow in flows_of(site, "sw0"))


def test_the_fault_ends_in_a_deadlock(tmp_path) -> None:
    with pytest.raises(RunFailed) as failed:
        run(loads(_ring("true", "null") + "inject: [{fault: dateline_off, on: all}]\n"), tmp_path / "run")
    assert "deadlock" in failed.value.what
