"""NICs of a live fabric: their queue pairs, and their counters by mlx5's names."""

from __future__ import annotations

from testbed.live.look.look import Look
from testbed.live.look.table import Counters, Table
from testbed.live.views import ports
from testbed.live.views.view import counting


def qps(look: Look) -> list[Table]:
    """The queue pairs of all NICs."""
    keys = ("rank", "qp", "peer", "peer_qp", "path", "state", "tx_packets", "tx_bytes", "retransmitted", "cnps")
    rows = [
        {k: q[k] for k in keys} | {"rate_Gbps": round(q["rate_bps"] / 1e9, 3), "window_bytes": q["window_bytes"]}
        for q in look.counts["qps"]
    ]
    return [Table("qps", "", rows)]


def ethtool(snapshot: Counters, rank: int) -> dict[str, int]:
    """A NIC's counters by the names that mlx5 gives them."""
    nic = snapshot["nics"][rank]
    port = next(p for p in snapshot["ports"] if (p["node"], p["port"]) == (nic["nic"], 1))
    own = {
        "rx_packets_phy": port["rx_frames"], "rx_bytes_phy": port["rx_bytes"],
        "tx_packets_phy": port["tx_frames"], "tx_bytes_phy": port["tx_bytes"],
        "rx_discards_phy": sum(port["drops"].values()),
    }  # fmt: skip
    rest = {k: v for k, v in nic.items() if k not in ("nic", "rank", "retransmitted")}
    priorities = {}
    for c in ports.CLASSES:
        for name in ("rx_prioN_bytes", "rx_prioN_packets", "tx_prioN_bytes", "tx_prioN_packets", "rx_prioN_pause",
                     "rx_prioN_pause_duration", "rx_prioN_pause_transition", "tx_prioN_pause"):  # fmt: skip
            priorities[name.replace("N", str(c))] = ports.by_priority(port, name)[c]
    return {**own, **rest, "roce_adp_retrans": nic["retransmitted"], **priorities}


VIEWS = (counting(words="qps", about="Show the queue pairs of a live fabric's NICs.", make=qps),)
