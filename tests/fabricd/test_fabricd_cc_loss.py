"""What congestion controls do when they hear of loss, each as its source has it, and told apart: NAK and timeout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import nic, star, switch
from tests.parts.wire_view import ACK, WireFrame, watched

MTU, TIMEOUT = 4096, 50_000.0
AT = 40_000.0  # the loss
RTT = 3735.0
ALL = ["h1:1"]


@contextmanager
def one_flow(
    control: str, recovery: str = "go_back_n", nbytes: int = 20_000_000, **values: float
) -> Iterator[BareFabric]:
    hardware = Hardware(
        switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64),
        nic={**nic(control, rtt_ns=RTT, **values), "recovery": recovery, "reorder_packets": 1024},
        timeout_ns=TIMEOUT,
        retry=100,
        ack_every=1,
    )
    with star(2, hardware) as f:
        f.fabricd.request("run_until", time_ns=1)  # held before there is anything to do: nothing runs ahead
        f.events("held")
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, nbytes, 0]])
        yield f


def until(f: BareFabric, time_ns: float) -> dict[str, Any]:
    """Goes on to then: what the queue pair has, with its NIC's counters."""
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")
    counters = f.counters()
    (qp,) = (q for q in counters["qps"] if q["rank"] == 1)
    return qp | counters["nics"][1] | {"time_ns": time_ns}


def lose(f: BareFabric, select: dict[str, Any] | None, **more: Any) -> None:
    chosen = {"select": select} if select else {}
    f.fabricd.request("inject", fault="l", primitive="frames", effect="drop", ports=ALL, **chosen, **more)


def around(f: BareFabric, counter: str, time: float = AT, step: float = 50) -> tuple[dict[str, Any], dict[str, Any]]:
    """Before and behind the next event that counts there, within a step; the clock then stands still."""
    before, end = until(f, time), time + 2 * TIMEOUT
    while time < end:
        time += step
        now = until(f, time)
        if now[counter] > before[counter]:
            return before, now
        before = now
    raise AssertionError(f"{counter} has not counted")


def sent_and_nak(frames: Sequence[WireFrame]) -> tuple[int, int]:
    """Packets that had left the sender when the last NAK came in, and the packet that it asks for."""
    (nak,) = [fr for fr in frames if not fr.out and fr.opcode == ACK and fr.syndrome & 0x60 == 0x60][-1:]
    return max(fr.psn for fr in frames if fr.out and fr.time_ns <= nak.time_ns) + 1, nak.psn


@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
def test_dctcp_halves_what_is_under_way_when_a_nak_comes(recovery: str) -> None:
    """RFC 8257, section 3.5: as TCP does, which is RFC 5681, equation 4."""
    with one_flow("dctcp", recovery) as f:
        with watched(f, "h1:1") as seen:
            until(f, AT)
            lose(f, {"first": 1})
            before, now = around(f, "packet_seq_err")
        left, expected = sent_and_nak(seen["frames"])
        assert before["window_bytes"] > 1.5 * now["window_bytes"]
        assert now["window_bytes"] == (left - expected) * MTU / 2
        f.fabricd.request("heal", fault="l")
        assert until(f, AT + 6 * RTT)["window_bytes"] > now["window_bytes"]  # it grows once more


def test_dctcp_reduces_its_window_once_a_window_of_data() -> None:
    """Of two packets lost ten packets apart the second one's NAK comes when the first one's cut is not acknowledged."""
    with one_flow("dctcp", "go_back_n") as f:
        until(f, AT)
        lose(f, {"every": 10})
        _, once = around(f, "packet_seq_err")
        _, twice = around(f, "packet_seq_err", f.counters()["time_ns"])
        assert twice["window_bytes"] == once["window_bytes"]


def test_dctcp_starts_with_one_packet_after_a_timeout_and_slowly() -> None:
    """RFC 5681, section 3.1: the loss window, then slow start up to half of what was under way at the first one."""
    with one_flow("dctcp") as f:
        with watched(f, "h1:1") as seen:
            until(f, AT)
            lose(f, None)
            _, now = around(f, "local_ack_timeout_err", step=500)
            assert now["window_bytes"] == MTU
            _, again = around(f, "local_ack_timeout_err", f.counters()["time_ns"])
            assert again["window_bytes"] == MTU
            f.fabricd.request("heal", fault="l")
            healed = again["time_ns"]  # what goes again now will come
            windows = [until(f, healed + 50 * step)["window_bytes"] for step in range(1, round(8 * RTT / 50))]
        out = [fr.psn for fr in seen["frames"] if fr.out and fr.time_ns < AT + 20_000]
        came = [fr.psn for fr in seen["frames"] if not fr.out and fr.opcode == ACK and fr.time_ns < AT + 20_000]
        half = (max(out) - max(came)) * MTU / 2
    assert [w for w in dict.fromkeys(windows) if w <= 4 * MTU] == [
        MTU,
        2 * MTU,
        3 * MTU,
        4 * MTU,
    ]  # by what is acknowledged
    assert half in windows and max(windows) < half + 4 * MTU  # from there on by one packet a round trip


@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
def test_swift_takes_a_nak_as_the_worst_of_delays(recovery: str) -> None:
    """Algorithm 1, on fast recovery: cwnd x (1 - max_mdf), if a decrease is due."""
    with one_flow("swift", recovery, max_decrease=0.3) as f:
        until(f, AT)
        lose(f, {"first": 1})
        before, now = around(f, "packet_seq_err")
        assert now["window_bytes"] == pytest.approx(before["window_bytes"] * 0.7, abs=MTU / 10)


def test_swift_takes_losses_of_one_round_trip_as_one() -> None:
    """Likewise: every tenth packet is lost, and a decrease is due once a round trip."""
    with one_flow("swift", "selective_repeat", max_decrease=0.3) as f:
        until(f, AT)
        lose(f, {"every": 10})
        before, now = around(f, "packet_seq_err")
        later = until(f, now["time_ns"] + RTT / 2)
        assert later["packet_seq_err"] > now["packet_seq_err"] + 10  # of the second lost one, too
        assert before["window_bytes"] > now["window_bytes"] <= later["window_bytes"]


def test_swift_begins_anew_after_five_timeouts_in_a_row() -> None:
    """Algorithm 1, on retransmission timeout, with the threshold of htsim's swift.cpp."""
    with one_flow("swift", min_window=0.5) as f:
        until(f, AT)
        lose(f, None)
        windows = [around(f, "local_ack_timeout_err", f.counters()["time_ns"], 500)[1] for _ in range(5)]
        wanted = windows[0]["window_bytes"]
        halved = [w["window_bytes"] for w in windows[:4]]
        assert halved == pytest.approx([wanted * 0.5**n for n in range(4)], abs=1)
        assert windows[4]["window_bytes"] == MTU and windows[4]["rate_bps"] < 20e9  # half a packet a round trip


@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
def test_nscc_takes_a_lost_packet_out_of_its_window(recovery: str) -> None:
    """uec.cpp, mark_packet_for_retransmission: the window loses the packet's size, one packet at least stays."""
    with one_flow("nscc", recovery) as f:
        until(f, AT)
        lose(f, {"first": 1})
        before, now = around(f, "packet_seq_err")
        assert now["window_bytes"] == pytest.approx(before["window_bytes"] - MTU, abs=MTU / 4)
        f.fabricd.request("heal", fault="l")
        lose(f, None, at_ns=f.counters()["time_ns"] + 10 * RTT)
        before, now = around(f, "local_ack_timeout_err", f.counters()["time_ns"])
        all_of_it = recovery == "selective_repeat"  # each packet under way is lost; go-back-N knows of one
        assert now["window_bytes"] == (MTU if all_of_it else before["window_bytes"] - MTU)


@pytest.mark.parametrize("control", ["dcqcn", "timely", "hpcc", "none"])
def test_others_do_not_hear_of_loss(control: str) -> None:
    with one_flow(control) as f:
        until(f, AT)
        lose(f, {"first": 1})
        before, now = around(f, "packet_seq_err")
        told = {key: before[key] for key in ("window_bytes", "rate_bps")}
        assert told == pytest.approx({key: now[key] for key in told}, rel=0.01)


def test_what_came_ahead_of_a_hole_is_delivered() -> None:
    """uec.cpp counts what the receiver has (recvd_bytes): the window grows while packet 0 is missing."""
    with one_flow("nscc", "selective_repeat") as f:
        lose(f, None, match={"opcodes": ["WRITE_FIRST"]})
        before, now = until(f, 10_000.0), until(f, 50_000.0)
    lost = now["retransmitted"] - before["retransmitted"]
    assert lost >= 5 and now["packet_seq_err"] > 300
    assert now["window_bytes"] > before["window_bytes"] - 2 * MTU


def test_a_loss_that_only_waiting_shows_halves_the_window_when_the_wait_is_over() -> None:
    """A frame that came 1 us late has taught patience: a hole is a loss when it has been open for 5/4 of that.

    The late one came 1 us less a packet behind the next: 5/4 of that are 1145 ns. Two packets behind the hole are the
    last ones: nothing else comes in by then.
    """

    def flow(lost_ns: float | None) -> list[dict[str, Any]]:
        late = {"effect": "delay", "delay_ns": 1000, "jitter_ns": 0, "reorder": True, "select": {"first": 1}}
        with one_flow("dctcp", "selective_repeat", 1_000_000) as f, watched(f, "h1:1") as seen:
            until(f, 5000)
            f.fabricd.request("inject", fault="d", primitive="frames", ports=ALL, **late)
            if lost_ns is None:  # only to see when packets leave
                until(f, 2 * AT)
            else:
                until(f, lost_ns)
                lose(f, {"first": 1})
                _, heard = around(f, "packet_seq_err", lost_ns)
                return [heard, *(until(f, heard["time_ns"] + wait) for wait in (1090, 1150))]
        return [{"left_ns": fr.time_ns} for fr in seen["frames"] if fr.out]

    heard, waits, over = flow(flow(None)[-3]["left_ns"] - 1)
    assert waits["packet_seq_err"] == over["packet_seq_err"]
    assert waits["window_bytes"] >= heard["window_bytes"] > 1.5 * over["window_bytes"]
