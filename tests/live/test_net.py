"""Mininet on a live fabric with the real clock: its command line, ordinary programs, cables, and what is left alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.devices import FENCE_BRIDGE, FENCE_TAP
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.fabric.names import Names
from testbed.inject.links import mininet
from tests.parts.machine import RAIL_REAL, ROOT, TESTBED, addresses, cli, run, told, traces, wait_until
from topologies import Fabric, build

REAL = RAIL_REAL.replace("1us", "2us")
# One way over one switch: two cables, the switch, and a short frame twice on the wire.
_RTT_MS = 2 * (2 * 2000 + 500 + 2 * (98 + 24) * 8 / 40) * 1000 / 1e6


def inside(lab: Lab, *argv: str) -> str:
    """Runs a command where the fabric's switches are."""
    command, env = lab.ovs_command(argv)
    return run(*command, env=env)


def sysctls() -> str:
    """Settings that Mininet changes when it starts, and all of the network's."""
    names = ["fs.file-max", "kernel.pty.max", "net.core", "net.ipv4"]
    done = subprocess.run(
        ["sysctl", "-a", "--pattern", "^(fs.file-max|kernel.pty.max|net)"], capture_output=True, text=True
    )
    kept = [line for line in done.stdout.splitlines() if any(line.startswith(n) for n in names)]
    return "\n".join(line for line in kept if not re.search(r"\.(conf|neigh)\.|random|stat|fib_|nr_|_mem ", line))


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return {"addresses": addresses(), "sysctls": sysctls()}


@pytest.fixture(scope="module")
def lab(before: dict[str, str]) -> Iterator[Lab]:
    lab = Lab.up(loads(REAL, "rail.yaml"))
    try:
        yield lab
    finally:
        lab.down()
    assert traces(lab.id) == []
    assert addresses() == before["addresses"]


# -- the machine outside


def test_the_root_namespace_gets_no_address_and_no_route(lab: Lab, before: dict[str, str]) -> None:
    mininet(lab).pingAll()
    ours = [line for line in addresses().splitlines() if f"rb{lab.id}-" in line or re.search(r"\b10\.[01]\.0\.", line)]
    assert ours == []
    assert addresses() == before["addresses"]


def test_global_settings_stay(lab: Lab, before: dict[str, str]) -> None:
    assert mininet(lab).hosts
    assert sysctls() == before["sysctls"]


def test_mininet_does_not_raise_limits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be raised already on this machine, so seeing no change proves little."""
    calls: list[str] = []
    monkeypatch.setattr("mininet.net.fixLimits", lambda: calls.append("fixLimits"))
    attached = Lab.attach(lab.id)
    assert mininet(attached).hosts
    attached.close()
    assert calls == []


def test_devices_of_switches_say_nothing_by_themselves(lab: Lab) -> None:
    bridges = {lab.names.bridge(s) for s in lab.fabric.switches} | {FENCE_BRIDGE}
    taps = {lab.names.tap(s, p) for s in lab.fabric.switches for p in range(1, s.ports + 1)} | {FENCE_TAP}
    links = {link["ifname"]: link for link in json.loads(inside(lab, "ip", "-j", "-s", "link"))}
    assert set(links) - {"lo", "ovs-netdev"} == bridges | taps
    for tap in taps:
        assert inside(lab, "cat", f"/proc/sys/net/ipv6/conf/{tap}/disable_ipv6") == "1\n"
        assert links[tap]["mtu"] >= 9216 and "UP" in links[tap]["flags"]
    assert all("UP" not in links[bridge]["flags"] for bridge in bridges)
    assert max(links[tap]["stats64"]["tx"]["packets"] for tap in taps) < 1000
    assert not {*bridges, *taps} & set(os.listdir("/sys/class/net")), "nothing of it is in the root namespace"


# -- bridges


def test_ports_have_the_numbers_of_the_topology(lab: Lab) -> None:
    for switch in lab.fabric.switches:
        shown = inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "show", lab.names.bridge(switch))
        numbers = {name: int(n) for n, name in re.findall(r"^ (\d+)\((\S+)\)", shown, re.M)}
        assert numbers == {lab.names.tap(switch, p): p for p in range(1, switch.ports + 1)}
        assert f"dpid:{lab.names.dpid(switch):016x}" in shown


def test_bridges_are_secure_and_have_a_controller(lab: Lab) -> None:
    for switch in lab.fabric.switches:
        bridge = lab.names.bridge(switch)
        assert inside(lab, "ovs-vsctl", "get", "Bridge", bridge, "fail_mode", "datapath_type").split() == [
            "secure",
            "netdev",
        ]
        assert inside(lab, "ovs-vsctl", "get-controller", bridge) == "tcp:127.0.0.1:6653\n"
    # Open vSwitch says so only every few seconds.
    wait_until(lambda: all(s.connected() for s in mininet(lab).switches), "all switches are connected")


def test_the_fence_bridge_returns_what_it_gets(lab: Lab) -> None:
    flows = inside(lab, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", FENCE_BRIDGE)
    assert [line.split(",")[-1].strip() for line in flows.splitlines() if "actions" in line] == [
        "in_port=1 actions=IN_PORT"
    ]


def test_names_fit_the_kernel() -> None:
    fabric = Fabric.from_dict(build("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 200}).to_dict())
    names = Names(fabric, "ffff")
    used = [names.tap(s, s.ports) for s in fabric.switches] + [names.bridge(s) for s in fabric.switches]
    used += [names.interface(n) for n in fabric.nics]
    assert max(map(len, [*used, FENCE_BRIDGE, FENCE_TAP])) <= 15
    assert len(set(used)) == len(used)
    assert len({names.dpid(s) for s in fabric.switches} | {names.dpid_base}) == len(fabric.switches) + 1


# -- hosts


def test_every_nic_has_its_interface_in_its_hosts_namespace(lab: Lab) -> None:
    for nic in lab.fabric.nics:
        host, interface = mininet(lab).get(nic.host), lab.names.interface(nic)
        shown = host.pexec(["ip", "address", "show", interface])[0]
        assert f"link/ether {nic.mac}" in shown
        assert f"inet {nic.ip}/" in shown
        assert "mtu 4096" in shown
        assert "inet6" not in shown
        features = host.pexec(["ethtool", "-k", interface])[0]
        for feature in ("tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"):
            assert f"{feature}: off" in features


def test_hosts_see_their_own_devices_only(lab: Lab) -> None:
    assert sorted(mininet(lab).get("h0").pexec(["ls", "/sys/class/net"])[0].split()) == ["h0-eth0", "h0-eth1", "lo"]


def test_shells_start_with_their_first_command(lab: Lab) -> None:
    attached = Lab.attach(lab.id)
    host = mininet(attached).get("h1")
    assert host.shell is None
    assert host.cmd("echo $((6 * 7))").strip() == "42"
    assert host.pid == attached.hosts["h1"].pid
    shell = host.shell.pid
    attached.close()
    assert not Path(f"/proc/{shell}").exists()
    assert attached.hosts["h1"].alive(), "the host itself stays"


def test_a_shell_keeps_its_state(lab: Lab) -> None:
    host = mininet(lab).get("h0")
    host.cmd("cd /usr; x=5")
    assert host.cmd("echo $PWD $x").split() == ["/usr", "5"]


# -- traffic


def test_pingall(lab: Lab) -> None:
    assert mininet(lab).pingAll() == 0.0
    assert "0% dropped (2/2 received)" in cli("shell", lab.id, "-c", "pingall")


def test_every_address_reaches_every_other(lab: Lab) -> None:
    """Also from one rail to another, over the spine, out of the NIC that has the address."""
    for here in lab.fabric.nics:
        for there in lab.fabric.nics:
            if here.host != there.host:
                out = mininet(lab).get(here.host).pexec(["ping", "-c1", "-W2", "-I", str(here.ip), str(there.ip)])[0]
                assert "1 received" in out, f"{here.name} to {there.name}: {out}"


def test_what_has_an_address_as_source_leaves_by_its_nic(lab: Lab) -> None:
    for here in lab.fabric.nics:
        for there in lab.fabric.nics:
            if here.host != there.host:
                host, from_here = mininet(lab).get(here.host), ["from", str(here.ip)]
                route = host.pexec(["ip", "route", "get", str(there.ip), *from_here])[0]
                assert f"dev {lab.names.interface(here)}" in route


def test_a_ping_takes_what_the_model_says(lab: Lab) -> None:
    out = mininet(lab).get("h0").pexec(["ping", "-c5", "-i0.1", "10.0.0.2"])[0]
    best = float(re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", out)[1])  # type: ignore[index]
    assert best == pytest.approx(_RTT_MS, rel=0.1), out


def test_iperf(lab: Lab) -> None:
    server, client = (float(rate.split()[0]) for rate in mininet(lab).iperf(seconds=2))
    assert 0.5 * 40 < server <= 40  # on a busy machine too
    assert 0.5 * 40 < client <= 42


def test_iperf_of_strangers_is_not_killed(lab: Lab) -> None:
    stranger = subprocess.Popen(["iperf3", "-s", "-p", "5999"], stdout=subprocess.DEVNULL)
    try:
        mininet(lab).iperf(seconds=1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_cables_are_cut_and_mended(lab: Lab) -> None:
    host = mininet(lab).get("h0")
    assert "1 received" in host.pexec("ping -c1 -W2 10.0.0.2")[0]
    mininet(lab).configLinkStatus("rail0", "h0", "down")
    assert "0 received" in host.pexec("ping -c1 -W1 10.0.0.2")[0]
    assert "1 received" in host.pexec("ping -c1 -W2 10.1.0.2")[0], "the other rail is another cable"
    mininet(lab).configLinkStatus("h0", "rail0", "up")
    assert "1 received" in host.pexec("ping -c1 -W2 10.0.0.2")[0]


# -- the command line


def test_commands_from_arguments_and_standard_input(lab: Lab) -> None:
    out = cli("shell", lab.id, "-c", "nodes", "-c", "net", "-c", "dump", "-c", "h0 ping -c1 h1")
    assert "c0 h0 h1 rail0 rail1 spine0" in out
    assert f"h0 h0-eth0:{lab.names.tap(lab.fabric.switches[0], 1)}" in out
    assert f"<FabricHost h1: h1-eth0:10.0.0.2,h1-eth1:10.1.0.2 pid={lab.hosts['h1'].pid}>" in out
    assert "1 received" in out
    out = cli("shell", lab.id, "-c", "show lldp neighbors", "-c", "show 'x", "-c", "heal nothing", code=2)
    assert "rail0" in out and "LocalPort" in out
    assert cli("shell", lab.id, input="h0 echo one\n\n# nothing\nh1 cat; echo two\n").split() == ["one", "two"]


def test_link_and_switch_commands(lab: Lab) -> None:
    ping, patient = "h0 ping -c1 -W1 h1", "h0 ping -c1 -W20 h1"
    out = cli("shell", lab.id, "-c", "link h0 rail0 down", "-c", ping, "-c", "link h0 rail0 up", "-c", patient, code=1)
    assert re.findall(r"(\d) received", out) == ["0", "1"]
    out = cli("shell", lab.id, "-c", "switch rail0 stop", "-c", ping, "-c", "switch rail0 start", code=1)
    assert re.findall(r"(\d) received", out) == ["0"]
    switch = mininet(lab).get("rail0")
    wait_until(
        lambda: "1 received" in mininet(lab).get("h0").pexec("ping -c1 -W1 10.0.0.2")[0], "the controller is back"
    )
    assert switch.dpctl("dump-flows").count("actions=") > 2


def test_exit_codes(lab: Lab) -> None:
    cli("shell", lab.id, "-c", "h0 true", code=0)
    cli("shell", lab.id, "-c", "h0 exit_with() { return 9; }; exit_with", "-c", "h0 true", code=9)
    cli("shell", lab.id, "-c", "nonsense", code=127)
    cli("shell", lab.id, "-c", "pingall", code=0)


def test_errors_are_said_on_stderr(lab: Lab) -> None:
    nodes = "h0, h1, rail0, rail1, spine0, c0"
    said = {
        "nonsense": f"there is no command and no node 'nonsense': `help` lists the commands; nodes: {nodes}",
        "link h0 spine0 down": "there is no cable between h0 and spine0: from h0 cables go to rail0, rail1",
        "link rail7 h0 down": f"there is no node 'rail7': did you mean rail1? there are {nodes}",
        "link h0 rail0": "usage: link NODE NODE down|up",
        "switch rail7 stop": "there is no switch 'rail7': there are rail0, rail1, spine0",
        "iperf h0 rail0": "rail0 is no host: there are h0, h1",
        "x abc": f"there is no node 'abc': there are {nodes}",
        "source /nowhere": "/nowhere cannot be read: there is no such file",
        "h0": "what is h0 to do? Such as: h0 hostname",
    }
    arguments = [word for command in said for word in ("-c", command)]
    done = subprocess.run([*TESTBED, "shell", lab.id, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.splitlines() == list(said.values())


def test_a_link_that_is_down_is_a_fault(lab: Lab) -> None:
    """`show faults` has it, `link up` and `heal` undo it, a second `down` adds nothing; a wider fault stays."""
    told("heal", "all", "--fabric", lab.id)
    commands = ("link h0 rail0 down", "link h0 rail0 down", "links", "link rail0 h0 up", "link h0 rail0 down")
    down, again, *links, up, _ = cli("shell", lab.id, *(word for c in commands for word in ("-c", c))).splitlines()
    name = down.removeprefix("h0.0-rail0 is down: fault ")
    assert (again, up) == (f"h0.0-rail0 is down already: fault {name}", f"h0.0-rail0 is up: healed {name}")
    assert [line for line in links if "down" in line] == [f"h0-eth0<->rail0-eth1 (down: fault {name})"]
    (fault,) = json.loads(told("show", "faults", lab.id, "--json"))
    assert (fault["fault"], fault["on"], fault["state"]) == ("cable_down", "cable:h0.0-rail0", "on")
    told("heal", fault["id"], "--fabric", lab.id)
    told("inject", "cable_down", "--on", "switch:rail0", "--fabric", lab.id)
    cli("shell", lab.id, "-c", "link h0 rail0 up", code=1)
    assert len(json.loads(told("show", "faults", lab.id, "--json"))) == 1
    told("heal", "all", "--fabric", lab.id)


def test_a_reader_that_goes_away_ends_the_shell_quietly(lab: Lab) -> None:
    for command in ("h0 seq 100000", "net"):
        argv = [*TESTBED, "shell", lab.id, "-c", command, "-c", "sh sleep 0.1", "-c", "dump"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as shell:
            assert shell.stdout and shell.stderr and shell.stdout.read(1)
            shell.stdout.close()
            assert shell.stderr.read() == b""
            assert shell.wait(60) == 141


def test_a_terminal_gets_the_prompt(lab: Lab) -> None:
    import pty

    master, slave = pty.openpty()
    with subprocess.Popen([*TESTBED, "shell", lab.id], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT) as shell:
        os.close(slave)
        seen = bytearray()

        def read() -> None:
            try:
                while data := os.read(master, 4096):
                    seen.extend(data)
            except OSError:
                pass

        reader = threading.Thread(target=read)
        reader.start()
        wait_until(lambda: b"testbed> " in seen, "the prompt")
        os.write(master, b"h0 echo $((40 + 2))\n")
        wait_until(lambda: b"42" in seen, "the answer")
        os.write(master, b"exit\n")
        assert shell.wait(60) == 0
        reader.join()
        os.close(master)


# -- the virtual clock


def test_with_the_virtual_clock_ping_says_why_it_cannot() -> None:
    with Lab.up(loads(REAL.replace("{real: {dilation: 1000}}", "virtual"), "rail.yaml")) as lab:
        command = [*TESTBED, "shell", lab.id, "-c", "h0 ping -c1 h1"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 1
        assert "virtual clock" in done.stderr
        assert mininet(lab).pingAll() == 100.0
        assert mininet(lab).get("h0").pexec(["ls", "/sys/class/net"])[0].split() == ["lo"]
        assert mininet(lab).get("h1").IP() == "10.0.0.2"
    assert traces(lab.id) == []
