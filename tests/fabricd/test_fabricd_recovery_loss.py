"""Recovery from loss: go-back-N against its model, selective repeat against what was lost."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware import bounds
from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import drops, frame_bytes, nic, send, star, switch
from tests.parts.wire_view import ACK, watched
from topologies.graph import frames
from workloads.verbs import wire

MTU, LINE = 4096, 400e9
FORWARD = ["h1:1"]


def hardware(recovery: str = "go_back_n", *, timeout_ns: float = 100_000, tx_frames: int = 31, **more: Any) -> Hardware:
    return Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64),
        nic={**nic(), "recovery": recovery, **more},
        timeout_ns=timeout_ns,
        tx_buffer_bytes=tx_frames * frame_bytes(),
    )


def lose(f: BareFabric, select: dict[str, Any], *, name: str = "loss", ports: list[str] = FORWARD, **more: Any) -> None:
    f.fabricd.request("inject", fault=name, primitive="frames", effect="drop", ports=ports, select=select, **more)


def cost_of_a_loss(h: Hardware) -> float:
    """ns from the start of a lost packet to the start of its second time (docs/congestion-control.md, go-back-N)."""
    t, nak = frames.ser_ns(frame_bytes(), LINE), frames.ser_ns(frames.ACK_FRAME, LINE)
    way = 2 * h.cable_delay_ns + h.switch_latency_ns
    return 3 * t + way + 2 * nak + way + h.tx_buffer_bytes / frame_bytes() * t


def goodput(p: float, h: Hardware) -> float:
    """Share of the line's packets that are new ones."""
    t = frames.ser_ns(frame_bytes(), LINE)
    return t / (t + p * cost_of_a_loss(h) + p * p / (1 - p) * h.timeout_ns)


@pytest.mark.parametrize("loss", [0.001, 0.01])
@pytest.mark.parametrize("tx_frames", [16, 31])
def test_go_back_n_goodput_follows_its_model(loss: float, tx_frames: int) -> None:
    h = hardware(tx_frames=tx_frames, timeout_ns=20_000)
    packets = 50_000
    with star(2, h) as f:
        lose(f, {"share": loss}, match={"opcodes": ["WRITE_FIRST", "WRITE_MIDDLE"]})
        (time,) = send(f, [(1, 0, packets * MTU, 0)])
        sender = f.nic(1)
    ideal = packets * frames.ser_ns(frame_bytes(), LINE)
    assert ideal / time == pytest.approx(goodput(loss, h), rel=0.05)
    # and with the losses that there were, not just their probability, nearly to the ns
    lost = sender["packet_seq_err"] * cost_of_a_loss(h) + sender["local_ack_timeout_err"] * h.timeout_ns
    assert time == pytest.approx(ideal + lost + bounds.base_rtt_ns(
        1, rate_bps=LINE, delay_ns=500, latency_ns=500, mtu=MTU, pcie_bps=512e9, pcie_ns=500), rel=0.002)  # fmt: skip


@pytest.mark.parametrize("loss", [0.001, 0.01])
def test_selective_repeat_loses_little_more_than_what_was_lost(loss: float) -> None:
    """Each lost packet goes once more, and that is all."""
    packets = 20_000
    took = {}
    for recovery in ("go_back_n", "selective_repeat"):
        h = hardware(recovery, reorder_packets=1024)
        with star(2, h) as f:
            lose(f, {"share": loss}, match={"opcodes": ["WRITE_FIRST", "WRITE_MIDDLE"]})
            (took[recovery],) = send(f, [(1, 0, packets * MTU, 0)])
            sender, lost = f.nic(1), drops(f)["fault"]
    assert sender["retransmitted"] == lost  # (of selective repeat)
    t = frames.ser_ns(frame_bytes(), LINE)
    ideal = (packets + lost) * t + sender["local_ack_timeout_err"] * h.timeout_ns
    assert took["selective_repeat"] == pytest.approx(ideal, rel=0.05)
    assert took["selective_repeat"] < took["go_back_n"]


def _deliver(
    recovery: str, rules: list[dict[str, Any]], size: int, *, reorder_packets: int = 64, seed: int = 1
) -> dict[str, Any]:
    """One write and one send of random bytes through a fabric that has these faults; what came of it."""
    h = hardware(recovery, timeout_ns=30_000, reorder_packets=reorder_packets)

    def change(config: dict[str, Any]) -> None:
        config["seed"] = seed
        for n in config["nics"]:
            n.update(retry=100, mtu=1024)

    with bare_fabric("star", {"hosts": 2}, h, change=change, binary=plain(), sample=FAST) as f:
        pair = f.pair(1, 0, size)
        pair.memory_a[:] = os.urandom(size)
        for i, rule in enumerate(rules):
            f.fabricd.request("inject", fault=f"x{i}", primitive="frames", **rule)
        pair.park()
        with watched(f, "h0:1") as seen:
            (done,) = pair.a.wait(1, wire.FOREVER, pair.write(size))
            pair.done()
            f.fabricd.request("quiesce", 60.0)
        assert done.status == 0
        assert pair.memory_b[:] == pair.memory_a[:]
        came = [fr.psn for fr in seen["frames"] if not fr.out and fr.opcode != ACK]
        counters = f.counters()
        return {"came": came, "sender": counters["nics"][1], "receiver": counters["nics"][0], "drops": drops(f),
                "time_ps": done.time_ps}  # fmt: skip


_share = st.sampled_from([0.01, 0.1, 0.3])
_rules = st.lists(
    st.one_of(
        st.builds(lambda s, p: {"effect": "drop", "select": {"share": s}, "ports": [p]}, _share,
                  st.sampled_from(["h1:1", "h0:1"])),
        st.builds(lambda n, p: {"effect": "drop", "select": {"first": n}, "ports": [p]}, st.integers(1, 20),
                  st.sampled_from(["h1:1", "h0:1"])),
        st.builds(lambda s: {"effect": "duplicate", "select": {"share": s}, "ports": ["h1:1"]}, _share),
        st.builds(lambda s: {"effect": "delay", "delay_ns": 0, "jitter_ns": 3000, "reorder": True,
                             "select": {"share": s}, "ports": ["h1:1"]}, _share),
    ), min_size=1, max_size=3)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["selective_repeat", "go_back_n"]),
    _rules,
    st.integers(1, 200_000),
    st.sampled_from([1, 2, 7, 64]),
    st.integers(1, 1000),
)
def test_all_bytes_arrive_whatever_is_lost_or_reordered(
    recovery: str, rules: list[dict[str, Any]], size: int, reorder_packets: int, seed: int
) -> None:
    _deliver(recovery, rules, size, reorder_packets=reorder_packets, seed=seed)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(_share, st.integers(1, 200_000), st.integers(1, 1000), st.sampled_from([2, 16, 256]))
def test_selective_repeat_sends_again_only_what_was_lost(share: float, size: int, seed: int, room: int) -> None:
    """With nothing lost on the way back each packet comes in once, but for what a timeout sends.

    When the end of a message is lost, the sender cannot know how far the receiver is: what is not acknowledged may
    have come, less than `ack_every` packets each time.
    """
    rule = {"effect": "drop", "select": {"share": share}, "ports": FORWARD}
    result = _deliver("selective_repeat", [rule], size, seed=seed, reorder_packets=room)
    twice = len(result["came"]) - len(set(result["came"]))
    assert set(result["came"]) == set(range(-(-size // 1024)))
    assert result["sender"]["retransmitted"] == result["drops"].get("fault", 0) + twice
    assert result["receiver"]["duplicate_request"] == twice <= 15 * result["sender"]["local_ack_timeout_err"]


def test_recovery_is_the_same_every_time() -> None:
    rules: list[dict[str, Any]] = [
        {"effect": "drop", "select": {"share": 0.1}, "ports": ["h1:1", "h0:1"]},
        {"effect": "delay", "delay_ns": 100, "jitter_ns": 3000, "reorder": True, "select": {"share": 0.2},
         "ports": FORWARD},
    ]  # fmt: skip
    first, second = (_deliver("selective_repeat", rules, 150_000) for _ in range(2))
    assert first == second
    assert first != _deliver("selective_repeat", rules, 150_000, seed=2)
