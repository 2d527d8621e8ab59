"""A deadlock of a ring, and what keeps it going: whole runs."""

from __future__ import annotations

import pytest

from testbed.base.errors import UserError
from testbed.experiment import loads
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
