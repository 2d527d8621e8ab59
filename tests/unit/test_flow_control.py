"""Credits and retries of cables: what follows from a file at each cable, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hardware import bounds
from hardware.config import fabricd_config
from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.plan.hardware import hardware_of

LEAVES = "topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 1}}"


def experiment(fabric: str, more: str = "") -> Experiment:
    return loads(f"name: x\nfabric: {{{fabric}}}\n{more}", "x.yaml")


def cables(e: Experiment) -> dict[str, dict[str, Any]]:
    config = fabricd_config(e.build_fabric(), hardware_of(e), fabric_id="ab", clock={"mode": "virtual"})
    return {c["name"]: {k: v for k, v in c.items() if k in ("credits", "retry")} for c in config["cables"]}


def test_left_out_a_cable_has_neither() -> None:
    assert set(map(str, cables(experiment(LEAVES)).values())) == {"{}"}


def test_each_cable_has_what_was_said_of_it_last() -> None:
    e = experiment(
        f"{LEAVES}, cable: {{flow_control: credits, retry: {{buffer: 9KB}}}}, "
        "host_cable: {flow_control: pfc}, cables: {'cable:leaf0-spine0': {retry: none}, 'nic:1': {delay: 1us}, "
        "'switch:leaf1': {flow_control: {credits: {room: 60KB, resync: null}}}}"
    )
    retry = {"retry": {"buffer_bytes": 9000}}
    room = bounds.credit_room_bytes(400e9, 500, 500, 4096 + 12 + 14 + 20 + 8 + 4 + 16 + 4 - 4 + 4)
    usual = {"credits": {"room_bytes": room, "classes": [3, 4], "resync_ns": 100_000.0}}
    own = {"credits": {"room_bytes": 60_000, "classes": [3, 4], "resync_ns": 0}}
    assert cables(e) == {
        "h0-leaf0": retry,
        "h1-leaf1": own | retry,
        "leaf0-spine0": usual,
        "leaf1-spine0": own | retry,
    }
    assert loads(str(e.resolved()).replace("None", "null"), "x.yaml") == e


@pytest.mark.parametrize(("rate", "delay"), [(400e9, 500.0), (100e9, 500.0), (400e9, 8000.0), (800e9, 50.0)])
def test_what_is_left_open_follows_from_rate_and_delay(rate: float, delay: float) -> None:
    """Room and buffer take at least what is sent until news of it is back, and little more."""
    e = experiment(
        f"{LEAVES}, cable: {{rate: {rate / 1e9:g}Gbps, delay: {delay}ns, flow_control: credits, retry: {{}}}}, "
        "nic: {rx_buffer: 4MB}"
    )
    made = cables(e)["leaf0-spine0"]
    for size, loop in (
        (made["credits"]["room_bytes"], 2 * delay + 500),
        (made["retry"]["buffer_bytes"], 2 * delay),
    ):
        assert loop * rate / 8e9 < size < loop * rate / 8e9 * 66 * 64 / 4178 + 6 * 66 * 64


@pytest.mark.parametrize(
    ("fabric", "what", "hint"),
    [
        ("cable: {flow_control: credit}", "'credit' is no flow control", "write pfc, credits or"),
        ("cable: {flow_control: null}", "null is no flow control", "write pfc, credits or"),
        ("cable: {flow_control: {credits: {rom: 1KB}}}", "unknown key 'rom'", "did you mean 'room'?"),
        ("cable: {flow_control: {credits: {room: 4KB}}}", "never holds a frame of 4178", "4178B or more"),
        ("cable: {flow_control: {credits: {room: 400KB}}}", "a NIC's receive buffer", "fabric.nic.rx_buffer: 800000B"),
        (
            "cable: {flow_control: {credits: {room: 200KB}}}, switch: {buffer: 700KB}",
            "rooms of 800000 bytes, of all ports and lossless classes, do not fit into leaf0's buffer",
            "fabric.switch.buffer: 800000B",
        ),
        (
            "host_cable: {retry: {}}, switch: {cut_through: true}",
            "a cut-through switch has sent on a frame before the cable knows that it is damaged",
            "fabric.switch.cut_through: false",
        ),
        ("cables: {all: {}}", "this changes nothing", "give a rate, a delay, flow_control or retry"),
    ],
)
def test_a_mistake_says_what_is_allowed(fabric: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as told:
        experiment(f"{LEAVES}, {fabric}")
    assert what in told.value.what and hint in (told.value.hint or "")


@pytest.mark.parametrize(
    ("kept", "fault", "what"),
    [
        ("pfc", "fault: credit_leak, on: 'cable:h0-leaf0', rate: 0.1", "has pauses, and credit_leak is for credits"),
        ("credits", "fault: pause_storm, on: 'nic:0'", "has credits, and pause_storm is for pauses"),
        ("credits", "fault: pfc_off, on: all", "has credits, and pfc_off is for pauses"),
        ("credits", "fault: small_headroom, on: 'port:leaf0:1', size: 1KB", "and small_headroom is for pauses"),
    ],
)
def test_a_fault_of_the_other_kind_is_refused(kept: str, fault: str, what: str) -> None:
    with pytest.raises(InputError) as told:
        experiment(f"{LEAVES}, cable: {{flow_control: {kept}}}", f"inject: [{{{fault}}}]")
    assert what in told.value.what and told.value.hint.startswith("fabric: {cable: {flow_control: ")


def test_a_fault_may_strike_where_some_cables_are_of_its_kind() -> None:
    mixed = f"{LEAVES}, host_cable: {{flow_control: credits}}"
    for fault in ("credit_leak, on: all, rate: 0.1", "pfc_off, on: all"):
        assert experiment(mixed, f"inject: [{{fault: {fault}}}]").inject
