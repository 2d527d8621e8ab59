"""What NICs count: mlx5's vport counters against the bytes at the ports, with acknowledgements, without scale-up.

Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst: [rt]x_vport_rdma_unicast_packets and
_bytes are "RDMA unicast packets received, steered to a port" and "transmitted, steered from a port", both "RoCE/UD/RC
traffic": the same traffic in both directions.
"""

from __future__ import annotations

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.timing_model import RETH, one
from tests.parts.traffic_fabric import nic, port, send, star, switch
from workloads.verbs import wire

FCS = 4
HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
AETH = 4


def vport(f: BareFabric, rank: int, way: str) -> tuple[int, int]:
    nic = f.nic(rank)
    return nic[f"{way}_vport_rdma_unicast_packets"], nic[f"{way}_vport_rdma_unicast_bytes"]


def cable(f: BareFabric, rank: int, way: str) -> tuple[int, int]:
    """Frames and bytes without FCS at the NIC's port: it carries RDMA alone."""
    (port,) = (p for p in f.counters()["ports"] if (p["node"], p["port"]) == (f"h{rank}", 1))
    return port[f"{way}_frames"], port[f"{way}_bytes"] - FCS * port[f"{way}_frames"]


@pytest.mark.parametrize("ack_every", [1, 16])
def test_acknowledgements_count_in_both_directions(ack_every: int) -> None:
    packets = 64
    h = Hardware(ack_every=ack_every)
    with bare_fabric("star", {"hosts": 2}, h) as f:
        pair = f.pair(0, 1, packets * h.mtu)
        pair.park()
        assert one(pair.a.wait(1, wire.FOREVER, pair.write(packets * h.mtu))).status == 0
        pair.done()
        data = (packets, packets * (h.mtu + HEADERS) + RETH)
        acks = packets // ack_every
        answers = (acks, acks * (HEADERS + AETH))
        assert vport(f, 0, "tx") == vport(f, 1, "rx") == data
        assert vport(f, 1, "tx") == vport(f, 0, "rx") == answers
        assert all(vport(f, rank, way) == cable(f, rank, way) for rank in (0, 1) for way in ("tx", "rx"))


def test_congestion_notifications_count() -> None:
    """Two senders, and a port that marks whatever stands in its queue: notifications are RDMA packets, too."""
    marking = switch(headroom=0, lossless=[], alpha=64, ecn={"3": {"kmin_bytes": 0, "kmax_bytes": 0, "pmax": 1.0}})
    h = Hardware(switch_buffer_bytes=10**9, switch=marking, nic=nic("dcqcn"), timeout_ns=1e9)
    with star(3, h) as f:
        send(f, [(rank, 0, 200 * h.mtu, 0) for rank in (1, 2)])
        marked = port(f, "sw0", 1)["priorities"]["ecn_marked_prio3"]
        assert f.nic(0)["np_ecn_marked_roce_packets"] == marked > f.nic(0)["np_cnp_sent"] > 0
        for rank in range(3):
            assert all(vport(f, rank, way) == cable(f, rank, way) for way in ("tx", "rx"))


def test_scale_up_traffic_is_not_the_vport_s() -> None:
    with bare_fabric("rail", {"servers": 1, "gpus": 2, "spines": 1}) as f:
        pair = f.pair(0, 1, 1 << 16)
        assert pair.scale_up
        pair.park()
        assert one(pair.a.wait(1, wire.FOREVER, pair.write(1 << 16))).status == 0
        pair.done()
        assert [vport(f, rank, way) for rank in (0, 1) for way in ("tx", "rx")] == [(0, 0)] * 4
        assert sum(q["tx_bytes"] for q in f.counters()["qps"]) == 1 << 16
