"""Credits of receivers: who is granted what and when, and what senders do with it, frame by frame."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric
from tests.parts.reference_credits import Pacer, credits
from tests.parts.traffic_fabric import DSCP, drops, nic, send, star, switch
from tests.parts.wire_view import CREDIT, WireFrame, watched

MTU, RATE = 4096, 400e9
HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
BEHIND = 16  # what a sender would like to have
ON_WIRE = HEADERS + BEHIND + 24  # and FCS, preamble, gap
RTT = 3800.0
BDP = RATE / 8 * RTT * 1e-9
CREDIT_CONTROLS = ["rccc", "uec", "eqds", "ndp", "homa"]


def hardware(
    control: str, *, recovery: str = "selective_repeat", switch_: dict[str, Any] | None = None, **values: float
) -> Hardware:
    its = {**nic(control, rtt_ns=RTT, **values), "recovery": recovery, "reorder_packets": 1024}
    return Hardware(
        switch_buffer_bytes=10**8,
        switch=switch(headroom=0, lossless=[], alpha=64) | (switch_ or {}),
        nic={**its, "lossless": []},
        timeout_ns=500_000,
        retry=100,
    )


def takes_ns(nbytes: int, rate: float = RATE) -> float:
    """A credit's packets on the cable, of which 99 % are granted."""
    return (nbytes + -(-nbytes // MTU) * ON_WIRE) * 8e9 / rate / 0.99


def data(seen: list[WireFrame], out: bool) -> list[WireFrame]:
    return [fr for fr in seen if fr.out == out and fr.opcode in (6, 7, 8, 10)]


def of_kind(seen: list[WireFrame], opcode: int, out: bool) -> list[WireFrame]:
    return [fr for fr in seen if fr.out == out and fr.opcode == opcode]


def total(f: BareFabric, counter: str) -> int:
    return sum(n.get(counter, 0) for n in f.counters()["nics"])


@pytest.mark.parametrize("packets", [4, 1])
def test_senders_are_granted_in_turn_at_the_rate_of_the_cable(packets: int) -> None:
    """Each credit's time, sender and count are those of htsim's pacer, fed with the targets that came in.

    At 8 Gb/s all frames take whole ns, as a capture has them.
    """
    rate, window = 8e9, 40 * MTU
    slow = replace(
        hardware("rccc", grant_packets=packets, window=window, initial=window, ask_again=1e7), cable_rate_bps=rate
    )
    with star(5, slow) as f, watched(f, "h0:1") as seen:
        starts = ((1, 1_000_000, 0), (2, 400_000, 0), (3, 700_001, 250_000), (4, 1_000_000, 1_000_000))
        send(f, [(k, 0, size, start) for k, size, start in starts])
    frames = seen["frames"]
    came = [(fr.time_ns, fr.macs[1], fr.credit[0]) for fr in data(frames, out=False) if fr.credit]
    gave = [(fr.time_ns, fr.macs[0], fr.credit[0]) for fr in of_kind(frames, CREDIT, out=True) if fr.credit]
    model = credits(came, Pacer(packets * MTU, lambda n: takes_ns(n, rate), ahead=window))
    assert [what for _, *what in gave] == [what for _, *what in model] and len(model) > 150
    assert [at for at, *_ in gave] == pytest.approx([at for at, *_ in model], abs=3 * 92)  # behind what is being sent


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
            assert fr.credit == (spent + min(backlog, window), spent + backlog, backlog)
    told = [fr.credit[0] for fr in sent[:6] if fr.credit]
    assert told == [window - (6 - k - 1) * MTU for k in range(6)]


@pytest.mark.parametrize("control", ["rccc", "eqds", "ndp"])
def test_who_has_nothing_to_send_is_granted_a_window_ahead_or_nothing(control: str) -> None:
    """`slow pulls` go on until an idle sender has a window (_idle_senders of uec.cpp and eqds.cpp); of ndp are none."""
    with star(3, hardware(control, initial=20 * MTU, window=40 * MTU)) as f, watched(f, "h0:1") as seen:
        send(f, [(1, 0, 100 * MTU, 0), (2, 0, 300 * MTU, 0)])
    gave = [(fr.macs[0], fr.credit[0]) for fr in of_kind(seen["frames"], CREDIT, out=True) if fr.credit]
    ahead = [dict(gave)[f"02:00:0a:00:00:0{k + 1}"] - (packets - 20) * MTU for k, packets in ((1, 100), (2, 300))]
    least = 0 if control == "ndp" else 40 * MTU
    assert all(least <= more < least + 4 * MTU for more in ahead), ahead


@pytest.mark.parametrize("control", CREDIT_CONTROLS)
def test_a_message_behind_another_one_waits_for_no_credit(control: str) -> None:
    """It begins when the one before has left, and is not acknowledged yet: it is as fast as one that begins."""
    with star(3, hardware(control)) as f:
        (alone,) = send(f, [(2, 0, 40 * MTU, 0)])
        _, behind = send(f, [(1, 0, 4 * MTU, 0), (1, 0, 40 * MTU, 1500)])
    assert behind == pytest.approx(alone, abs=10)


def test_eqds_pulls_first_for_what_was_trimmed() -> None:
    """EqdsPullPacer of eqds.cpp: who has retransmissions to send has his turns before all others (_rtx_senders)."""
    small = replace(into_a_small_buffer("eqds", True), switch_buffer_bytes=500_000)
    with star(9, small) as f, watched(f, "h0:1") as seen:
        send(f, [(k, 0, 200 * MTU, 0) for k in range(1, 9)])
    again: Counter[str] = Counter()
    known: dict[str, int] = {}
    late, turns, wrong = 200, 0, 0  # ns between a turn and its credit's first bit
    trimmed = [(fr.time_ns + late, fr.macs[1]) for fr in seen["frames"] if not fr.out and fr.dscp == 36]
    for fr in of_kind(seen["frames"], CREDIT, out=True):
        while trimmed and trimmed[0][0] <= fr.time_ns:
            again[trimmed.pop(0)[1]] += 1
        assert fr.credit
        peer, packets = fr.macs[0], (fr.credit[0] - known.get(fr.macs[0], 0)) // MTU
        known[peer] = fr.credit[0]
        if packets and any(again.values()):
            turns += 1
            wrong += not (again[peer] or any(mac == peer for at, mac in trimmed if at < fr.time_ns + 2 * late))
        again[peer] -= min(packets, again[peer])
    assert turns > 50 and wrong < turns / 50  # whose headers came with the turn


@pytest.mark.parametrize("control", CREDIT_CONTROLS)
@pytest.mark.parametrize("lost", [["CREDIT"], ["CREDIT", "REQUEST"]], ids=["credits", "requests too"])
def test_a_lost_credit_costs_time_and_nothing_else(control: str, lost: list[str]) -> None:
    """Half of them are lost: everything comes, nothing times out, and nothing is sent again."""
    with star(5, hardware(control, ask_again=20_000, initial=8 * MTU, window=8 * MTU)) as f:
        about = {"primitive": "frames", "effect": "drop", "ports": ["sw0:2", "sw0:3", "h2:1"]}
        f.fabricd.request("inject", fault="leak", **about, match={"opcodes": lost}, select={"share": 0.5})
        times = send(f, [(k, 0, 300 * MTU, 0) for k in (1, 2, 3, 4)])
        assert drops(f)["fault"] > 50  # those of eqds come one by one: the next one makes up for it before anybody asks
        assert total(f, "tx_credit_request") > 0 or control == "eqds"
        assert total(f, "local_ack_timeout_err") == total(f, "retransmitted") == 0
    assert max(times) < 2_000_000


@pytest.mark.parametrize("control", CREDIT_CONTROLS)
def test_without_any_credit_a_packet_goes_each_timeout(control: str) -> None:
    """Whoever is granted nothing does not wait for ever: a timeout from when his credit ended, whatever he hears."""
    with star(2, hardware(control, initial=2 * MTU)) as f:
        about = {"primitive": "frames", "effect": "drop", "ports": ["sw0:2"], "match": {"opcodes": ["CREDIT"]}}
        f.fabricd.request("inject", fault="leak", **about)
        (time,) = send(f, [(1, 0, 12 * MTU, 0)])
        assert total(f, "rx_credit") == total(f, "retransmitted") == 0
    assert 10 * 500_000 < time < 10 * 500_000 + RTT


@pytest.mark.parametrize("control", CREDIT_CONTROLS)
@pytest.mark.parametrize("recovery", ["selective_repeat", "go_back_n"])
def test_lost_packets_are_asked_for_again(control: str, recovery: str) -> None:
    with star(4, hardware(control, recovery=recovery)) as f:
        about = {"primitive": "frames", "effect": "drop", "ports": ["sw0:1", "h1:1", "h2:1"]}
        f.fabricd.request("inject", fault="loss", **about, select={"share": 0.02})
        times = send(f, [(k, 0, 400 * MTU, 0) for k in (1, 2, 3)])
        again = total(f, "retransmitted")
    assert again > 15 and max(times) < 20_000_000


def test_homa_ends_messages_in_the_order_of_what_is_left_of_them() -> None:
    """Posted from the longest to the shortest: all but the first bytes of each waits for those that are shorter.

    Alone, a message takes what its bytes take on the cable, and a round trip: each takes at most what all that are not
    longer take together, with the first bytes of all others and what two senders have under way.
    """
    packets = [900, 300, 600, 150, 450, 75]
    with star(7, hardware("homa", initial=8 * MTU)) as f:
        times = send(f, [(k + 1, 0, n * MTU, 100 * k) for k, n in enumerate(packets)])
    ends = [time + 100 * k for k, time in enumerate(times)]
    assert sorted(range(6), key=lambda k: ends[k]) == sorted(range(6), key=lambda k: packets[k])
    for k, n in enumerate(packets):
        before = sum(m for m in packets if m <= n) + 8 * sum(m > n for m in packets) + 2 * BDP / MTU
        assert ends[k] < before * takes_ns(MTU) + 2 * RTT, (k, ends[k])
        assert ends[k] > sum(m for m in packets if m <= n) * (MTU + ON_WIRE) * 8e9 / RATE * 0.95


def test_a_short_message_beside_homas_long_ones_takes_little_longer_than_alone() -> None:
    """Its first bytes go at once, its others before all of theirs. In turn it would take its share of seven."""
    took = {}
    for control, values in (("homa", {"overcommit": 1}), ("rccc", {})):
        with star(9, hardware(control, **values)) as f:
            long = [(k, 0, 2000 * MTU, 0) for k in range(1, 8)]
            took[control] = send(f, [*long, (8, 0, 200 * MTU, 150_000)])[-1]
    with star(2, hardware("homa")) as f:
        alone = send(f, [(1, 0, 200 * MTU, 0)])[0]
    assert took["homa"] < alone + 4 * BDP * 8e9 / RATE and took["rccc"] > 4 * alone


def test_ndp_pulls_a_packet_for_each_that_has_come() -> None:
    """After the first window so many packets of each sender are under way, and no more."""
    with star(5, hardware("ndp", initial=20 * MTU, window=20 * MTU)) as f, watched(f, "h0:1") as seen:
        send(f, [(k, 0, 300 * MTU, 0) for k in (1, 2, 3, 4)])
    came: Counter[str] = Counter()
    for fr in seen["frames"]:
        if fr in data([fr], out=False):
            came[fr.macs[1]] += 1
        elif fr.opcode == CREDIT and fr.out and fr.credit:
            assert fr.credit[0] % MTU == 0 and fr.credit[0] <= came[fr.macs[0]] * MTU
    pulls = Counter(fr.macs[0] for fr in of_kind(seen["frames"], CREDIT, out=True))
    assert came == dict.fromkeys(came, 300) and set(pulls.values()) == {280}


@pytest.mark.parametrize("control", [*CREDIT_CONTROLS, "nscc"])
def test_an_incast_leaves_no_queue_but_of_the_first_windows(control: str) -> None:
    """Once these have left, credits fill 99 % of the cable and no buffer; under nscc it is filled up to its target."""
    marks = {"ecn": {"3": {"kmin_bytes": 40_000, "kmax_bytes": 150_000, "pmax": 1.0}}}
    with star(17, hardware(control, switch_=marks)) as f, watched(f, "h0:1", 2000) as seen:
        times = send(f, [(k, 0, 500 * MTU, 0) for k in range(1, 17)])
        assert total(f, "retransmitted") == 0
    ideal = 16 * 500 * (MTU + ON_WIRE) * 8e9 / RATE
    queue = seen["queue_depth"]
    late = queue[(queue["node"] == "sw0") & (queue["port"] == 1) & (queue["time_ns"] > ideal / 2)]["bytes"]
    assert max(times) < 1.12 * ideal
    if control == "homa":
        assert late.quantile(0.9) < 3 * BDP  # two messages', but for what begins
    elif control in ("nscc", "uec"):
        assert late.mean() < 2 * BDP
    else:
        assert late.max() < 16 * 1.5 * BDP and late.iloc[-1] < late.iloc[0]


def into_a_small_buffer(control: str, trims: bool) -> Hardware:
    """A switch of 2 MB, which the first windows of 24 do not fit into."""
    part = switch(headroom=0, lossless=[], alpha=0.125, dscp=DSCP | {"36": 6})
    trimming = {"classes": [3], "bytes": 128, "dscp": 36, "queue": 6} if trims else None
    small = replace(hardware(control), switch_buffer_bytes=2_000_000, switch={**part, "trimming": trimming})
    return replace(small, nic={**small.nic, "trimmed_dscp": 36})


@pytest.mark.parametrize("trims", [True, False], ids=["trimmed", "dropped"])
@pytest.mark.parametrize("control", CREDIT_CONTROLS)
def test_an_incast_that_loses_most_of_its_first_windows_fills_the_cable(control: str, trims: bool) -> None:
    """NDP, SIGCOMM 2017, section 6: no timeout, whatever is trimmed, and a full cable. For dropped packets nothing is
    pulled: a sender that has to ask begins anew."""
    senders, packets = 24, 120
    with star(senders + 1, into_a_small_buffer(control, trims)) as f:
        times = send(f, [(k, 0, packets * MTU, 0) for k in range(1, senders + 1)])
        lost, timeouts = total(f, "retransmitted"), total(f, "local_ack_timeout_err")
    assert lost > senders * 20
    ideal = senders * packets * (MTU + ON_WIRE) * 8e9 / RATE
    if trims:
        assert timeouts == 0 and max(times) < (1.15 if control == "homa" else 1.05) * ideal
    else:
        assert max(times) < 4 * ideal
