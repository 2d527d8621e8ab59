"""`ordering: any`: packets of writes are placed when they come, and messages complete when all of them is there.

Against a receiver that was written from the page (tests/parts/ordering_model.py), frame by frame; against arrivals that
are worked out by hand; and against the same messages where nothing is late or lost.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.config import Hardware
from tests.parts.dissected import dissect
from tests.parts.fabricd_fixture import FAST, BareFabric, Pair, bare_fabric, plain, post_recv, post_send
from tests.parts.ordering_model import AFTER, PART, Came, Receiver
from tests.parts.timing_model import RETH, wire_ps
from tests.parts.traffic_fabric import nic, send, star, switch
from tests.parts.wire_view import ACK, WireFrame, watched
from workloads.verbs import wire
from workloads.verbs.wire import Record

MTU, LINE, NUMBERS = 4096, 400e9, 1 << 24
SACK = {"sack_bits": 64, "sack_every": 16}
LOSS = {"loss_after_ns": 4000}
ONLY, ONLY_IMM = 10, 11


def hardware(**more: Any) -> Hardware:
    its_nic = {**nic(), "recovery": "selective_repeat", "lossless": [], **more}
    return Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)


def strike(f: BareFabric, effect: str = "drop", *, name: str = "x", **more: Any) -> None:
    f.fabricd.request("inject", fault=name, primitive="frames", effect=effect, **{"ports": ["h1:1"], **more})


def late(f: BareFabric, delay_ns: float, select: dict[str, Any], jitter_ns: float = 0) -> None:
    strike(f, "delay", name="late", delay_ns=delay_ns, jitter_ns=jitter_ns, reorder=True, select=select)


Message = tuple[int, int | None]
"""Bytes, and an immediate or None."""


def exchange(pair: Pair, messages: Sequence[Message], receives: int | None = None) -> tuple[list[Record], list[Record]]:
    """Writes them behind each other, all at once; what the receiver and the sender hear of them."""
    at, posts = 0, []
    for k, (size, imm) in enumerate(messages):
        opcode = wire.WRITE if imm is None else wire.WRITE_IMM
        posts.append(pair.write(size, opcode=opcode, imm=imm or 0, wr_id=k, local=at, remote=at))
        at += size
    assert at <= len(pair.memory_a)
    imms = sum(imm is not None for _, imm in messages)
    pair.b.begin_wait(imms, wire.FOREVER, *(post_recv(pair.qp_b, pair.key_b) for _ in range(imms)))
    pair.a.begin_wait(len(posts), wire.FOREVER, *posts)
    received = pair.b.end_wait()
    pair.park()
    return received, pair.a.end_wait()


def check(pair: Pair, messages: Sequence[Message], received: Sequence[Record], sent: Sequence[Record]) -> None:
    """Every byte is in its place, and everybody was told once: the sender in order, with the right lengths."""
    assert pair.memory_b[:] == pair.memory_a[:]
    assert [(r.wr_id, r.status) for r in sent] == [(k, 0) for k in range(len(messages))]
    told = [(imm, size) for size, imm in messages if imm is not None]
    assert sorted((r.imm, r.nbytes) for r in received) == told


def drawn(seed: int, count: int = 40) -> list[Message]:
    rng = random.Random(seed)
    sizes = (0, 1, 100, MTU, MTU + 1, 5 * MTU, 20 * MTU - 5, 40 * MTU)
    return [(rng.choice(sizes), k if k == count - 1 or rng.random() < 0.6 else None) for k in range(count)]


def came(fr: WireFrame, first: int, tied: bool) -> Came:
    number = first + ((fr.psn - first + NUMBERS // 2) % NUMBERS - NUMBERS // 2)
    assert fr.reth is not None
    part = fr.reserved == PART
    return Came(number, fr.reth[2], fr.asks, fr.imm, part, part or tied)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 1 << 20),
    st.sampled_from([(32, 1), (32, 7), (64, 16), (256, 3)]),
    st.sampled_from([0, NUMBERS - 200, NUMBERS - 1]),
    st.sampled_from([0.0, 0.02, 0.1]),
    st.sampled_from([500.0, 3000.0, 20_000.0]),
)
def test_a_receiver_says_and_completes_what_its_model_does(
    seed: int, sack: tuple[int, int], first: int, loss: float, jitter_ns: float
) -> None:
    messages = drawn(seed)
    bits, every = sack
    h = hardware(ordering="any", sack_bits=bits, sack_every=every, first_psn=first, **LOSS)
    model = Receiver(bits, every, True, h.pcie_rate_bps, int(h.pcie_latency_ns * 1000), first)
    with (
        bare_fabric("star", {"hosts": 2}, h, binary=plain(), sample=FAST, change=lambda c: c.update(seed=seed)) as f,
        watched(f, "h0:1") as seen,
    ):
        pair = f.pair(1, 0, sum(size for size, _ in messages))
        pair.memory_a[:] = os.urandom(len(pair.memory_a))
        late(f, 0, {"share": 0.7}, jitter_ns)
        if loss:
            strike(f, select={"share": loss})
        received, sent = exchange(pair, messages)
        check(pair, messages, received, sent)
        pair.done()
        counted = f.nic(0)
    said = []
    for fr in seen["frames"]:
        if fr.opcode == ACK:
            said.append(fr)
        else:
            model.comes(came(fr, first, fr.reserved == AFTER), fr.time_ns * 1000)
    assert [(s.number % NUMBERS, s.first and s.first % NUMBERS) for s in model.said] == [
        (fr.psn, fr.sack and fr.sack[0]) for fr in said
    ]
    for s, fr in zip(model.said, said, strict=True):
        bits_of = fr.sack[1] if fr.sack else 0
        assert s.ahead == {(s.first or 0) + i for i in range(bits_of.bit_length()) if bits_of >> i & 1}
    assert {r.imm: r.nbytes for r in received} == {imm: size for imm, (_, size) in model.completed.items()}
    assert all(abs(r.time_ps - model.completed[r.imm][0]) <= 1000 for r in received)  # captures are in ns
    counts = (model.early, model.twice, sum(s.first is not None for s in model.said))
    assert counts == (counted["out_of_sequence"], counted["duplicate_request"], counted.get("tx_sack", 0))
    assert counted.get("placed_out_of_order", 0) == model.early


def test_two_paths_of_different_delay() -> None:
    """Packets take turns on them, and one is 4.5 packets longer. Worked out by hand:

    0, 2, 4, 1, 6, 3, 8, 5, 10, 7, 9 and 11 come; every third that is early or closes a gap (both of its ends count)
    has an answer: when 1, 3, 5 and 7 close gaps. The last one asks for one.
    """
    h = hardware(ordering="any", sack_bits=32, sack_every=3, **LOSS)
    with star(2, h) as f, watched(f, "h0:1") as seen:
        t_ns = wire_ps(LINE, MTU, RETH) / 1000
        late(f, 4.5 * t_ns, {"every": 2})
        send(f, [(1, 0, 12 * MTU, 0)])
        assert f.nic(1)["retransmitted"] == 0
        counted = {k: f.nic(0)[k] for k in ("out_of_sequence", "reorder_distance", "reorder_distance_max", "tx_sack")}
    data = [fr for fr in seen["frames"] if not fr.out]
    assert [fr.psn for fr in data] == [0, 2, 4, 1, 6, 3, 8, 5, 10, 7, 9, 11]
    whole = [0, 2, 4, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 13.5, 15.5]  # 6, 8 and 10 wait for the last cable
    assert [fr.time_ns - data[0].time_ns for fr in data] == pytest.approx([k * t_ns for k in whole], abs=1)
    at = {fr.psn: fr.time_ns for fr in data}
    answers = [(fr.time_ns, fr.psn, fr.sack) for fr in seen["frames"] if fr.out]
    assert answers == [(at[1], 2, (4, 1)), (at[3], 4, (6, 1)), (at[5], 6, (8, 1)), (at[7], 8, (10, 1)),
                       (at[11], 11, None)]  # fmt: skip
    # 2 and 4 came 1 and 3 ahead of 1, then 6, 8 and 10 each 3 ahead
    assert counted == {"out_of_sequence": 5, "reorder_distance": 13, "reorder_distance_max": 3, "tx_sack": 4}


def completions(ordering: str, lost: bool, messages: Sequence[Message]) -> list[Record]:
    with bare_fabric("star", {"hosts": 2}, hardware(ordering=ordering, **SACK, **LOSS), binary=plain()) as f:
        pair = f.pair(1, 0, sum(size for size, _ in messages))
        pair.memory_a[:] = os.urandom(len(pair.memory_a))
        if lost:
            strike(f, select={"first": 1})
        received, sent = exchange(pair, messages)
        check(pair, messages, received, sent)
        pair.done()
    return received


def test_a_message_completes_whatever_is_missing_before_it() -> None:
    """The first packet is lost: only its own message waits, and in order all others do."""
    messages = [(3 * MTU, 1), (MTU, 2), (0, 3), (2 * MTU, 4)]
    whole = {r.imm: r.time_ps for r in completions("any", False, messages)}
    lost = {r.imm: r.time_ps for r in completions("any", True, messages)}
    assert list(lost) == [2, 3, 4, 1] and list(whole) == [1, 2, 3, 4]
    assert all(lost[imm] == whole[imm] for imm in (2, 3, 4))
    kept = completions("in_order", True, messages)
    assert [r.imm for r in kept] == [1, 2, 3, 4]
    assert len({r.time_ps for r in kept}) == 1 and kept[0].time_ps == pytest.approx(lost[1], abs=2000)


def test_an_immediate_speaks_for_the_writes_before_it_that_nobody_was_told_of() -> None:
    """As in order: whoever hears of it may read what they wrote."""
    messages = [(2 * MTU, None), (MTU, None), (MTU, 1), (MTU, None), (MTU, 2)]
    assert [r.imm for r in completions("any", True, messages)] == [2, 1]


def test_each_packet_is_a_write_of_its_own_for_tshark(tmp_path: Path) -> None:
    """With its address and length; two bits of seven that are reserved say what it is a part of."""
    messages = [(2 * MTU + 5, None), (MTU, None), (MTU + 1, 7), (MTU, 8), (0, 9)]
    path = tmp_path / "any.pcapng"
    with bare_fabric("star", {"hosts": 2}, hardware(ordering="any", **SACK), binary=plain()) as f:
        f.fabricd.request("capture", port="h1:1", path=str(path))
        pair = f.pair(1, 0, sum(size for size, _ in messages))
        check(pair, messages, *exchange(pair, messages))
        pair.done()
        f.fabricd.request("capture_stop", path=str(path))
    names = ("bth.opcode", "reth.va", "reth.dmalen", "bth.reserved7", "immdt")
    frames = dissect(path, *(f"infiniband.{name}" for name in names))

    def number(fr: dict[str, str], name: str) -> int | None:
        text = fr.get(f"infiniband.{name}")
        return None if text is None else int(text, 16 if name == "immdt" else 0)

    data = [[number(fr, name) for name in names] for fr in frames if number(fr, "bth.opcode") != ACK]
    at = 2 * MTU + 5
    assert data == [
        [ONLY, 0, MTU, 0, None],
        [ONLY, MTU, MTU, PART, None],
        [ONLY, 2 * MTU, 5, PART, None],
        [ONLY, at, MTU, AFTER, None],
        [ONLY, at + MTU, MTU, AFTER, None],
        [ONLY_IMM, at + 2 * MTU, 1, PART, 7],
        [ONLY_IMM, at + 2 * MTU + 1, MTU, 0, 8],
        [ONLY_IMM, at + 3 * MTU + 1, 0, 0, 9],
    ]


@pytest.mark.parametrize("posted", [0, 1])
def test_what_finds_no_receive_completes_in_its_turn_and_once(posted: int) -> None:
    """The first packet is lost; the second message has all of its own, and takes the receive that there is."""
    messages = [(3 * MTU, 1), (MTU, 2), (2 * MTU, 3)]
    with bare_fabric("star", {"hosts": 2}, hardware(ordering="any", **SACK, **LOSS), binary=plain()) as f:
        pair = f.pair(1, 0, 6 * MTU)
        pair.memory_a[:] = os.urandom(6 * MTU)
        strike(f, select={"first": 1})
        writes = [
            pair.write(size, opcode=wire.WRITE_IMM, imm=imm or 0, wr_id=imm or 0, local=at, remote=at)
            for (size, imm), at in zip(messages, (0, 3 * MTU, 4 * MTU), strict=True)
        ]
        receive = post_recv(pair.qp_b, pair.key_b)
        pair.b.begin_wait(3, pair.a.time_ps + 30_000_000, *[receive] * posted)
        pair.a.begin_wait(3, wire.FOREVER, *writes)
        received = pair.b.end_wait()
        assert [r.imm for r in received] == [2] * posted
        received += pair.b.wait(3 - posted, wire.FOREVER, *[receive] * (3 - posted))
        pair.park()
        sent = pair.a.end_wait()
        assert [(r.wr_id, r.status) for r in sent] == [(1, 0), (2, 0), (3, 0)]
        assert sorted((r.imm, r.nbytes) for r in received) == [(1, 3 * MTU), (2, MTU), (3, 2 * MTU)]
        assert pair.memory_b[:] == pair.memory_a[:] and f.nic(1)["rnr_nak_retry_err"] >= 1
        pair.done()


def test_what_may_not_be_written_is_refused_in_its_turn() -> None:
    """The second write has a wrong key, and comes ahead of the first, of which a packet is lost."""
    with bare_fabric("star", {"hosts": 2}, hardware(ordering="any", **SACK, **LOSS), binary=plain()) as f:
        pair = f.pair(1, 0, 4 * MTU)
        pair.memory_a[:] = os.urandom(4 * MTU)
        strike(f, select={"first": 1})
        writes = [
            post_send(pair.qp_a, pair.key_a, key, 2 * MTU, wr_id=k, local=2 * MTU * (k % 2), remote=2 * MTU * (k % 2))
            for k, key in enumerate((pair.key_b, 99, pair.key_b))
        ]
        pair.park()
        sent = pair.a.wait(3, wire.FOREVER, *writes)
        assert [(r.wr_id, r.status) for r in sent] == [(0, 0), (1, 10), (2, 5)]
        assert pair.memory_b[: 2 * MTU] == pair.memory_a[: 2 * MTU] and not any(pair.memory_b[2 * MTU :])
        pair.done()


def test_a_send_that_is_half_taken_keeps_its_receive() -> None:
    """Its last packet is lost, and the write behind it has all of its own: it waits, for its receive is the second."""
    with bare_fabric("star", {"hosts": 2}, hardware(ordering="any", **SACK, **LOSS), binary=plain()) as f:
        pair = f.pair(1, 0, 3 * MTU)
        pair.memory_a[:] = os.urandom(3 * MTU)
        strike(f, select={"first": 1}, match={"opcodes": ["SEND_LAST"]})
        places = [post_recv(pair.qp_b, pair.key_b, 2 * MTU * (n == 0), wr_id=n) for n in range(2)]
        pair.b.begin_wait(2, wire.FOREVER, *places)
        write = pair.write(MTU, opcode=wire.WRITE_IMM, imm=7, local=2 * MTU, remote=2 * MTU)
        pair.a.begin_wait(2, wire.FOREVER, pair.write(2 * MTU, opcode=wire.SEND), write)
        received = pair.b.end_wait()
        pair.park()
        assert len(pair.a.end_wait()) == 2 and f.nic(0)["placed_out_of_order"] == 1
        assert [(r.kind, r.wr_id) for r in received] == [(wire.RECEIVED, 0), (wire.RECEIVED_IMM, 1)]
        assert pair.memory_b[:] == pair.memory_a[:]
        pair.done()


def test_sends_take_their_turn_between_writes_that_do_not() -> None:
    count, size = 24, 2 * MTU + 100
    with bare_fabric("star", {"hosts": 2}, hardware(ordering="any", **SACK, **LOSS), binary=plain()) as f:
        pair = f.pair(1, 0, 2 * count * size)
        pair.memory_a[:] = os.urandom(2 * count * size)
        late(f, 0, {"share": 1.0}, 3000)
        strike(f, select={"share": 0.05})
        posts = [
            pair.write(size, opcode=opcode, imm=k, wr_id=k, local=k * size, remote=k * size)
            for k, opcode in enumerate([wire.WRITE_IMM, wire.SEND, wire.SEND] * (count // 3))
        ]
        places = [post_recv(pair.qp_b, pair.key_b, size, wr_id=n, offset=(count + n) * size) for n in range(count)]
        pair.b.begin_wait(count, wire.FOREVER, *places)
        pair.a.begin_wait(count, wire.FOREVER, *posts)
        received = pair.b.end_wait()
        pair.park()
        assert [(r.wr_id, r.status) for r in pair.a.end_wait()] == [(k, 0) for k in range(count)]

        def piece(memory: Any, k: int) -> bytes:
            return bytes(memory[k * size : (k + 1) * size])

        taken = [piece(pair.memory_b, count + r.wr_id) for r in received if r.kind == wire.RECEIVED]
        assert taken == [piece(pair.memory_a, k) for k in range(count) if k % 3]
        written = [r.imm for r in received if r.kind == wire.RECEIVED_IMM]
        assert sorted(written) == list(range(0, count, 3)) != written
        assert all(piece(pair.memory_b, k) == piece(pair.memory_a, k) for k in written)
        pair.done()


@pytest.mark.parametrize("ordering", ["in_order", "any"])
@pytest.mark.parametrize("more", [{}, SACK, LOSS, {**SACK, **LOSS}])
def test_all_is_in_its_place_and_told_once(ordering: str, more: dict[str, Any]) -> None:
    messages = drawn(3)
    total = sum(size for size, _ in messages)
    h = hardware(ordering=ordering, **more)
    with bare_fabric("star", {"hosts": 2}, h, binary=plain(), sample=FAST) as f:
        pair = f.pair(1, 0, total)
        pair.memory_a[:] = os.urandom(total)
        late(f, 0, {"share": 1.0}, 3000)
        strike(f, select={"share": 0.02})
        received, sent = exchange(pair, messages)
        check(pair, messages, received, sent)
        in_turn = [r.imm for r in received] == sorted(r.imm for r in received)
        assert in_turn == (ordering == "in_order")
        assert f.nic(0)["pcie_write_bytes"] == total and f.nic(1)["local_ack_timeout_err"] == 0
        assert ("placed_out_of_order" in f.nic(0)) == (ordering == "any")
        if more == SACK:  # what is only late goes again here, and comes twice: the sender sees most of that
            assert 10 < f.nic(1)["spurious_retransmitted"] <= f.nic(0)["duplicate_request"]
        pair.done()
