"""What NICs keep out of order by default: four round trips of the longest path, with what waits in the sender's NIC."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.hardware import hardware_of

CLOS = "clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}"


def kept(cable: str, topology: str = "star: {hosts: 2}", transport: str = "recovery: selective_repeat") -> int:
    text = f"""
name: kept
fabric: {{topology: {{{topology}}}, cable: {{{cable}}}}}
transport: {{{transport}}}
workload: [{{flows: [{{from: 1, to: 0, size: 1MB}}]}}]
"""
    return int(hardware_of(loads(text)).nic["reorder_packets"])


@pytest.mark.parametrize(
    ("cable", "topology", "packets"),
    [
        ("rate: 400Gbps, delay: 500ns", "star: {hosts: 2}", 1024),
        # 41 us of packets that take PCIe 64 ns each, 32 in the NIC, 16 of an acknowledgement: 4 x 690
        ("rate: 800Gbps, delay: 10us", "star: {hosts: 2}", 4096),
        ("rate: 800Gbps, delay: 10us", CLOS, 8192),
        ("rate: 800Gbps, delay: 1ms", CLOS, 65536),
    ],
)
def test_the_default_follows_the_longest_path(cable: str, topology: str, packets: int) -> None:
    assert kept(cable, topology) == packets


def test_what_is_written_holds() -> None:
    assert kept("rate: 800Gbps", transport="recovery: selective_repeat, reorder_packets: 7") == 7


def keys(transport: str) -> dict[str, object]:
    nic = hardware_of(
        loads(f"""
name: keys
fabric: {{topology: {{star: {{hosts: 2}}}}}}
transport: {{{transport}}}
workload: [{{flows: [{{from: 1, to: 0, size: 1MB}}]}}]
""")
    ).nic
    return {k: nic[k] for k in ("sack_bits", "sack_every", "loss_after_ns", "probes", "ordering") if k in nic}


def test_bitmaps_and_times_are_keys_of_their_own() -> None:
    both = "recovery: selective_repeat, sack: {every: 4}, loss: {probe: false}"
    assert keys("recovery: selective_repeat") == {}
    idle_ns = 4 * 500 + 2 * 500 + 2 * 2 * 90  # there and back: cables, switches, a packet on two cables at most
    found = keys(both)
    assert (found["sack_bits"], found["sack_every"], found["probes"]) == (64, 4, False)
    assert 3000 < found["loss_after_ns"] < idle_ns + 1000  # type: ignore[operator]
    assert keys("recovery: selective_repeat, loss: {after: 7us}") == {"loss_after_ns": 7000, "probes": True}
    assert keys("recovery: selective_repeat, ordering: any") == {"ordering": "any"}


@pytest.mark.parametrize("key", ["sack: {}", "loss: {}", "ordering: any"])
def test_they_are_of_selective_repeat(key: str) -> None:
    with pytest.raises(InputError, match=f"{key.partition(': {')[0]} is of selective repeat") as told:
        keys(f"recovery: go_back_n, {key}")
    assert "selective_repeat" in str(told.value.hint)


@pytest.mark.parametrize("step", ["all_reduce, algorithm: omnireduce", "rpc"])
def test_what_needs_its_messages_in_turn_is_refused_in_any_order(step: str) -> None:
    text = f"""
name: turn
fabric: {{topology: {{star: {{hosts: 4}}}}}}
transport: {{recovery: selective_repeat, ordering: any}}
workload: [{{collective: all_reduce, sizes: [1KB]}}, {{collective: {step}, sizes: [1KB]}}]
"""
    with pytest.raises(InputError, match=rf"{step.split(',')[0]} by \w+ needs its messages in the order") as told:
        loads(text)
    assert told.value.where.endswith("workload[1]") and told.value.hint == "transport: {ordering: in_order}"
