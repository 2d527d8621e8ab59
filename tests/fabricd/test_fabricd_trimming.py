"""Trimming: what a switch makes of frames that find no place, what receivers say of it, what is sent again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.config import Hardware
from hardware.multipath import POLICIES
from tests.parts.dissected import dissect, frames_of
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, fabricd_binary
from tests.parts.forged import put_out, what_is_left
from tests.parts.traffic_fabric import DSCP, drops, frame_bytes, nic, port, send, switch
from tests.parts.traffic_fabric import star as plain_star
from tests.parts.wire_view import ACK, frames

TRIM = {"classes": [3], "bytes": 128, "dscp": 36, "queue": 6}
NAK_TRIMMED = 0x7F
FRAME, BUFFER = frame_bytes(), 2_000_000
ECN = {"3": {"kmin_bytes": 37_000, "kmax_bytes": 149_000, "pmax": 1.0}}
STORM = {"primitive": "params", "nic": 0, "values": {"storm": [3]}}


def hardware(
    control: str = "none", recovery: str = "selective_repeat", buffer: int = BUFFER, trim: dict[str, Any] | None = TRIM,
    of_switch: dict[str, Any] | None = None, **of_nic: Any,
) -> Hardware:  # fmt: skip
    part = switch(
        **{"headroom": 0, "lossless": [], "alpha": 0.125, "ecn": ECN, "dscp": DSCP | {"36": 6}, **(of_switch or {})}
    )
    return Hardware(
        switch_buffer_bytes=buffer, switch={**part, "trimming": trim}, timeout_ns=500_000, retry=100,
        nic={**nic(control, rtt_ns=3735), "lossless": [], "recovery": recovery, "trimmed_dscp": 36, **of_nic},
    )  # fmt: skip


@contextmanager
def star(hosts: int, h: Hardware, sample: int = FAST) -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": hosts}, h, binary=fabricd_binary(), sample=sample) as f:
        f.fabricd.request("start", ranks=[])
        yield f


def held_at(f: BareFabric, time_ns: float) -> None:
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held")


def total(f: BareFabric, counter: str) -> int:
    return sum(n.get(counter, 0) for n in f.counters()["nics"])


@pytest.mark.parametrize("sample", [0, FAST])
def test_what_is_left_is_the_beginning_of_a_frame_and_says_so(sample: int) -> None:
    """Behind the switch: the first bytes of the frame before it, but for what trimming is to change; RFC 791, 768."""
    with star(3, hardware("nscc"), sample) as f:
        files = {name: f.directory / f"{name.replace(':', '-')}.pcapng" for name in ("h1:1", "h2:1", "h0:1")}
        for name, path in files.items():
            f.fabricd.request("capture", port=name, path=str(path))
        send(f, [(1, 0, 400_000, 0), (2, 0, 400_000, 0)])
        for path in files.values():
            f.fabricd.request("capture_stop", path=str(path))
        sent: dict[bytes, set[bytes]] = {}
        for raw in [*frames_of(files["h1:1"]), *frames_of(files["h2:1"])]:
            sent.setdefault(raw[26:34] + raw[42:54], set()).add(raw)
        cut = [raw for raw in frames_of(files["h0:1"]) if raw[15] >> 2 == 36]
        seen = dissect(files["h0:1"], "ip.dsfield.dscp", "ip.len", "udp.length", "ip.checksum.status",
                       "infiniband.bth.opcode", "infiniband.bth.psn", "_ws.malformed", "frame.protocols")  # fmt: skip
    assert len(cut) > 20
    for raw in cut:
        whole = next(w for w in sent[raw[26:34] + raw[42:54]] if len(w) > 1000)
        assert len(raw) == 128
        assert (raw[16:18], raw[38:40]) == ((128 - 14).to_bytes(2), (128 - 34).to_bytes(2))
        assert sum(int.from_bytes(raw[i : i + 2]) for i in range(14, 34, 2)) % 0xFFFF == 0  # ones' complement
        assert raw[15] & 3 == whole[15] & 3 and raw[22] == whole[22] - 1  # ECN, and a hop
        changed = {15, 16, 17, 22, 24, 25, 38, 39, 50}  # type of service, length, TTL, checksum, UDP's length; asks
        assert all(raw[i] == whole[i] for i in range(128) if i not in changed)
    trimmed = [row for row in seen if row["ip.dsfield.dscp"] == "36"]
    assert len(trimmed) == len(cut)
    for row in trimmed:
        assert (row["ip.len"], row["udp.length"]) == ("114", "94") and "_ws.malformed" not in row
        assert row["frame.protocols"].startswith("eth:ethertype:ip:udp:infiniband")
        assert int(row["infiniband.bth.opcode"]) in (6, 7, 8)


def test_each_trimmed_packet_is_named_once_and_comes_again() -> None:
    """Every NAK has the number and source port of a packet that came trimmed just before; all that is sent arrives."""
    with star(5, hardware("nscc", sack_bits=64, multipath=POLICIES["round"].in_fabricd(16, {}))) as f:
        path = f.directory / "seen.pcapng"
        f.fabricd.request("capture", port="h0:1", path=str(path))
        send(f, [(k, 0, 500_000, 0) for k in range(1, 5)])
        f.fabricd.request("capture_stop", path=str(path))
        assert total(f, "rx_trimmed") == total(f, "trimmed_packets") == total(f, "retransmitted") > 50
        assert total(f, "local_ack_timeout_err") == 0 and not drops(f)
        counted, seen = port(f, "sw0", 1)["priorities"], frames(path)
    came, said = {}, {}
    for k, fr in enumerate(seen):
        if not fr.out and fr.dscp == 36:
            came[k] = (fr.macs[1], fr.psn, fr.source_port)
        elif fr.out and fr.syndrome == NAK_TRIMMED and fr.opcode == ACK:
            said[k] = (fr.macs[0], fr.psn, fr.source_port)
            assert fr.msn <= fr.psn  # what it expects next, of which it has nothing yet
    assert [came[k] for k in sorted(came)] == [said[k] for k in sorted(said)]
    assert counted["trim_packets_prio3"] == counted["tx_trim_packets_prio6"] == len(came)
    assert "dropped_trim_packets_prio6" not in counted and "drops_prio3" not in counted


def test_a_trimmed_frame_gives_back_what_it_let_go_of_the_buffer() -> None:
    """The receiver pauses both classes: the queue is full, and what came later occupies 128 bytes each."""
    with star(2, hardware(buffer=200_000)) as f:
        held_at(f, 1)
        f.fabricd.request("inject", fault="storm", primitive="params", nic=0, values={"storm": [3, 6]})
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, 100 * 4096, 0]])
        held_at(f, 30_000)
        counters = f.counters()
        trimmed = port(f, "sw0", 1)["priorities"]["trim_packets_prio3"]
        # n frames fit: n x FRAME <= (buffer - what others hold) / 8, each with what it occupies itself taken back
        queued, used = 0, 0
        while queued + FRAME <= (200_000 - used) // 8:
            queued, used = queued + FRAME, used + FRAME
        first = 16  # of the first packet: RETH
        assert counters["switches"][0]["buffer_used_bytes"] == queued + first + 128 * trimmed
        assert trimmed == 100 - queued // FRAME


def test_without_room_in_the_buffer_a_frame_comes_in_trimmed() -> None:
    """Queues may be as long as the buffer: that is full first. What is left of later frames finds room, and goes on."""
    whole = 24
    with star(2, hardware(buffer=whole * FRAME + 3000, of_switch={"alpha": 64})) as f:
        held_at(f, 1)
        f.fabricd.request("inject", fault="storm", **STORM)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[1, 0, 60 * 4096, 0]])
        held_at(f, 30_000)
        assert not drops(f)
        assert port(f, "sw0", 1)["priorities"]["trim_packets_prio3"] >= total(f, "rx_trimmed") >= 60 - whole
        held = f.counters()["switches"][0]["buffer_used_bytes"] - whole * FRAME
        assert 0 < held <= 16 + 8 * 128  # RETH, and what is on its way through the pipeline
        f.fabricd.request("heal", fault="storm")
        f.fabricd.request("run_until")
        f.fabricd.request("quiesce", 60.0)
        assert f.counters()["switches"][0]["buffer_used_bytes"] == 0 and total(f, "local_ack_timeout_err") == 0


def test_trimmed_frames_that_find_no_place_either_are_dropped_for_that() -> None:
    """32 senders without a control: headers alone are more than the cable carries, and their queue is soon full."""
    with plain_star(33, hardware(buffer=1_000_000)) as f:
        send(f, [(k, 0, 100_000, 0) for k in range(1, 33)])
        counted = port(f, "sw0", 1)["priorities"]
        assert drops(f) == {"trimmed": counted["dropped_trim_packets_prio6"]} and drops(f)["trimmed"] > 0
        assert counted["trim_packets_prio3"] == counted["tx_trim_packets_prio6"] + drops(f)["trimmed"]


@pytest.mark.parametrize(("recovery", "senders", "full"), [
    ("selective_repeat", 8, 0.93), ("go_back_n", 8, 0.65), ("selective_repeat", 32, 0.93), ("go_back_n", 32, 0.85),
])  # fmt: skip
def test_an_incast_ends_without_a_timeout(recovery: str, senders: int, full: float) -> None:
    """And the receiver's cable carries little but data from the first packet to the last."""
    with plain_star(senders + 1, hardware("nscc", recovery)) as f:
        took = max(send(f, [(k, 0, 500_000, 0) for k in range(1, senders + 1)]))
        assert not drops(f) and total(f, "local_ack_timeout_err") == 0 and total(f, "rx_trimmed") > 100
        assert f.counters()["switches"][0]["buffer_used_bytes"] == 0
    packets = senders * -(-500_000 // 4096)
    assert packets * (FRAME + 24) * 8 / 400 / took > full


class GoBackN:
    """What a receiver has to say, by the rules alone: the expected packet is asked for when something shows that it
    will not come, once until it does; but each time that it comes trimmed."""

    def __init__(self) -> None:
        self.expected, self.asked, self.gone = 0, False, set[int]()
        self.said: list[tuple[int, int]] = []

    def ask(self, syndrome: int) -> None:
        self.said.append((syndrome, self.expected))
        self.asked = True
        self.gone.clear()  # all behind it is sent again

    def came(self, psn: int, trimmed: bool) -> None:
        if trimmed and psn >= self.expected:
            self.gone.add(psn)
        elif psn == self.expected:
            self.expected, self.asked = self.expected + 1, False
        elif psn > self.expected and not self.asked:
            self.ask(0x60)
        if self.expected in self.gone:
            self.ask(NAK_TRIMMED)


def test_dctcp_slows_down_while_what_it_sends_again_is_trimmed() -> None:
    """The loss of a retransmission is one more indication of congestion (RFC 5681, 4.3): 32 windows that come again and
    again, with go-back-N, never end otherwise. The last cable carries 32 times 256 KB in 171 us."""
    with star(33, hardware("dctcp", "go_back_n", 8_000_000, of_switch={"alpha": 0.25})) as f:
        flows = [[n, 0, 256_000, 0.0] for n in range(1, 33)]
        held_at(f, 1)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        held_at(f, 300_000)
        assert all(flow[4] is not None for flow in f.fabricd.request("traffic_results", fault="t")["flows"])
        assert total(f, "rx_trimmed") and not total(f, "local_ack_timeout_err")


def test_go_back_n_asks_for_a_trimmed_packet_in_its_turn_and_forgets_those_behind_it() -> None:
    """With losses besides, which are asked for as ever."""
    with star(5, hardware("nscc", "go_back_n")) as f:
        path = f.directory / "seen.pcapng"
        f.fabricd.request("capture", port="h0:1", path=str(path))
        lost = {"effect": "drop", "ports": ["sw0:1"], "match": {"dscp": 26}, "select": {"share": 0.01}}
        f.fabricd.request("inject", fault="lost", primitive="frames", **lost)
        send(f, [(k, 0, 1_200_000, 0) for k in range(1, 5)])
        f.fabricd.request("capture_stop", path=str(path))
        seen = frames(path)
    for sender in {fr.macs[1] for fr in seen if not fr.out}:
        receiver, naks = GoBackN(), []
        for fr in seen:
            if not fr.out and fr.macs[1] == sender:
                receiver.came(fr.psn, fr.dscp == 36)
            elif fr.out and fr.macs[0] == sender and fr.syndrome & 0x60:
                naks.append((fr.syndrome, fr.psn))
        assert naks == receiver.said and {syndrome for syndrome, _ in naks} == {0x60, NAK_TRIMMED}


@pytest.mark.parametrize("recovery", ["selective_repeat", "go_back_n"])
def test_a_trimmed_copy_of_what_has_come_is_a_duplicate_and_acknowledged(recovery: str) -> None:
    """InfiniBand specification, 9.7.5.1.4: the acknowledgement of a duplicate names the newest packet that has come."""
    with star(2, hardware(recovery=recovery)) as f:
        sent, seen = f.directory / "sent.pcapng", f.directory / "seen.pcapng"
        f.fabricd.request("capture", port="h1:1", path=str(sent))
        send(f, [(1, 0, 10 * 4096, 0)])
        f.fabricd.request("capture_stop", path=str(sent))
        f.fabricd.request("capture", port="h0:1", path=str(seen))
        third = [raw for raw in frames_of(sent) if len(raw) > 1000][2]
        put_out(f, "sw0", "h0", what_is_left(third, 128, dscp=36))
        f.fabricd.request("quiesce", 60.0)
        f.fabricd.request("capture_stop", path=str(seen))
        assert total(f, "duplicate_request") == total(f, "rx_trimmed") == 1 and total(f, "retransmitted") == 0
        assert f.nic(0)["rx_vport_rdma_unicast_packets"] == 11  # which it counts like any other
        copy, answer = frames(seen)
    assert (copy.psn, answer.opcode, answer.syndrome & 0x60, answer.psn) == (2, ACK, 0, 9)
