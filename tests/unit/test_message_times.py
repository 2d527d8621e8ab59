"""Closed forms of single messages and blocks, by the arithmetic of docs/closed-form.md and docs/best-effort.md."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from testbed.experiment import loads
from testbed.predict import predict
from tests.parts.uniform_paths import Uniform, closed_form_ns
from workloads.base.entry import NoModel, named
from workloads.collectives.schedule import schedule_of
from workloads.registry import find
from workloads.times import expected, followed
from workloads.times.case import Case
from workloads.times.messages import Costs, Path, flow_ns, received_ns, sent_ns
from workloads.times.switches.in_network import best_effort_all_reduce_ns, in_network_all_reduce_ns
from workloads.times.switches.multicast import Multicast

COSTS = Costs(post_ns=100.0, wake_ns=70.0, reduce_bps=800e9)
R, PCIE = 400e9 / 8e9, 512e9 / 8e9  # bytes per ns


def way(switches: int = 1) -> Path:
    return Path.uniform(switches, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0)


def one_packet(size: int, switches: int, *, headers: int = 20) -> float:
    """Received: doorbell, fetch, store and forward, write. `headers`: RETH and immediate."""
    wire = 82 + headers + -(-size // 4) * 4
    return 3 * 500 + 2 * size / PCIE + (switches + 1) * (wire / R + 500) + switches * 500


@pytest.mark.parametrize("switches", [1, 3])
@pytest.mark.parametrize("size", [5, 4096])
def test_the_parts_of_one_packet_follow_each_other(size: int, switches: int) -> None:
    there = one_packet(size, switches)
    assert received_ns(size, way(switches), COSTS) == pytest.approx(there)
    back = (switches + 1) * (86 / R + 500) + switches * 500
    assert sent_ns(size, way(switches), COSTS) == pytest.approx(there - size / PCIE - 500 + back + 500)


def test_a_flow_of_a_packet_takes_what_the_page_says() -> None:
    assert flow_ns(4096, way(), Costs(post_ns=100.0)) == pytest.approx(4835.36)


def test_in_any_order_each_packet_of_a_write_has_its_address() -> None:
    """Over two cables n packets take as long as n + 1 over one. In order the first counts twice, which alone has
    a RETH, and the last once, with an immediate; else each has a RETH, and the last counts twice.
    """
    in_order, any_order = Costs(post_ns=100.0), Costs(post_ns=100.0, reths=True)
    for packets in (2, 3, 10):
        more = flow_ns(packets * 4096, way(), any_order) - flow_ns(packets * 4096, way(), in_order)
        assert more == pytest.approx(((packets + 1) * 16 + 2 * 4 - (2 * 16 + 4)) / R)
    assert flow_ns(4096, way(), any_order) == flow_ns(4096, way(), in_order)
    assert any_order.message_wire_bytes(4096 + 1) - in_order.message_wire_bytes(4096 + 1) == 16
    assert any_order.headers_bytes(3 * 4096) == 3 * (82 + 16)
    sent = [received_ns(5 * 4096, way(), costs, reth=False, imm=False) for costs in (in_order, any_order)]
    assert sent[0] == sent[1]


def test_packets_follow_each_other_at_the_pace_of_the_slowest_stage() -> None:
    """Of a cable 4178 bytes each; the first packet has 16 more, the last 4."""
    many = received_ns(10 * 4096, way(), COSTS) - received_ns(9 * 4096, way(), COSTS)
    assert many == pytest.approx(4178 / R)
    slow = Costs(pcie_rate_bps=100e9)
    many = received_ns(10 * 4096, way(), slow) - received_ns(9 * 4096, way(), slow)
    assert many == pytest.approx(4096 / (100 / 8))


@pytest.mark.parametrize(("algorithm", "headers"), [("write", 20), ("send", 0)])
def test_a_ping_pong_is_two_messages(algorithm: str, headers: int) -> None:
    found = closed_form_ns(find("ping_pong", algorithm), 2, 64, way(), COSTS)
    assert found == pytest.approx(2 * (100 + one_packet(64, 1, headers=headers) + 70))


BLOCK = 106 + 4 * 256


def test_a_block_goes_to_the_server_and_back_and_is_added_up_there() -> None:
    """Best effort, two ranks: over a switch that adds up at 100 Gb/s, through a host's memory and adder, and back."""
    one_way = 2 * (BLOCK / R + 500) + 500
    memory = 500 + 1024 / PCIE
    adds = 1024 * 8 / 800
    again = (1 + 1) * BLOCK * 8 / 100 + 500
    block = memory + one_way + again + memory + adds + memory + one_way
    found = best_effort_all_reduce_ns(2, 1024, way(), COSTS, accelerators=[(100e9, 1)], fixed_point=False)
    assert found == pytest.approx(100 + 500 + block + memory + 70)  # posted, doorbell; written back, noticed
    more = best_effort_all_reduce_ns(2, 2048, way(), COSTS, accelerators=[(100e9, 1)], fixed_point=False)
    assert more - found == pytest.approx(BLOCK * 8 / 100), "the slowest stage is the accelerator"
    slow = Costs(reduce_bps=50e9)
    one, two = (
        best_effort_all_reduce_ns(2, blocks * 1024, way(), slow, accelerators=[], fixed_point=False)
        for blocks in (1, 2)
    )
    assert two - one == pytest.approx(1024 * 8 / 50)


def test_a_short_last_block_is_written_behind_the_full_one_before_it() -> None:
    """It overtakes it neither on a cable nor over PCIe: one element more takes that element's time."""
    for all_reduce_ns in (in_network_all_reduce_ns, best_effort_all_reduce_ns):
        one, more = (
            all_reduce_ns(2, size, way(), COSTS, fixed_point=False, accelerators=[(400e9, 1)]) for size in (1024, 1028)
        )
        assert more - one == pytest.approx(4 / PCIE)


@pytest.mark.parametrize(("slots", "rounds"), [(8, 1), (4, 2)])
def test_blocks_of_a_round_follow_each_other_and_rounds_wait_for_their_slots(slots: int, rounds: int) -> None:
    one = in_network_all_reduce_ns(2, 1024, way(), COSTS, slots=slots, fixed_point=False)
    all_ = in_network_all_reduce_ns(2, 8 * 1024, way(), COSTS, slots=slots, fixed_point=False)
    line = BLOCK / R
    if rounds == 1:
        assert all_ - one == pytest.approx(7 * line)
    else:  # the first block of the second round goes when the first sum is there
        assert all_ - one == pytest.approx(one - (100 + 500 + 500 + 1024 / PCIE + 70) + 3 * line)


@pytest.mark.parametrize(("apart", "blocks"), [(1.0, 8), (0.25, 8)])
def test_sums_that_one_wants_share_its_cable_with_results_without_elements(apart: float, blocks: int) -> None:
    """A frame of headers alone beside each: of the blocks that are the last rank's, at the end."""
    empty = BLOCK - 1024
    all_ = in_network_all_reduce_ns(2, blocks * 1024, way(), COSTS, slots=8, fixed_point=False)
    one = in_network_all_reduce_ns(2, blocks * 1024, way(), COSTS, slots=8, fixed_point=False, apart=apart)
    assert one - all_ == pytest.approx(apart * blocks * empty / R)


@pytest.mark.parametrize(("collective", "share"), [("broadcast", 1), ("all_gather", 3 / 4)])
def test_multicast_over_equal_paths_keeps_each_ranks_cable_busy(collective: str, share: float) -> None:
    """With all of the root's datagrams, or with those of the three other ranks."""
    entry = find(collective, "multicast")
    times = [closed_form_ns(entry, 4, datagrams * 4096, way(), COSTS) for datagrams in (32, 64)]
    assert times[1] - times[0] == pytest.approx(32 * share * (82 + 4096) / R, rel=0.01)


def test_a_cutoff_that_ends_while_datagrams_are_due_has_no_model() -> None:
    assert Multicast(9e3, 5e3).in_time(5e3) == 9e3
    with pytest.raises(NoModel, match="4.9us ends before the first datagrams have come") as told:
        Multicast(9e3, 5001.0).in_time(4900.0)
    assert told.value.hint == "6us is enough here; there is no model of repair"


def test_where_nobody_sends_to_others_nothing_takes_time() -> None:
    entry = find("all_to_all", "spread")
    case = Case.of(entry, 1, 4096, 4, {}, 1, COSTS, Uniform(way()))
    assert named(entry.time)(case) == 0.0


@pytest.mark.parametrize(("name", "senders"), [("m2n", 2), ("n2m", 3)])
def test_a_receiver_waits_for_a_sender_that_serves_others_meanwhile(name: str, senders: int) -> None:
    """A sender's cable has 4 units, two of them for a receiver whose cable has 5, three of them from another sender.

    Served evenly, the first sender gives each of three receivers a third of its rate, the other one half of it: after
    3 units of time one unit and 1.5 are left, which share the receiver's cable for 2; the last half has it alone.
    """
    unit = 1 << 24
    options = {"senders": senders, "parts": [[1, 1, 2], [0, 0, 3]]}
    entry, wire = find(name, "write"), unit * (1 + 82 / 4096)
    case = Case.of(entry, 5, 4 * unit, 4, options, 1, COSTS, Uniform(way()))
    assert named(entry.time)(case) == pytest.approx(5.5 * wire / R, rel=0.003)


@pytest.mark.parametrize(("algorithm", "headers"), [("write", 20), ("send", 0)])
def test_a_ping_pong_is_predicted_as_two_messages(algorithm: str, headers: int) -> None:
    step = f"{{collective: ping_pong, algorithm: {algorithm}, sizes: [4KiB]}}"
    (found,) = predict(loads(f"name: t\nfabric: {{topology: {{star: {{hosts: 2}}}}}}\nworkload: [{step}]")).figures
    assert found.time_ns == pytest.approx(2 * (100 + one_packet(4096, 1, headers=headers)))


def test_what_has_been_followed_is_known_until_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Any, Any] = {}
    monkeypatch.setattr(followed, "_ENDED", known)
    monkeypatch.setattr(followed, "_MOST_KNOWN", 2)
    entry = find("all_reduce", "ring")

    def takes(size: int) -> float | None:
        case = Case.of(entry, 3, size, 4, {}, 1, COSTS, Uniform(way()))
        return expected.replayed(case, schedule_of(entry), inf)

    one, two, three = (takes(size) for size in (3 << 12, 3 << 13, 3 << 14))
    assert one and two and three and one < two < three and len(known) == 2
    assert [takes(size) for size in (3 << 14, 3 << 12)] == [three, one]
