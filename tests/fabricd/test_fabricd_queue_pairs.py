"""Several queue pairs of a connection over a fabric that loses packets: every byte, every message, in its order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from struct import Struct
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from workloads.verbs import Device, Peer, wire

COUNT, MESSAGES, BYTES, MTU = 3, 12, 20_000, 4096
KEY = Struct("<I")
TRANSPORTS: dict[str, dict[str, Any]] = {
    "go_back_n": {},
    "selective_repeat": {"recovery": "selective_repeat"},
    "any order": {"recovery": "selective_repeat", "ordering": "any", "sack_bits": 64, "loss_after_ns": 4000},
}


def content(number: int) -> bytes:
    return bytes((number * 37 + k * 11) % 256 for k in range(BYTES))


def sends(device: Device) -> list[int]:
    """All at once; the order in which it hears of them."""
    source = device.region(MESSAGES * BYTES)
    for k in range(MESSAGES):
        source.view("uint8", k * BYTES, BYTES)[:] = list(content(k))
    (pair,) = device.connect([Peer(1, 5)])
    (key,) = KEY.unpack(pair.private)
    for k in range(MESSAGES):
        pair.write(source, k * BYTES, BYTES, key, k * BYTES, wr_id=k, imm=k)
    records: list[Any] = []
    while len(records) < MESSAGES:
        records += device.wait(MESSAGES - len(records))
    assert {r.kind for r in records} == {wire.SENT} and {r.qp for r in records} == {pair.number}
    device.sync(1, 2)
    return [r.wr_id for r in records]


def receives(device: Device) -> list[int]:
    """The order in which they came."""
    target = device.region(MESSAGES * BYTES)
    (pair,) = device.connect([Peer(0, 5, KEY.pack(target.key))])
    for _ in range(MESSAGES):
        pair.recv(target)
    came: list[int] = []
    while len(came) < MESSAGES:
        for r in device.wait(MESSAGES - len(came)):
            assert (r.kind, r.qp, r.nbytes) == (wire.RECEIVED_IMM, pair.number, BYTES)
            assert bytes(target.view("uint8", r.imm * BYTES, BYTES)) == content(r.imm), r.imm
            came.append(r.imm)
    device.sync(1, 2)
    return came


def ends(f: BareFabric, split: bool) -> tuple[list[int], list[int]]:
    def as_rank(rank: int, act: Callable[[Device], list[int]]) -> list[int]:
        with Device(str(f.worker_socket(rank)), queue_pairs=COUNT, split=split) as device:
            return act(device)

    with ThreadPoolExecutor(2) as pool:
        sent, came = pool.submit(as_rank, 0, sends), pool.submit(as_rank, 1, receives)
        return sent.result(), came.result()


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_whatever_is_lost_comes_again_and_is_told_of_in_order(transport: str, split: bool) -> None:
    hardware = Hardware(timeout_ns=50_000, nic=TRANSPORTS[transport])
    with bare_fabric("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 1}, hardware, sample=1024) as f:
        select = {"every": 9}
        f.fabricd.request("inject", fault="f", primitive="frames", effect="drop", ports=["h0:1"], select=select)
        f.start(0, 1)
        sent, came = ends(f, split)
        pairs = [q for q in f.counters()["qps"] if q["rank"] == 0]
    assert sent == list(range(MESSAGES)) and sorted(came) == sent
    assert [q["qp"] for q in pairs] == [16, 17, 18] and sum(q["retransmitted"] for q in pairs) > 0
    if split and transport != "any order":
        assert came == sent
    each = MESSAGES * 2 if split else MESSAGES // COUNT * 5  # packets of parts of 6,784 B; of whole messages
    assert [q["tx_packets"] - q["retransmitted"] for q in pairs] == [each] * COUNT
