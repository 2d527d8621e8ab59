"""A controller that lives and never settles: commands on a live fabric end, say so, and have done what they say.

An application of the user's own sends a flow that its switch refuses: which flows the switch has is not known any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.inject import live
from tests.parts.machine import assert_nothing_left, here, told, wait_until

EXPERIMENT = """
name: unsettled
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}}
control: {reaction: 10us, apps: [mine.py]}
"""
APP = """
from ryu.base import app_manager
from ryu.controller.handler import set_ev_cls
from controllers.apps import PortChanged, SwitchReady


class Mine(app_manager.RyuApp):
    datapaths = []

    @set_ev_cls(SwitchReady)
    def ready(self, ev):
        self.datapaths.append(ev.datapath)

    @set_ev_cls(PortChanged)
    def changed(self, ev):
        for datapath in self.datapaths:
            to = [datapath.ofproto_parser.OFPActionGroup(999)]
            do = [datapath.ofproto_parser.OFPInstructionActions(datapath.ofproto.OFPIT_APPLY_ACTIONS, to)]
            datapath.send_msg(datapath.ofproto_parser.OFPFlowMod(datapath, priority=1, instructions=do))
"""
LATE = "2 s later it is not carried out everywhere: fabricd waits for the controller (process "


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(live, "PATIENCE_S", 2.0)
    (tmp_path / "mine.py").write_text(APP)
    file = tmp_path / "fabric.yaml"
    file.write_text(EXPERIMENT)
    name = json.loads(told("up", str(file), "--json"))["id"]
    try:
        yield name
    finally:
        here("down", name)
        assert_nothing_left(name)


def test_what_nobody_confirms_is_said_and_what_was_done_is_recorded(
    fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*words: str, code: int) -> str:
        done = here(*words, "--fabric", fabric)
        assert done.returncode == code, (done.stdout, done.stderr)
        said = done.stdout + done.stderr
        assert LATE in said
        return said

    def refused() -> bool:
        return "refused a message" in told("show", "logging", "--fabric", fabric)

    # if it asks too late it meets the controller already, and says so
    assert here("inject", "cable_down", "--on", "cable:leaf0-spine0", "--fabric", fabric).returncode in (0, 1)
    wait_until(refused, "the switch refuses a flow")
    assert "f2 is in, but " in late("inject", "loss", "--on", "nic:1", "--rate", "0.5", code=1)
    assert [f["id"] for f in json.loads(told("show", "faults", fabric, "--json"))] == ["f1", "f2"]
    assert "f2: out, but " in late("heal", "f2", code=1)
    assert [f["id"] for f in json.loads(told("show", "faults", fabric, "--json"))] == ["f1"]
    late("config", "interface", "shutdown", "leaf1:3", code=0)
    assert "in force" in told("show", "config", "log", "--fabric", fabric)
    late("config", "rollback", code=0)
    assert "rolled back" in told("show", "config", "log", "--fabric", fabric)

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "settled", interrupted)
    done = here("inject", "loss", "--on", "nic:1", "--rate", "0.5", "--fabric", fabric)
    assert (done.returncode, "interrupted: f3 may be in" in done.stderr) == (130, True)
    assert here("config", "interface", "shutdown", "leaf1:3", "--fabric", fabric).returncode == 130
    assert "in force" in told("show", "config", "log", "--fabric", fabric)
