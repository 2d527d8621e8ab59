"""What each answer tells a worker: the host time that it took, and the bytes that its NIC has sent, both exact."""

from __future__ import annotations

import time

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import DEADLINE_S, bare_fabric, post_recv
from tests.parts.timing_model import one
from workloads.verbs import wire

HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
RETH = 16
IMM = 4


def packets(length: int, mtu: int = 4096) -> int:
    return max(1, -(-length // mtu))


def test_posts_and_spends_are_host_time_and_waiting_is_not() -> None:
    with bare_fabric("star", {"hosts": 2}, Hardware(post_ns=150)) as f:
        pair = f.pair(0, 1, 1 << 20)
        before = pair.a.host_ps
        assert before == 0  # connecting and registering took none
        pair.park()
        pair.a.wait(1, wire.FOREVER, wire.command(wire.SPEND, 7_500), pair.write(1 << 20))
        assert pair.a.host_ps == 150_000 + 7_500
        pair.a.wait(0, wire.FOREVER, post_recv(pair.qp_a, pair.key_a), post_recv(pair.qp_a, pair.key_a))
        assert pair.a.host_ps == 3 * 150_000 + 7_500
        pair.a.wait(1, pair.a.time_ps + 10**9)
        assert pair.a.host_ps == 3 * 150_000 + 7_500
        pair.done()


def test_a_slow_host_takes_longer() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.fabricd.request("inject", fault="f", primitive="params", nic=0, values={"slow": 3.0})
        f.start(0, 1)
        a, b = f.worker(0), f.worker(1)
        b.begin_wait(1, 10**9)
        a.wait(1, 1000)
        a.wait(0, wire.FOREVER, wire.command(wire.SPEND, 1000))
        assert a.host_ps == 3000
        a.bye()
        b.end_wait()
        b.bye()


@pytest.mark.parametrize("length", [1, 4096, 4097, 100_000])
def test_sent_bytes_are_payload_and_headers(length: int) -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1, 1 << 20)
        pair.park()
        pair.a.wait(1, wire.FOREVER, pair.write(length))
        assert pair.a.sent_bytes == length + (-length % 4) + packets(length) * HEADERS + RETH
        pair.a.bye()
        pair.b.end_wait()
        assert pair.b.sent_bytes == 0  # its acknowledgements do not count
        pair.b.bye()


def test_bytes_within_a_scale_up_domain_do_not_count() -> None:
    with bare_fabric("rail", {"servers": 1, "gpus": 2, "spines": 1}) as f:
        pair = f.pair(0, 1)
        assert pair.scale_up
        pair.park()
        assert one(pair.a.wait(1, wire.FOREVER, pair.write(4096))).status == 0
        assert pair.a.sent_bytes == 0
        pair.done()


def test_a_worker_that_dawdles_is_told_of_its_own_time_not_of_the_clock() -> None:
    """The clock may run ahead of a running worker by what a post needs to act; what is sent meanwhile is not told."""
    with bare_fabric("star", {"hosts": 2}, Hardware(pcie_latency_ns=3000)) as f:
        pair = f.pair(0, 1, 1 << 20)
        pair.park()
        started = pair.a.time_ps
        pair.a.wait(1, started + 10_000_000, pair.write(1 << 20))
        told, now = pair.a.sent_bytes, pair.a.time_ps
        assert 0 < told < 1 << 20
        end = time.monotonic() + DEADLINE_S
        while f.fabricd.request("status")["time_ns"] * 1000 <= now + 2_000_000:
            assert time.monotonic() < end
        assert f.nic(0)["tx_vport_rdma_unicast_bytes"] > told
        pair.a.wait(0)
        assert (pair.a.time_ps, pair.a.sent_bytes) == (now, told)
        pair.a.wait(1)
        assert pair.a.sent_bytes == (1 << 20) + 256 * HEADERS + RETH
        pair.done()
