"""The controller's process on os-ken and on ryu, against real Open vSwitch bridges."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import networkx as nx
import pytest

from controllers.flows import groups
from controllers.routing.routes import routes
from hardware.build import build as build_fabricd
from hardware.client import Fabricd
from hardware.config import Hardware, fabricd_config
from hardware.devices import FENCE_BRIDGE, FENCE_TAP, Devices
from tests.parts.live_fabric import (
    ROOT,
    ControllerProcess,
    FakeFabricd,
    LiveFabric,
    controller,
    live_fabric,
    run,
    wait_until,
)
from tests.parts.own_switch import own_switch, shared
from topologies import Fabric, build

RAIL = build("rail", {"servers": 2, "gpus": 2, "spines": 2})
PODS = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 1, "pods": 2, "cores": 2})
TORUS = build("torus", {"dims": [3, 3]})
RING = build("ring", {"nodes": 5})


@pytest.fixture(scope="session")
def ryu() -> str:
    """The Python of the ryu environment."""
    folder = ROOT / ".venv-ryu"
    subprocess.run([ROOT / "controllers/ryu-env.sh", folder], check=True, env={**os.environ, "PYTHON": sys.executable})
    return str(folder / "bin/python")


@pytest.fixture(params=["os-ken", "ryu"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter with an OpenFlow library, each in turn."""
    return sys.executable if request.param == "os-ken" else str(request.getfixturevalue("ryu"))


@pytest.fixture
def fabricd(tmp_path: Path) -> Iterator[FakeFabricd]:
    server = FakeFabricd(tmp_path / "fabricd.sock")
    yield server
    server.close()


def programmed(fabric: Fabric, down: frozenset[tuple[str, int]] = frozenset()) -> dict[str, int]:
    return {"programmed": len(fabric.switches), "flows": sum(map(len, routes(fabric, down).values()))}


@pytest.mark.parametrize(
    ("fabric", "routing"),
    [(RAIL, "ecmp"), (PODS, "adaptive"), (TORUS, "ecmp")],
    ids=["rail", "pods-adaptive", "torus"],
)
def test_os_ken_and_ryu_install_the_same_flows(fabric: Fabric, routing: str, ryu: str, tmp_path: Path) -> None:
    tables, wanted = [], routes(fabric, routing=routing)
    for python in (sys.executable, ryu):
        with live_fabric(fabric) as live, controller(live, tmp_path, "--routing", routing, python=python) as process:
            assert process.said() == {"programmed": len(wanted), "flows": sum(map(len, wanted.values()))}
            tables.append((live.all_flows(), {s.name: live.groups(s.name) for s in fabric.switches}))
    assert tables[0] == tables[1]
    for switch, flows in wanted.items():
        assert tables[0][0][switch].count("cookie=0x7262") == len(flows)
        assert len(tables[0][1][switch]) == len(groups(flows))


@pytest.mark.parametrize("fabric", [RAIL, PODS, TORUS, RING], ids=["rail", "pods", "torus", "ring"])
def test_open_vswitch_takes_packets_the_shortest_way(fabric: Fabric, tmp_path: Path) -> None:
    hops = dict(nx.all_pairs_shortest_path_length(fabric.graph))
    with live_fabric(fabric) as live, controller(live, tmp_path) as process:
        process.said()
        for a, b in permutations(fabric.nic_by_name, 2):
            path = live.trace(a, b)
            switch, port = path[-1]
            assert port and fabric.cable_at[switch, port].other(switch).node == b, f"{a} to {b}: {path}"
            assert len(path) == hops[a][b] - 1


def test_the_hash_spreads_and_repeats(tmp_path: Path) -> None:
    ways = []
    for _ in range(2):
        with live_fabric(PODS) as live, controller(live, tmp_path) as process:
            process.said()
            ways.append([tuple(s for s, _ in live.trace("h0", "h3", 49152 + i)) for i in range(128)])
    assert ways[0] == ways[1]
    # leaf, spine, core, spine, leaf: every choice of spine and core, and none that takes most of the flows.
    up = Counter((spine, core) for _, spine, core, _, _ in ways[0])
    assert len(up) == 4
    assert min(up.values()) >= 128 / 4 / 2


@pytest.mark.parametrize("fabric", [RAIL, TORUS, RING], ids=["rail", "torus", "ring"])
def test_a_cable_that_fails_is_routed_around(fabric: Fabric, python: str, fabricd: FakeFabricd, tmp_path: Path) -> None:
    cable = next(c for c in fabric.cables if {c.a.node, c.b.node} <= set(fabric.switch_by_name))
    fabricd_is = ("--fabricd", str(fabricd.path))
    with live_fabric(fabric) as live, controller(live, tmp_path, *fabricd_is, python=python) as process:
        process.said()
        before = live.all_flows()
        fabricd.snapshot = live.all_flows

        fabricd.wait_settled(fabricd.cable(fabric, cable.name, up=False, first_id=1))
        after = live.all_flows()
        assert after != before
        # What the switches held at the moment of each answer is what they hold now: nothing was still on its way.
        assert [tables for _, tables in fabricd.settled] == [after, after]
        for a, b in permutations(fabric.nic_by_name, 2):
            path = live.trace(a, b)
            assert not {(cable.a.node, cable.a.port), (cable.b.node, cable.b.port)} & set(path)
            switch, port = path[-1]
            assert port and fabric.cable_at[switch, port].other(switch).node == b

        fabricd.wait_settled(fabricd.cable(fabric, cable.name, up=True, first_id=3))
        assert live.all_flows() == before
        assert process.logged("switches changed") == 2


def test_a_nics_cable_that_fails_is_settled_without_change(fabricd: FakeFabricd, tmp_path: Path) -> None:
    with live_fabric(RAIL) as live, controller(live, tmp_path, "--fabricd", str(fabricd.path)) as process:
        process.said()
        before = live.all_flows()
        fabricd.wait_settled(fabricd.cable(RAIL, "h0.0-rail0", up=False, first_id=7))
        assert live.all_flows() == before


def test_nothing_is_settled_before_every_changed_switch_has_confirmed(fabricd: FakeFabricd, tmp_path: Path) -> None:
    with live_fabric(RING) as live, controller(live, tmp_path, "--fabricd", str(fabricd.path)) as process:
        process.said()
        run("ovs-vsctl", "del-controller", live.bridge("sw0"))
        wait_until(lambda: process.logged("sw0: connection lost") == 1, "the controller to miss sw0")
        events = fabricd.cable(RING, "sw0-sw1", up=False, first_id=1)
        wait_until(lambda: process.logged("switches changed") == 1, "the new routes")
        wait_until(lambda: "output:3" in live.flows("sw1"), "sw1 to be programmed")
        assert fabricd.settled == []
        live.connect(process.port)
        fabricd.wait_settled(events)


def test_a_cable_is_one_change_however_its_ends_are_read(fabricd: FakeFabricd, tmp_path: Path) -> None:
    """What is logged, and so read by an operator, must not hang on how messages come together on the socket."""
    with live_fabric(RING) as live, controller(live, tmp_path, "--fabricd", str(fabricd.path)) as process:
        process.said()
        before = live.all_flows()
        first, second = fabricd.ends(RING, "sw0-sw1", up=False, first_id=1)
        fabricd.send(first)
        fabricd.wait_settled(fabricd.send({"event": "job_closed", "time_ns": 1, "id": 9, "job": 9}))
        assert live.all_flows() == before and [event for event, _ in fabricd.settled] == [9]
        fabricd.wait_settled([1, *fabricd.send(second)])
        apart = ", ".join(f"{e['switch']}:{e['port']} down" for e in (first, second))
        assert process.logged(f"{apart}, says fabricd") == 1

        fabricd.wait_settled(fabricd.cable(RING, "sw0-sw1", up=True, first_id=3))
        two = [fabricd.ends(RING, name, False, first) for name, first in (("sw0-sw1", 11), ("sw2-sw3", 13))]
        fabricd.wait_settled(fabricd.send(*two[0], *two[1]))
        assert process.logged(f"{apart}, says fabricd") == 2  # and not both cables in one line
        assert process.logged("says fabricd") == 4


def test_both_witnesses_of_one_failure_change_routes_once(fabricd: FakeFabricd, tmp_path: Path) -> None:
    cable = RING.cable("sw0-sw1")
    with live_fabric(RING) as live, veth(f"{live.prefix}-a", f"{live.prefix}-b") as (a, b):
        live.plug("sw0", cable.end("sw0").port, a)
        live.plug("sw1", cable.end("sw1").port, b)
        with controller(live, tmp_path, "--fabricd", str(fabricd.path)) as process:
            assert process.said() == programmed(RING)
            before = live.all_flows()
            around = routes(RING, frozenset({("sw0", cable.end("sw0").port)}))

            run("ip", "link", "set", a, "down")  # both ends lose their carrier: the switches' account
            wait_until(lambda: process.logged("says the switch") == 1, "a port status")
            wait_until(lambda: live.flows("sw0").count("cookie") == len(around["sw0"]), "new routes")
            assert live.arrives("h0", "h1")
            changed = live.all_flows()
            assert changed != before
            fabricd.wait_settled(fabricd.cable(RING, "sw0-sw1", up=False, first_id=1))
            assert live.all_flows() == changed

            run("ip", "link", "set", a, "up")  # one witness still says down
            wait_until(lambda: carrier(live, "sw0", a) and carrier(live, "sw1", b), "the switches to see it up")
            fabricd.wait_settled(fabricd.cable(RING, "sw2-sw3", up=True, first_id=3))  # after what came before
            assert live.all_flows() == changed
            fabricd.wait_settled(fabricd.cable(RING, "sw0-sw1", up=True, first_id=5))
            assert live.all_flows() == before
            assert process.logged("switches changed") == 2


def test_flows_outlive_the_controller_and_are_put_right_by_the_next(python: str, tmp_path: Path) -> None:
    with live_fabric(RAIL) as live:
        with controller(live, tmp_path, python=python) as process:
            process.said()
            before = live.all_flows()
            process.kill()
        wait_until(lambda: not connected(live), "the switches to miss the controller")
        assert live.all_flows() == before
        assert live.arrives("h0.0", "h1.1")

        rail0 = live.bridge("rail0")
        stale = "cookie=0x7262000000000001,priority=7,ip,nw_dst=10.9.9.9,actions=output:1"
        foreign = "cookie=0x5,priority=7,ip,nw_dst=10.9.9.8,actions=output:1"
        for flow in (stale, foreign):
            run("ovs-ofctl", "-OOpenFlow13", "add-flow", rail0, flow)
        run("ovs-ofctl", "-OOpenFlow13", "mod-flows", rail0, "ip,nw_dst=10.0.0.1,actions=output:2")
        run("ovs-ofctl", "-OOpenFlow13", "del-flows", rail0, "ip,nw_dst=10.0.0.2")
        with controller(live, tmp_path, python=python, port=process.port) as again:
            assert again.said() == programmed(RAIL)
            after = live.all_flows()
    assert "10.9.9.8" in after["rail0"]  # what others installed stays
    after["rail0"] = "".join(line for line in after["rail0"].splitlines(keepends=True) if "10.9.9.8" not in line)
    assert after == before


def test_a_switch_that_connects_late_is_waited_for(tmp_path: Path) -> None:
    with live_fabric(RAIL) as live:
        process = ControllerProcess(live, tmp_path, sys.executable)
        try:
            target = f"tcp:127.0.0.1:{process.port}"
            for switch in RAIL.switches[:-1]:
                run("ovs-vsctl", "set-controller", live.bridge(switch.name), target)
            wait_until(lambda: process.logged(": connected") == len(RAIL.switches) - 1, "all but one")
            assert process.logged("switches programmed") == 0
            run("ovs-vsctl", "set-controller", live.bridge(RAIL.switches[-1].name), target)
            assert process.said() == programmed(RAIL)
        finally:
            process.kill()


def test_fabricd_that_comes_back_is_subscribed_to_again(python: str, fabricd: FakeFabricd, tmp_path: Path) -> None:
    fabricd_is = ("--fabricd", str(fabricd.path))
    with live_fabric(RING) as live, controller(live, tmp_path, *fabricd_is, python=python) as process:
        process.said()
        fabricd.hang_up()
        wait_until(lambda: fabricd.subscriptions == 2, "a second subscription")
        fabricd.wait_settled(fabricd.cable(RING, "sw0-sw1", up=False, first_id=1))


def test_programmed_means_subscribed_too(tmp_path: Path) -> None:
    socket = tmp_path / "fabricd.sock"
    with live_fabric(RING) as live, controller(live, tmp_path, "--fabricd", str(socket)) as process:
        wait_until(lambda: "output" in live.flows("sw4"), "flows")
        wait_until(lambda: process.logged("trying again") == 1, "an attempt to reach fabricd")
        assert process.logged("switches programmed") == 0
        server = FakeFabricd(socket)
        try:
            assert process.said() == programmed(RING)
            assert server.subscriptions == 1
        finally:
            server.close()


def test_arp_is_answered_by_the_switch(tmp_path: Path) -> None:
    with live_fabric(RAIL) as live, controller(live, tmp_path) as process:
        process.said()
        me = RAIL.nic_by_name["h0.0"]
        request = f"in_port=1,arp,dl_src={me.mac},dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_spa={me.ip},arp_sha={me.mac}"
        request += ",arp_tpa=10.1.0.2,arp_tha=00:00:00:00:00:00"
        text = run("ovs-appctl", "ofproto/trace", live.bridge("rail0"), request)
        assert "IN_PORT" in text
        (reply,) = [line for line in text.splitlines() if line.startswith("Final flow: ")]
        for field in (
            "dl_src=02:00:0a:01:00:02", f"dl_dst={me.mac}", "arp_op=2",
            "arp_spa=10.1.0.2", "arp_sha=02:00:0a:01:00:02", f"arp_tpa={me.ip}", f"arp_tha={me.mac}",
        ):  # fmt: skip
            assert field in reply
        for unanswered in ("arp_op=2,arp_tpa=10.1.0.2", "arp_op=1,arp_tpa=192.168.0.1"):
            assert "drop" in run("ovs-appctl", "ofproto/trace", live.bridge("rail0"), f"in_port=1,arp,{unanswered}")


def test_the_real_fabricd_waits_for_the_new_routes(tmp_path: Path) -> None:
    cable, devices = RING.cable("sw0-sw1"), Devices(RING)
    build_fabricd()
    config = fabricd_config(RING, Hardware(), fabric_id="test", clock={"mode": "virtual"})
    with own_switch() as switch:
        live = LiveFabric(RING, switch)
        fabricd = Fabricd.start(config, tmp_path, before=switch.inside)
        try:
            taps = [devices.tap(s, number) for s in RING.switches for number in range(1, s.ports + 1)]
            for tap in (*taps, FENCE_TAP):
                switch.run("ip", "link", "set", tap, "up")
            live.up(taps=devices.tap)
            fence = ["--", "set", "Bridge", FENCE_BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
            fence += ["--", "add-port", FENCE_BRIDGE, FENCE_TAP]
            switch.run("ovs-vsctl", "add-br", FENCE_BRIDGE, *fence)
            switch.run("ovs-ofctl", "add-flow", FENCE_BRIDGE, "in_port=1,actions=in_port")
            with controller(live, tmp_path, "--fabricd", str(fabricd.control)) as process:
                assert process.said() == programmed(RING)
                fabricd.request("start", ranks=[])
                fabricd.request("cable", cable=cable.name, up=False)
                fabricd.request("quiesce")
                around = routes(RING, frozenset({(cable.a.node, cable.a.port)}))
                for s in RING.switches:
                    found = re.findall("cookie=(0x[0-9a-f]+)", live.flows(s.name))
                    assert sorted(found) == sorted(f"{f.cookie:#x}" for f in around[s.name])
                assert fabricd.request("counters")["fidelity"]["controller_timeouts"] == 0
        finally:
            fabricd.stop()


def test_hosts_reach_each_other_and_nobody_else(tmp_path: Path) -> None:
    with (
        live_fabric(RAIL) as live,
        host(live, "h0.0") as a,
        host(live, "h1.1") as b,
        controller(live, tmp_path) as process,
    ):
        process.said()
        target = RAIL.nic_by_name["h1.1"]
        assert ping(a, str(target.ip)) and ping(b, str(RAIL.nic_by_name["h0.0"].ip))
        assert target.mac in run("ip", "netns", "exec", a, "ip", "neigh", "show", str(target.ip))
        assert not ping(a, "10.1.0.3")  # no NIC has it


def test_a_flow_that_a_switch_refuses_is_said(python: str, tmp_path: Path) -> None:
    with live_fabric(RAIL) as live:
        run("ovs-vsctl", "--", "--id=@t", "create", "Flow_Table", "flow_limit=2", "overflow_policy=refuse",
            "--", "set", "Bridge", live.bridge("rail1"), "flow_tables:0=@t")  # fmt: skip
        with controller(live, tmp_path, python=python) as process:
            assert process.said()["error"].startswith("rail1 refused a message: OFPET_FLOW_MOD_FAILED")
            assert process.process.wait(60) == 1


@pytest.mark.parametrize(
    ("content", "arguments", "error"),
    [
        ("{", (), "not a fabric"),
        ('{"kind": "star"}', (), "not a fabric"),
        (None, (), "No such file"),
        (json.dumps(RAIL.to_dict()), ("--routing", "dimension_order"), "does not fit a rail"),
    ],
)
def test_bad_input_is_said(content: str | None, arguments: tuple[str, ...], error: str, tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    if content is not None:
        file.write_text(content)
    done = start_and_end(file, 1, *arguments)
    assert error in json.loads(done.stdout)["error"]
    assert done.returncode == 1


def test_a_port_in_use_is_said(python: str, tmp_path: Path) -> None:
    with live_fabric(RAIL) as live, controller(live, tmp_path) as process:
        done = start_and_end(tmp_path / "fabric.json", process.port, python=python)
        assert "is the port in use?" in json.loads(done.stdout)["error"]
        assert done.returncode == 1


def start_and_end(
    file: Path, port: int, *arguments: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "controllers.main", "--fabric", str(file), "--port", str(port), "--dpid-base", "0"]
    command = [*shared().inside, *command, "--ovs", str(shared().ovs.control), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def connected(live: LiveFabric) -> bool:
    bridges = [live.bridge(s.name) for s in live.fabric.switches]
    states = [run("ovs-vsctl", "get", "Controller", bridge, "is_connected").strip() for bridge in bridges]
    return "true" in states


def carrier(live: LiveFabric, switch: str, device: str) -> bool:
    ports = run("ovs-ofctl", "-OOpenFlow13", "show", live.bridge(switch))
    return "LINK_DOWN" not in ports.split(f"({device})")[1].split("addr:")[0]


@contextmanager
def veth(a: str, b: str) -> Iterator[tuple[str, str]]:
    """A pair of devices that are each other's carrier."""
    run("ip", "link", "add", a, "type", "veth", "peer", "name", b)
    try:
        run("ip", "link", "set", a, "up")
        run("ip", "link", "set", b, "up")
        yield a, b
    finally:
        run("ip", "link", "del", a)


@contextmanager
def host(live: LiveFabric, nic: str) -> Iterator[str]:
    """A network namespace with the NIC's address, plugged into its switch."""
    me, end = live.fabric.nic_by_name[nic], live.fabric.cable_at[nic, 1].other(nic)
    name = f"{live.prefix}-n{me.rank}"
    run("ip", "netns", "add", name)
    try:
        with veth(f"{name}o", f"{name}i") as (outside, inside):
            run("ip", "link", "set", inside, "netns", name, "address", me.mac)
            inner = ("ip", "-n", name)
            run(*inner, "addr", "add", f"{me.ip}/8", "dev", inside)
            run(*inner, "link", "set", inside, "up")
            live.plug(end.node, end.port, outside)
            yield name
    finally:
        run("ip", "netns", "del", name)


def ping(namespace: str, address: str) -> bool:
    command = ["ip", "netns", "exec", namespace, "ping", "-c", "1", "-W", "1", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
