"""Cables with rates and delays of their own: what follows from them at each port and NIC."""

from __future__ import annotations

from typing import Any

import pytest

from hardware import bounds
from hardware.config import fabricd_config
from testbed.base.errors import InputError
from testbed.experiment import Experiment, load, loads
from testbed.experiment.basis import Basis
from testbed.plan.hardware import hardware_of


def experiment(fabric: str, more: str = "") -> Experiment:
    return loads(f"name: x\nfabric: {{{fabric}}}\n{more}", "x.yaml")


def config(e: Experiment) -> dict[str, Any]:
    return fabricd_config(e.build_fabric(), hardware_of(e), fabric_id="ab", clock={"mode": "virtual"})


def cables(e: Experiment) -> dict[str, tuple[float, float]]:
    return {c["name"]: (c["rate_bps"], c["delay_ns"]) for c in config(e)["cables"]}


@pytest.mark.parametrize(
    ("topology", "of_hosts"),
    [
        ("star: {hosts: 2}", {"h0-sw0", "h1-sw0"}),
        ("star: {hosts: 1, links: 2}", {"nic0-sw0", "nic0-sw1"}),
        ("clos: {leaves: 2, spines: 1, hosts_per_leaf: 1}", {"h0-leaf0", "h1-leaf1"}),
        ("rail: {servers: 1, gpus: 2}", {"h0.0-rail0", "h0.1-rail1"}),
        ("ring: {nodes: 3}", {"h0-sw0", "h1-sw1", "h2-sw2"}),
        ("ring: {nodes: 3, direct: true}", set()),
        ("torus: {dims: [2, 2]}", {"h0-sw0-0", "h1-sw0-1", "h2-sw1-0", "h3-sw1-1"}),
        ("custom: {nodes: {a: host, b: host, s: switch, t: switch}, cables: [a-s, b-t, s-t]}", {"a-s", "b-t"}),
    ],
)
def test_the_cables_of_hosts_are_their_own_in_every_topology(topology: str, of_hosts: set[str]) -> None:
    e = experiment(f"topology: {{{topology}}}, cable: {{delay: 300ns}}, host_cable: {{rate: 100Gbps, delay: 20ns}}")
    inside = e.build_fabric().inside
    for name, found in cables(e).items():
        if name not in inside:
            assert found == ((100e9, 20.0) if name in of_hosts else (400e9, 300.0)), name


def test_the_last_override_of_a_cable_wins_and_each_says_what_it_likes() -> None:
    e = experiment(
        "topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}, cables: {all: {delay: 1us}, "
        "'switch:spine1': {rate: 200Gbps}, 'cable:spine1-leaf0': {delay: 2us}, 'port:leaf1:1': {rate: 50Gbps}, "
        "'nic:0': {rate: 25Gbps}}"
    )
    assert cables(e) == {
        "h0-leaf0": (25e9, 1000.0),
        "h1-leaf1": (50e9, 1000.0),
        "leaf0-spine0": (400e9, 1000.0),
        "leaf0-spine1": (200e9, 2000.0),
        "leaf1-spine0": (400e9, 1000.0),
        "leaf1-spine1": (200e9, 1000.0),
    }
    assert loads(str(e.resolved()).replace("None", "null").replace("True", "true").replace("False", "false")) == e


def test_thresholds_follow_each_cable() -> None:
    e = experiment(
        "topology: {star: {hosts: 3}}, cables: {'nic:1': {rate: 100Gbps, delay: 5us}}", "transport: {cc: dcqcn}"
    )
    made = config(e)
    (switch,) = made["switches"]
    usual, slow = bounds.headroom_bytes(400e9, 500, 4096), bounds.headroom_bytes(100e9, 5000, 4096)
    assert switch["headroom_bytes"] == [usual, slow, usual]
    assert [p["3"]["kmin_bytes"] for p in switch["port_ecn"]] == [800_000, 400_000, 800_000]
    assert switch["ecn"]["3"]["kmin_bytes"] == 800_000  # what a fault changes
    fast_nic, slow_nic = made["nics"][0], made["nics"][1]
    assert fast_nic["rx_buffer_bytes"] - fast_nic["rx_xoff_bytes"] == usual
    assert slow_nic["rx_buffer_bytes"] - slow_nic["rx_xoff_bytes"] == slow
    assert fast_nic["cc"]["params"]["ai_bps"] == 4 * slow_nic["cc"]["params"]["ai_bps"]


def test_switches_with_equal_cables_say_nothing_by_port() -> None:
    (switch,) = config(experiment("topology: {star: {hosts: 3}}"))["switches"]
    assert "port_ecn" not in switch
    assert isinstance(switch["headroom_bytes"], int)


@pytest.mark.parametrize("topology", ["clos: {leaves: 3, spines: 2, hosts_per_leaf: 2}", "ring: {nodes: 7}"])
def test_the_longest_round_trip_is_that_of_equal_cables_where_they_are_equal(topology: str) -> None:
    plain = experiment(f"topology: {{{topology}}}")
    said = experiment(f"topology: {{{topology}}}, cables: {{all: {{rate: 400Gbps}}}}")
    usual = Basis(plain).setting.base_rtt_ns
    assert Basis(said).setting.base_rtt_ns == pytest.approx(usual)
    longer = experiment(f"topology: {{{topology}}}, host_cable: {{delay: 1500ns}}")
    assert Basis(longer).setting.base_rtt_ns == pytest.approx(usual + 4 * 1000)


@pytest.mark.parametrize(
    ("overrides", "where", "what"),
    [
        ("'cable:h0-sw1': {rate: 1Gbps}", "x.yaml:2: fabric.cables.cable:h0-sw1", "there is no such cable"),
        ("'flow:0->1': {rate: 1Gbps}", "x.yaml:2: fabric.cables.flow:0->1", "names no cable"),
        ("'nic:7': {rate: 1Gbps}", "x.yaml:2: fabric.cables.nic:7", "there is no rank 7"),
        ("'nic:0': {}", "x.yaml:2: fabric.cables.nic:0", "this changes nothing"),
        ("'nic:0': {rate: 0bps}", "x.yaml:2: fabric.cables.nic:0.rate", "0bps is out of bounds"),
    ],
)
def test_an_override_that_names_nothing_says_so(overrides: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as told:
        experiment(f"topology: {{star: {{hosts: 2}}}}, cables: {{{overrides}}}")
    assert (told.value.where, told.value.what) == (where, what)


def test_a_key_that_an_override_does_not_have_names_those_that_it_has() -> None:
    with pytest.raises(InputError) as told:
        experiment("topology: {star: {hosts: 2}}, cables: {'nic:0': {speed: 1Gbps}}")
    assert (told.value.what, told.value.hint) == (
        "unknown key 'speed'",
        "allowed keys: flow_control, retry, rate, delay",
    )


def test_a_network_from_a_file_is_written_out_and_its_errors_have_its_lines(tmp_path: Any) -> None:
    (tmp_path / "net.yaml").write_text(
        "nodes: {a: host, b: host, s: switch}\ncables:\n  - a-s\n  - {between: b-s, rate: 5Gbps}\n"
    )
    file = tmp_path / "e.yaml"
    file.write_text("name: x\nfabric:\n  topology:\n    custom: {file: net.yaml}\n")
    e = load(file)
    assert cables(e)["b-s"] == (5e9, 500.0)
    written = {
        "nodes": {"a": "host", "b": "host", "s": "switch"},
        "cables": ["a-s", {"between": "b-s", "rate": "5Gbps"}],
    }
    assert e.resolved()["fabric"]["topology"] == {"custom": {**written, "classes": {}}}
    (tmp_path / "net.yaml").write_text("nodes: {a: host, s: switch}\ncables:\n  - a-s\n  - b-s\n")
    with pytest.raises(InputError) as told:
        load(file)
    assert told.value.where == f"{file}:4: fabric.topology.custom.file"
    assert told.value.what == "net.yaml:4: cables[1]: there is no node 'b'"
    (tmp_path / "net.yaml").write_text("nodes: {a: hots, s: switch}\ncables:\n  - {betwen: a-s}\n")
    with pytest.raises(InputError) as told:
        load(file)
    said = [told.value.what, *(problem.what for problem in told.value.also)]
    assert said[0] == "net.yaml:1: nodes.a.kind: unknown kind 'hots'"
    assert "net.yaml:3: cables[0].betwen: unknown key 'betwen'" in said
