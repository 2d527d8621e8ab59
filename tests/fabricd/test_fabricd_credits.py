"""Credits of receivers: who is granted what and when, and what senders do with it, frame by frame."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.reference_credits import Pacer, credits
from tests.parts.traffic_fabric import drops, nic, port, send, star, switch
from tests.parts.wire_view import ACK, CREDIT, REQUEST, WireFrame, watched

MTU, RATE = 4096, 400e9
HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
BEHIND = 12  # what a sender would like to have
ON_WIRE = HEADERS + BEHIND + 24  # and FCS, preamble, gap
RTT = 3800.0
BDP = RATE / 8 * RTT * 1e-9
CREDIT_CONTROLS = ["rccc", "uec", "eqds", "ndp", "homa"]


def hardware(
    control: str, *, lossless: bool = True, switch_: dict[str, Any] | None = None, **values: float
) -> Hardware:
    its = {**nic(control, rtt_ns=RTT, **values), "recovery": "selective_repeat", "reorder_packets": 1024}
    return Hardware(
        switch_buffer_bytes=10**8,
        switch=switch(headroom=0, lossless=[], alpha=64) | (switch_ or {}),
        nic={**its, "lossless": []},
        timeout_ns=500_000,
        retry=100,
    )


def takes_ns(nbytes: int) -> float:
    """A credit's packets on the cable, of which 99 % are granted."""
    return (nbytes + -(-nbytes // MTU) * ON_WIRE) * 8e9 / RATE / 0.99


def data(seen: list[WireFrame], out: bool) -> list[WireFrame]:
    return [fr for fr in seen if fr.out == out and fr.opcode in (6, 7, 8, 10)]


def of_kind(seen: list[WireFrame], opcode: int, out: bool) -> list[WireFrame]:
    return [fr for fr in seen if fr.out == out and fr.opcode == opcode]


def total(f: BareFabric, counter: str) -> int:
    return sum(n.get(counter, 0) for n in f.counters()["nics"])


@pytest.mark.parametrize("packets", [4, 1])
def test_senders_are_granted_in_turn_at_the_rate_of_the_cable(packets: int) -> None:
    """Each credit's time, sender and count are those of htsim's pacer, fed with the targets that came in."""
    with star(5, hardware("rccc", grant_packets=packets)) as f, watched(f, "h0:1") as seen:
        sizes = [(1, 0, 1_000_000, 0), (2, 0, 400_000, 0), (3, 0, 700_001, 5000), (4, 0, 1_000_000, 20_000)]
        send(f, sizes)
    frames = seen["frames"]
    came = [(fr.time_ns, fr.macs[1], fr.credit[0]) for fr in data(frames, out=False) if fr.credit]
    gave = [(fr.time_ns, fr.macs[0], fr.credit[0]) for fr in of_kind(frames, CREDIT, out=True) if fr.credit]
    model = credits(came, Pacer(packets * MTU, takes_ns, ahead=round(1.5 * BDP)))
    assert [what for _, *what in gave] == [what for _, *what in model] and len(model) > 150
    assert [at for at, *_ in gave] == pytest.approx([at for at, *_ in model], abs=2 * (84 * 8 / 400 + 1))


def test_a_sender_speculates_and_then_sends_what_it_was_granted() -> None:
    """Nothing but the first bytes goes without credit, and each packet asks for what computePullTarget says."""
    window, first, size = 20 * MTU, 6 * MTU, 300 * MTU
    with star(2, hardware("rccc", window=window, initial=first)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, size, 0)])
    frames = seen["frames"]
    credit = of_kind(frames, CREDIT, out=False)
    sent = data(frames, out=True)
    assert len(sent) == 300
    before = [fr for fr in sent if fr.time_ns < credit[0].time_ns + 560]  # what it brings is fetched first
    assert len(before) == 6
    for k, fr in enumerate(sent):
        granted = max((c.credit[0] for c in credit if c.credit and c.time_ns <= fr.time_ns), default=0)
        assert k * MTU < first + granted  # there was something left
        assert fr.credit is not None
        if 6 <= k < 270:  # then it is granted more than it may have (`slow pulls`)
            spent, backlog = (k + 1 - 6) * MTU, size - (k + 1) * MTU
            assert fr.credit == (spent + min(backlog, window), spent + backlog)
    told = [fr.credit[0] for fr in sent[:6] if fr.credit]
    assert told == [window - (6 - k - 1) * MTU for k in range(6)]


@pytest.mark.parametrize("control", ["rccc", "eqds"])
def test_who_has_nothing_to_send_is_granted_a_window_ahead_or_nothing(control: str) -> None:
    """`slow pulls` of rccc go on until an idle sender has a window; of eqds there are none."""
    with star(3, hardware(control, initial=20 * MTU, window=40 * MTU)) as f, watched(f, "h0:1") as seen:
        send(f, [(1, 0, 100 * MTU, 0), (2, 0, 300 * MTU, 0)])
    gave = [(fr.macs[0], fr.credit[0]) for fr in of_kind(seen["frames"], CREDIT, out=True) if fr.credit]
    ahead = [dict(gave)[f"02:00:0a:00:00:0{k + 1}"] - (packets - 20) * MTU for k, packets in ((1, 100), (2, 300))]
    least = 40 * MTU if control == "rccc" else 0
    assert all(least <= more < least + 4 * MTU for more in ahead), ahead


def test_who_has_been_idle_speculates_again_under_eqds() -> None:
    """Its second message begins with as many packets without credit as the first one did."""
    with star(2, hardware("eqds", initial=5 * MTU)) as f, watched(f, "h1:1") as seen:
        send(f, [(1, 0, 40 * MTU, 0)])
        f.fabricd.request("inject", fault="again", primitive="traffic", flows=[[1, 0, 40 * MTU, 0]])
        f.fabricd.request("quiesce", 120.0)
