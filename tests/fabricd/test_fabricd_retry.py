"""Retries by a cable's near end against arithmetic: what a loss costs, what a replay buffer lets through, order."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import drops, frame_bytes, nic, port, send, star, switch
from topologies.graph.frames import ser_ns

LINE, DELAY = 400e9, 500.0
FRAME = frame_bytes()
NOTE = 64e9 / LINE
TRIES = 16
"""So often in a row a frame may be damaged."""


def round_trip(frame: int) -> float:
    """From a frame's start to the note about it: its last bit comes in, and the note comes back."""
    return ser_ns(frame, LINE) + DELAY + NOTE + DELAY


def hardware(buffer: int, hosts: int = 2, **more: Any) -> Hardware:
    kind = {"retry": {"buffer_bytes": buffer}}
    own = {"switch": switch(headroom=10**5), "nic": nic(), "timeout_ns": 1e9} | more
    return Hardware(of_cable={f"h{n}-sw0": kind for n in range(hosts)}, **own)


def strike(
    f: BareFabric, select: dict[str, Any], *, effect: str = "drop", of: str = "h0:1", shown: str = "crc"
) -> None:
    told = {"shown": shown} if effect == "drop" else {}
    rule = {"effect": effect, "ports": [of], "select": select, "match": {"classes": [3]}, **told}
    f.fabricd.request("inject", fault="f", primitive="frames", **rule)


@pytest.mark.parametrize("effect", ["drop", "corrupt"])
@pytest.mark.parametrize("lost", [1, 2, 7])
def test_each_loss_of_a_lone_frame_costs_a_round_trip_to_the_picosecond(lost: int, effect: str) -> None:
    size = 1000
    with star(2, hardware(10**6)) as f:
        (sound,) = send(f, [(0, 1, size, 0)])
        strike(f, {"first": lost}, effect=effect)
        (struck,) = send(f, [(0, 1, size, 0)])
        assert struck - sound == pytest.approx(lost * round_trip(frame_bytes(size) + 16), abs=1e-3)  # with its address
        counts = port(f, "h0", 1)
        assert counts["llr_replays"] == counts["llr_replayed_frames"] == lost
        assert not drops(f) and not f.nic(0)["retransmitted"] and not f.nic(1)["rx_icrc_encapsulated"]


@pytest.mark.parametrize("n", [40, 101, 333])
def test_on_a_full_cable_a_loss_costs_the_frames_of_a_round_trip_and_order_is_kept(n: int) -> None:
    """What left until the note is there is sent once more: whole frames, and no queue pair hears of it."""
    frames = 1000
    with star(2, hardware(10**6)) as f:
        (sound,) = send(f, [(0, 1, frames * 4096, 0)])
        strike(f, {"every": n})
        (struck,) = send(f, [(0, 1, frames * 4096, 0)])
        counts, again = port(f, "h0", 1), math.ceil(round_trip(FRAME) / ser_ns(FRAME, LINE))
        losses = counts["llr_replays"]
        # of frames that follow a damaged one the fault sees each once more, and none while they are thrown away
        assert losses == (frames + losses) // n
        assert counts["llr_replayed_frames"] == pytest.approx(losses * again, abs=again)
        assert (struck - sound) / losses == pytest.approx(again * ser_ns(FRAME, LINE), rel=0.01)
        assert f.nic(1)["out_of_sequence"] == 0 and f.nic(0)["retransmitted"] == 0 and not drops(f)


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_random_losses_cost_what_go_back_n_does(share: float) -> None:
    """(1 + (N - 1) p) / (1 - p), N frames sent again for each loss (Leon-Garcia, Widjaja: Communication Networks)."""
    frames, again = 4000, math.ceil(round_trip(FRAME) / ser_ns(FRAME, LINE))
    with star(2, hardware(10**6)) as f:
        (sound,) = send(f, [(0, 1, frames * 4096, 0)])
        strike(f, {"share": share})
        (struck,) = send(f, [(0, 1, frames * 4096, 0)])
        assert struck / sound == pytest.approx((1 + (again - 1) * share) / (1 - share), rel=0.05)


@pytest.mark.parametrize("frames", [1, 4, 9, 12, 13, 20])
def test_a_replay_buffer_lets_so_many_frames_through_each_round_trip(frames: int) -> None:
    """A frame may start as long as there is any room, so that the last may go beyond it."""
    buffer = (FRAME + 4) * (frames - 1) + 1
    with star(2, hardware(buffer)) as f:
        (short,), (long,) = (send(f, [(0, 1, n * 4096, 0)]) for n in (600, 1200))
        expected = max(ser_ns(FRAME, LINE), round_trip(FRAME) / frames)
        assert (long - short) / 600 == pytest.approx(expected, rel=2e-3)
        full = port(f, "h0", 1).get("llr_buffer_full", 0)
        assert full == (0 if expected == ser_ns(FRAME, LINE) and frames > 13 else pytest.approx(1800, abs=40))


def test_what_a_switch_does_to_frames_no_cable_mends() -> None:
    with star(2, hardware(10**6, timeout_ns=50_000.0)) as f:
        strike(f, {"first": 1}, shown="acl")
        send(f, [(0, 1, 100_000, 0)])
        assert drops(f) == {"fault": 1} and f.nic(0)["retransmitted"] > 0 and "llr_replays" not in port(f, "h0", 1)


def test_a_frame_that_no_try_brings_over_is_given_up() -> None:
    with star(2, hardware(10**6, timeout_ns=50_000.0)) as f:
        strike(f, {"first": TRIES})
        send(f, [(0, 1, 1000, 0)])
        assert drops(f) == {"fault": 1} and port(f, "h0", 1)["llr_replays"] == TRIES - 1
        assert f.nic(0)["local_ack_timeout_err"] == 1


def test_a_pause_does_not_hold_up_what_was_sent_already() -> None:
    """A NIC pauses its sender while a frame is being sent once more: it comes in all the same, and nothing new does."""
    with star(2, hardware(10**6)) as f:
        strike(f, {"every": 20}, of="sw0:2")
        storm = {"values": {"storm": [3]}, "at_ns": 5000, "for_ns": 20_000}
        f.fabricd.request("inject", fault="s", primitive="params", nic=1, **storm)
        (time,) = send(f, [(0, 1, 1_000_000, 0)])
        assert time > 25_000 and not drops(f) and f.nic(1)["out_of_sequence"] == 0


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    hosts=st.integers(2, 5),
    buffer=st.sampled_from([1, 9000, 10**6]),
    share=st.sampled_from([0.001, 0.05, 0.4]),
    kilobytes=st.integers(1, 300),
    cut=st.sampled_from([None, 3000.0, 11_000.0]),
)
def test_whatever_is_damaged_no_queue_pair_hears_of_it_unless_the_cable_is_cut(
    hosts: int, buffer: int, share: float, kilobytes: int, cut: float | None
) -> None:
    with star(hosts, hardware(buffer, hosts, timeout_ns=100_000.0)) as f:
        rule = {"primitive": "frames", "effect": "drop", "shown": "crc", "select": {"share": share}}
        ports = [f"h{n}:1" for n in range(hosts)] + [f"sw0:{n + 1}" for n in range(hosts)]
        f.fabricd.request("inject", fault="f", ports=ports, **rule)
        if cut is not None:
            values = {"up": False}
            f.fabricd.request(
                "inject", fault="c", primitive="params", cable="h0-sw0", values=values, at_ns=cut, for_ns=2000
            )
        send(f, [(n, 0, kilobytes * 1000, 0) for n in range(1, hosts)])
        assert set(drops(f)) <= (set() if cut is None else {"cable"})
        if cut is None:
            assert all(f.nic(n)["retransmitted"] == f.nic(n)["out_of_sequence"] == 0 for n in range(hosts))
        used = [link["retry"]["used_bytes"] for link in f.counters()["links"]]
        assert not any(used) or cut is not None
