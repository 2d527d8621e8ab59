"""What fabricd and the ranks get of an experiment: each key where it belongs, and what follows from keys together."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.experiment import Experiment, loads
from testbed.experiment.basis import Basis
from testbed.plan import aggregation, thresholds
from testbed.plan.hardware import hardware_of
from testbed.plan.steps.plan import plan


def experiment(fabric: str, more: str = "", topology: str = "star: {hosts: 4}") -> Experiment:
    return loads(f"name: x\nfabric: {{topology: {{{topology}}}, {fabric}}}\n{more}", "x.yaml")


def test_each_key_of_a_switch_gets_to_fabricd() -> None:
    switch = hardware_of(
        experiment(
            "switch: {buffer: 5MB, latency: 300ns, alpha: 0.5, reserve: 7KB, headroom: 9KB, xon_offset: 2KB, "
            "lossless: [2], dscp: {8: 2, 9: 5}, ecn: {classes: [2], kmin: 20KB, kmax: 80KB, pmax: 0.1}, "
            "scheduler: {strict: [7], weights: {0: 1, 2: 3}}, watchdog: {detect: 1ms, restore: 2ms, action: forward}}"
        )
    )
    assert (switch.switch_buffer_bytes, switch.switch_latency_ns) == (5_000_000, 300)
    dscp = switch.switch["dscp"]
    assert len(dscp) == 64 and {code: c for code, c in dscp.items() if c} == {"8": 2, "9": 5}
    weights = switch.switch["weights"]
    assert (weights["0"], weights["2"]) == (1, 3)
    assert {key: switch.switch[key] for key in switch.switch if key not in ("dscp", "weights")} == {
        "alpha": 0.5, "reserve_bytes": 7000, "headroom_bytes": 9000, "xon_offset_bytes": 2000, "lossless": [2],
        "pfc": True, "ecn": {"2": {"kmin_bytes": 20_000, "kmax_bytes": 80_000, "pmax": 0.1}}, "strict": [7],
        "watchdog": {"detect_ns": 1e6, "restore_ns": 2e6, "action": "forward"},
    }  # fmt: skip
    bare = hardware_of(experiment("switch: {pfc: false, ecn: null, watchdog: null}"))
    assert (bare.switch["lossless"], bare.switch["ecn"], bare.switch["watchdog"]) == ([], {}, None)
    assert bare.nic["lossless"] == []


def test_each_key_of_a_nic_gets_to_fabricd() -> None:
    """Packets are queued in the NIC in the class that the switch will see in their DSCP."""
    its = hardware_of(
        experiment(
            "nic: {mtu: 1024, tx_buffer: 9KB, ack_every: 3, retry: 5, pfc: false, pcie: {rate: 100Gbps, latency: 1us}}",
            "transport: {dscp: 28, ack_dscp: 26, cnp_dscp: 48}\ncosts: {post: 150ns}\n",
        )
    )
    assert (its.mtu, its.tx_buffer_bytes, its.ack_every, its.retry, its.post_ns) == (1024, 9000, 3, 5, 150)
    assert (its.pcie_rate_bps, its.pcie_latency_ns, its.nic["pfc"], its.nic["recovery"]) == (
        100e9, 1000, False, "go_back_n"
    )  # fmt: skip
    classes = {k: v for k, v in its.nic.items() if k.endswith(("_dscp", "_class"))}
    assert classes == {
        "data_dscp": 28, "data_class": 4, "ack_dscp": 26, "ack_class": 3, "cnp_dscp": 48, "cnp_class": 6,
    }  # fmt: skip


@pytest.mark.parametrize(("rx_buffer", "xoff", "xon"), [("512KiB", 0, 0), ("20KB", 10_000, 1808), ("10KB", 5000, 0)])
def test_a_small_receive_buffer_pauses_from_half_of_it_on(rx_buffer: str, xoff: int, xon: int) -> None:
    """XON is two packets below XOFF, or at nothing."""
    nic = hardware_of(experiment(f"nic: {{rx_buffer: {rx_buffer}}}")).nic
    if not xoff:  # all but what the cable needs
        xoff = 512 * 1024 - hardware_of(experiment("nic: {}")).switch["headroom_bytes"]
        xon = xoff - 2 * 4096
    assert (nic["rx_xoff_bytes"], nic["rx_xon_bytes"]) == (xoff, xon)


def test_scale_up_domains_have_a_network_of_their_own() -> None:
    rail = "rail: {servers: 2, gpus: 2}"
    its = hardware_of(experiment("scale_up: {rate: 900Gbps, delay: 200ns}", topology=rail))
    assert (its.scale_up_rate_bps, its.scale_up_delay_ns) == (900e9, 200)
    hardware_of(experiment("scale_up: null", topology=rail))


def test_ranks_and_complexes_get_the_costs_of_their_own() -> None:
    costs = "costs: {post: 150ns, wake: 2us, reduce: 90Gbps, convert: 70Gbps}\n"
    its = plan(experiment("", costs))
    rates = {"reduce_bps": 90e9, "convert_bps": 70e9}
    assert its.told([0])["costs"] == {"post_ns": 150, "wake_ns": 2000, "by_channel": False, **rates}
    assert its.complex_costs is None


BLOCK = 14 + 20 + 8 + 12 + 4 + 24 + 24 + 4 * 256
"""A packet of 256 elements on a cable: Ethernet, IPv4, UDP, BTH, ICRC, our header, FCS with preamble and gap."""


def round_trip_ns(rate: float, delay: float, switches: int, memory: int = 1) -> float:
    """To the accelerators and back: cables and, at each switch, in, out and a second pass; memories over PCIe."""
    cables = 2 * (switches + 1) * (delay + BLOCK * 8e9 / rate)
    return cables + 3 * switches * 500 + memory * (500 + 1024 * 8e9 / 512e9)


CLOS = "clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}"


@pytest.mark.parametrize(
    ("fabric", "topology", "server", "slots"),
    [
        ("cable: {rate: 400Gbps}", "star: {hosts: 4}", False, 256),  # 181.7 packets in a round trip
        ("cable: {rate: 10Gbps}", "star: {hosts: 4}", False, 16),  # 8.4
        ("cable: {rate: 25Gbps}", "star: {hosts: 4}", False, 16),  # 15.1
        ("cable: {rate: 25Gbps}", "star: {hosts: 4}", True, 32),  # 18.0, with two more ways through a memory
        ("cable: {rate: 400Gbps}", CLOS, False, 512),  # 407
        ("host_cable: {rate: 25Gbps}", CLOS, False, 64),  # 34.9: the slowest cable counts
        ("cable: {delay: 10ms}", "star: {hosts: 4}", False, 65535),
    ],
)
def test_slots_keep_a_cable_full(fabric: str, topology: str, server: bool, slots: int) -> None:
    its = experiment(fabric, topology=topology)
    basis = Basis(its)
    assert aggregation.slots(basis.fabric, basis.worst_cable, basis.switches, 256, server=server) == slots


def sum_ns(its: Experiment, slots: int, *, groups: int = 1, server: bool = False) -> float:
    """The longest that a sum of 256 elements of four ranks may take."""
    basis = Basis(its)
    where = basis.fabric, basis.worst_cable, basis.switches, 256, slots, 4
    return aggregation.timeout_ns(*where, groups=groups, reduce_bps=its.costs.reduce, server=server)


@pytest.mark.parametrize(
    ("fabric", "more", "groups", "server", "ns"),
    [
        # docs/in-network.md: 9.9 us for 256 slots at 400 Gb/s, 22 us for 16 at 10 Gb/s
        ("", "", 1, False, 256 * BLOCK * 8 / 400 + round_trip_ns(400e9, 500, 1)),
        ("", "", 2, False, 2 * 256 * BLOCK * 8 / 400 + round_trip_ns(400e9, 500, 1)),
        # PCIe is slower than the cable
        ("nic: {pcie: {rate: 50Gbps}}", "", 1, False, 256 * 1024 * 8 / 50 + round_trip_ns(400e9, 500, 1) + 147.84),
        # an accelerator takes in four contributions and gives one sum
        (
            "switch: {accelerator: {rate: 100Gbps, latency: 1us}}", "", 1, False,
            256 * 5 * BLOCK * 8 / 100 + round_trip_ns(400e9, 500, 1) + 2 * 1000,
        ),
        # all that others have goes over the server's cable, or through its adder
        ("", "costs: {reduce: 10Tbps}\n", 1, True, 256 * 3 * BLOCK * 8 / 400 + round_trip_ns(400e9, 500, 1, 3)),
        ("", "costs: {reduce: 100Gbps}\n", 1, True, 256 * 3 * 1024 * 8 / 100 + round_trip_ns(400e9, 500, 1, 3)),
        ("cable: {rate: 1Mbps}", "", 2, False, 1e9),
    ],
)  # fmt: skip
def test_a_sum_may_take_as_long_as_all_slots_before_it_and_the_way(
    fabric: str, more: str, groups: int, server: bool, ns: float
) -> None:
    its = experiment(fabric, more)
    assert sum_ns(its, 256, groups=groups, server=server) == pytest.approx(ns)


def test_the_worst_cable_has_the_least_rate_and_the_longest_delay_of_all() -> None:
    its = experiment("cables: {'nic:0': {rate: 10Gbps}, 'nic:1': {delay: 9us}}")
    assert sum_ns(its, 16) == pytest.approx(16 * BLOCK * 8 / 10 + round_trip_ns(10e9, 9000, 1))
    assert [Basis(its).line_rate_bps(ranks) for ranks in ([0, 1], [1, 2])] == [10e9, 400e9]
    assert Basis(experiment("")).line_rate_bps([0]) == 400e9


@pytest.mark.parametrize(
    ("algorithms", "written", "shared"),
    [
        ([], "", 0),
        (["in_network"], "", 0),
        (["in_network_best_effort"], "", 600),
        (["in_network", "in_network_best_effort"], "", 300),
        (["in_network", "in_network_best_effort"], ", shared_slots: 7", 7),
        (["in_network"], ", shared_slots: 0", 0),
    ],
)
@pytest.mark.parametrize("as_tasks", [False, True])
def test_slots_are_shared_as_the_workload_needs_them(
    algorithms: list[str], written: str, shared: int, as_tasks: bool
) -> None:
    does = [f"collective: all_reduce, algorithm: {name}" for name in [*algorithms, "ring"]]
    steps = "".join(f"- {{{one}, sizes: [4KiB]}}\n" for one in does)
    if as_tasks:
        listed = ", ".join(f"{{id: t{n}, {one}, group: g, size: 4KiB}}" for n, one in enumerate(does))
        steps = f"- tasks: {{groups: {{g: [[0, 1, 2, 3]]}}, list: [{{id: c, compute: 1us}}, {listed}]}}\n"
    its = hardware_of(experiment(f"switch: {{accelerator: {{slots: 600, fan_in: 9{written}}}}}", f"workload:\n{steps}"))
    assert its.accelerator == {
        "slots": 600, "elements": 256, "fan_in": 9, "shared_slots": shared, "latency_ns": 0.0
    }  # fmt: skip


def test_where_ecn_begins_and_ends_is_told_of_every_port() -> None:
    """A port whose cable differs has thresholds of its own."""
    rows = thresholds.marking(experiment("cables: {'nic:1': {rate: 100Gbps}}, switch: {ecn: {classes: [3]}}"))
    at = {(row["node"], row["port"], row["priority"]): (row["kmin_bytes"], row["kmax_bytes"]) for row in rows}
    fast, slow = (800_000, 3_200_000), (400_000, 1_600_000)
    assert at == {("sw0", port, 3): slow if port == 2 else fast for port in (1, 2, 3, 4)}


def test_sizes_are_shown_as_people_read_them() -> None:
    row: dict[str, Any] = {"a": 999, "b": 217_400, "c": 1_000_000, "d": None, "e": "x", "f": 0.5}
    assert thresholds.readable(row) == {"a": "0.999 KB", "b": "217.4 KB", "c": "1 MB", "d": None, "e": "x", "f": 0.5}


def test_many_names_are_cut_and_few_are_not() -> None:
    rows = [thresholds.nic_rows(experiment("", topology=f"star: {{hosts: {n}}}"))[0]["nics"] for n in (3, 4, 5)]
    assert rows == ["h0,h1,h2", "h0,h1,h2,h3", "h0,h1,h2 and 2 more"]


def test_how_many_results_workers_print_and_whether_they_begin_anew() -> None:
    """Each rank one an iteration and size, each flow one from either end; tasks those of the ranks that have some."""
    workload = (
        "- {collective: all_reduce, sizes: [4KiB, 8KiB], iterations: 3}\n"
        "- {flows: [{from: 0, to: 1, size: 4KiB}, {from: 2, to: 1, size: 4KiB}, {from: 1, to: 3, size: 4KiB}]}\n"
        "- {tasks: {list: [{id: c, compute: 1us, ranks: [0, 3]}], iterations: 5}}\n"
    )
    its = plan(experiment("", f"workload:\n{workload}"))
    assert its.measurements == 4 * 2 * 3 + 2 * 3 + 2 * 5
    assert "repeat" not in its.told() and its.repeated().told()["repeat"] is True
