"""Flows that a bridge is given without a library are what ovs-ofctl makes of them, or it is said why not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from controllers.openflow import straight
from testbed.base.errors import MachineError
from testbed.fabric.ovs import Bridge, OpenVSwitch
from tests.parts.own_switch import own_switch

WORDS = (
    "dl_dst=02:00:0a:00:00:01,actions=output:2",
    "dl_dst=02:00:0a:00:00:02,actions=output:1",
    "in_port=3,actions=in_port",
)
FLOWS = [straight.to_mac("02:00:0a:00:00:01", 2), straight.to_mac("02:00:0a:00:00:02", 1), straight.back(3)]


def test_they_are_as_ovs_ofctl_makes_them() -> None:
    with own_switch() as switch:
        switch.ovs.finish(switch.ovs.create([Bridge("ours", 1, ()), Bridge("theirs", 2, ())]))
        switch.ovs.finish([switch.ovs.add_flows("ours", FLOWS)])
        switch.run("ovs-ofctl", "-OOpenFlow13", "add-flows", "theirs", "-", input="\n".join(WORDS) + "\n")
        shown = [
            sorted(switch.run("ovs-ofctl", "-OOpenFlow13", "--no-stats", "dump-flows", name).splitlines())
            for name in ("ours", "theirs")
        ]
    assert len(shown[0]) == len(WORDS)
    assert shown[0] == shown[1]


def test_what_a_bridge_refuses_is_said() -> None:
    with own_switch() as switch:
        switch.ovs.finish(switch.ovs.create([Bridge("ours", 1, ())]))
        with pytest.raises(MachineError, match=r"flow 2 is refused \(OpenFlow's error 2, 4\)"):  # a bad port
            switch.ovs.finish(
                [switch.ovs.add_flows("ours", [FLOWS[0], straight.to_mac("02:00:0a:00:00:01", 0xFFFFFF01)])]
            )
        with pytest.raises(MachineError, match="bridge none does not answer"):
            switch.ovs.add_flows("none", FLOWS)


def _hangs_up(connection: socket.socket) -> None:
    connection.recv(1 << 16)


def _asks_before_it_answers(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(bytes.fromhex("0402000a000000070102"))  # an echo request, in two pieces
    assert connection.recv(1 << 16) == bytes.fromhex("0403000a000000070102")
    reply = bytes.fromhex("0415000800000000")
    connection.sendall(reply[:5])
    connection.sendall(reply[5:])


@pytest.mark.parametrize(("bridge", "said"), [(_hangs_up, "the connection is closed"), (_asks_before_it_answers, "")])
def test_a_bridge_may_hang_up_or_ask(tmp_path: Path, bridge: Callable[[socket.socket], None], said: str) -> None:
    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            bridge(connection)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sw0.mgmt"))
        listening.listen()
        serving = threading.Thread(target=serve)
        serving.start()
        flows = OpenVSwitch(tmp_path).add_flows("sw0", FLOWS)
        _, errors = flows.communicate(60.0)
        serving.join()
    assert said in errors
    assert flows.returncode == bool(said)
