"""Selective repeat with bitmaps, and losses by the time of sending: what is said when, and what is sent again when.

From RFC 2018 (a bitmap says what is there), RFC 8985, section 6.2 (lost is what left long enough before something that
has come), and the frames that a capture shows; and against the settings that it competes with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hardware import bounds
from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.traffic_fabric import drops, frame_bytes, nic, send, star, switch
from tests.parts.wire_view import ACK, WireFrame, watched
from topologies.graph import frames

MTU, T, AFTER = 4096, frames.ser_ns(frame_bytes(), 400e9), 4000
SACK = {"sack_bits": 64, "sack_every": 16}
BOTH = {**SACK, "loss_after_ns": AFTER}


def hardware(**more: Any) -> Hardware:
    its_nic = {**nic(), "recovery": "selective_repeat", "lossless": [], **more}
    return Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)


def strike(f: BareFabric, *, jitter_ns: float = 0, loss: float = 0, port: str = "h1:1") -> None:
    about: dict[str, Any] = {"primitive": "frames", "ports": [port]}
    if jitter_ns:
        late = {"delay_ns": 0, "jitter_ns": jitter_ns, "reorder": True, "select": {"share": 1.0}}
        f.fabricd.request("inject", fault=f"jitter {port}", effect="delay", **about, **late)
    if loss:
        f.fabricd.request("inject", fault=f"loss {port}", effect="drop", **about, select={"share": loss})


def told(fr: WireFrame) -> Iterator[int]:
    """The packets that a bitmap says have come."""
    if fr.sack:
        first, bits = fr.sack
        yield from (first + i for i in range(bits.bit_length()) if bits >> i & 1)


@pytest.mark.parametrize(("bits", "every"), [(32, 1), (64, 16), (512, 5)])
def test_bitmaps_say_what_is_there_and_are_sent_in_time(bits: int, every: int) -> None:
    come: set[int] = set()
    expected = unsaid = bitmaps = 0
    with star(2, hardware(sack_bits=bits, sack_every=every)) as f, watched(f, "h0:1") as seen:
        strike(f, jitter_ns=3000, loss=0.01)
        send(f, [(1, 0, 1500 * MTU, 0)])
    for fr in seen["frames"]:
        if not fr.out:
            come.add(fr.psn)
            unsaid += fr.psn != expected
            while expected in come:
                expected += 1
        elif fr.opcode == ACK:
            assert (fr.psn + 1) % (1 << 24) == expected
            if fr.sack:
                first, told_bits = fr.sack
                assert told_bits.bit_length() <= bits and set(told(fr)) == come & set(range(first, first + bits))
                bitmaps += 1
            unsaid = 0
        assert unsaid <= every
    assert expected == 1500 and bitmaps > 1500 / 64


def test_a_packet_is_sent_again_when_one_that_left_later_by_so_much_is_known_to_have_come() -> None:
    """As soon, and no sooner: so nothing is sent again for nothing, though nearly all comes out of order.

    When nothing more is sent that could show it, fewer than `sack_every` may have come without a word, and go again.
    """
    known: set[int] = set()
    left: dict[int, int] = {}
    latest = 0
    due: dict[int, int] = {}
    with star(2, hardware(**BOTH)) as f, watched(f, "h1:1") as seen:
        strike(f, jitter_ns=2000, loss=0.01)
        send(f, [(1, 0, 3000 * MTU, 0)])
        sender, receiver, lost = f.nic(1), f.nic(0), drops(f)["fault"]
    in_vain = receiver["duplicate_request"]
    assert sender["retransmitted"] == lost + in_vain and lost > 20 and in_vain < 16
    assert receiver["out_of_sequence"] > 2000 and sender["packet_seq_err"] == sender["local_ack_timeout_err"] == 0
    waited, end = [], max(fr.time_ns for fr in seen["frames"] if fr.out and fr.psn == 2999)
    for fr in seen["frames"]:
        if fr.time_ns > end:
            break
        if fr.out and fr.psn in left:
            waited.append(fr.time_ns - due.pop(fr.psn))
        if fr.out:
            left[fr.psn] = fr.time_ns
        elif fr.opcode == ACK:
            new = (set(range(fr.psn + 1)) | set(told(fr))) - known if fr.psn < 1 << 23 else set(told(fr)) - known
            known |= new
            latest = max([latest, *(left[n] for n in new)])
            for n, t in left.items():
                if n not in known and latest > t + AFTER:
                    due.setdefault(n, fr.time_ns)
    assert len(due) <= 2 and len(waited) > 20
    fetch = bounds.fetch_ns(MTU, 512e9, 500)
    assert all(fetch <= w <= fetch + 33 * T for w in waited)  # what stands in the NIC goes first: 32 packets


@pytest.mark.parametrize(("jitter_ns", "loss"), [(0, 0.01), (3000, 0), (2000, 0.01), (10_000, 0)])
def test_never_slower_than_what_it_competes_with(jitter_ns: float, loss: float) -> None:
    """A NAK for each packet, bitmaps alone, times alone, and go-back-N; fewer answers than with a NAK each."""
    others = {"naks": {}, "bitmaps": SACK, "times": {"loss_after_ns": AFTER}, "back": {"recovery": "go_back_n"}}
    took, answers = {}, {}
    for name, more in {"both": BOTH, **others}.items():
        with star(2, hardware(**more)) as f:
            strike(f, jitter_ns=jitter_ns, loss=loss)
            (took[name],) = send(f, [(1, 0, 1500 * MTU, 0)])
            answers[name] = f.nic(0)["tx_vport_rdma_unicast_packets"]
            assert f.nic(1)["local_ack_timeout_err"] == 0 or name != "both"
    assert took["both"] <= 1.01 * min(took.values()) + AFTER
    assert answers["both"] < 0.35 * answers["naks"]


@pytest.mark.parametrize("lost", [1, 3, 8])
def test_the_end_of_a_message_is_repaired_without_a_timeout(lost: int) -> None:
    """Its last packets are lost: a probe shows it. Of the first ones of a short message a later one shows it."""
    start = 10_000 + bounds.fetch_ns(MTU, 512e9, 500)
    for first in (0, 64 - lost):
        with star(2, hardware(**BOTH)) as f:
            rule: dict[str, Any] = {"at_ns": start + (first - 0.5) * T, "for_ns": lost * T}
            f.fabricd.request("inject", fault="x", primitive="frames", effect="drop", ports=["h1:1"], **rule)
            (took,) = send(f, [(1, 0, 64 * MTU, 10_000)])
            assert f.nic(1)["local_ack_timeout_err"] == 0 and drops(f) == {"fault": lost}
            assert f.nic(1)["retransmitted"] <= lost + 1
            assert f.nic(1).get("loss_probes", 0) == (first > 0)
        assert took < 64 * T + 5 * AFTER


def test_a_lost_bitmap_costs_little() -> None:
    with star(2, hardware(**BOTH)) as f:
        strike(f, jitter_ns=2000)
        strike(f, loss=0.1, port="h0:1")
        (took,) = send(f, [(1, 0, 3000 * MTU, 0)])
        assert f.nic(1)["local_ack_timeout_err"] == 0 and f.nic(1)["retransmitted"] <= 30 and drops(f)["fault"] > 20
    assert took < 3000 * T * 1.02 + 4 * AFTER


@pytest.mark.parametrize("control", ["none", "dctcp", "nscc"])
def test_a_window_counts_neither_what_has_come_ahead_nor_stands_still(control: str) -> None:
    """A window of 32 packets, 3 us of jitter: as fast as in order, but for the mean lateness of a round trip."""
    took = {}
    for jitter in (0, 3000):
        with star(2, hardware(**{**nic(control, window=32 * MTU), **BOTH})) as f:
            if jitter:
                strike(f, jitter_ns=jitter)
            (took[jitter],) = send(f, [(1, 0, 1500 * MTU, 0)])
            assert f.nic(1)["local_ack_timeout_err"] == f.nic(1)["retransmitted"] == 0
    trips = 1500 / 32
    assert took[3000] <= took[0] + trips * 3000
