"""What operators look at, of a live fabric: tables in the layout of SONiC's commands and of `ethtool -S`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Counters = Mapping[str, Any]
Rows = list[dict[str, Any]]


def _switch_ports(counters: Counters) -> list[Mapping[str, Any]]:
    switches = {s["switch"] for s in counters["switches"]}
    return [p for p in counters["ports"] if p["node"] in switches]


def _by_priority(port: Mapping[str, Any], counter: str) -> list[int]:
    """The eight values of a counter such as `rx_prioN_pause`."""
    return [port["priorities"].get(counter.replace("N", str(c)), 0) for c in range(8)]


def counters(seen: Counters) -> Rows:
    """As `show interfaces counters`."""
    return [
        {
            "IFACE": f"{p['node']}:{p['port']}", "PEER": p["peer"],
            "RX_OK": p["rx_frames"], "RX_BYTES": p["rx_bytes"], "TX_OK": p["tx_frames"], "TX_BYTES": p["tx_bytes"],
            "DRP": sum(p["drops"].values()),
        }
        for p in _switch_ports(seen)
    ]  # fmt: skip


def pfc(seen: Counters) -> Rows:
    """As `show pfc counters`: PFC frames received and sent by priority, of switch ports and NICs."""
    rows = []
    for way, counter in (("Rx", "rx_prioN_pause"), ("Tx", "tx_prioN_pause")):
        for p in seen["ports"]:
            values = _by_priority(p, counter)
            if p["peer"]:
                rows.append({f"Port {way}": f"{p['node']}:{p['port']}"} | {f"PFC{c}": v for c, v in enumerate(values)})
    return rows


def ecn(seen: Counters) -> Rows:
    """Marked packets by priority and port, and what NICs did about them."""
    rows = [
        {"IFACE": f"{p['node']}:{p['port']}"}
        | {f"MARKED{c}": v for c, v in enumerate(_by_priority(p, "ecn_marked_prioN"))}
        for p in _switch_ports(seen)
    ]
    keys = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")
    return rows + [{"IFACE": f"{n['nic']} (rank {n['rank']})"} | {k: n[k] for k in keys} for n in seen["nics"]]


def queues(seen: Counters) -> Rows:
    """As `show queue counters` and `show queue watermark`: one line for each queue that was ever used."""
    rows = []
    for p in _switch_ports(seen):
        for c in range(8):
            one = {name: _by_priority(p, name)[c] for name in (
                "tx_prioN_packets", "tx_prioN_bytes", "drops_prioN", "queue_max_prioN_bytes", "ingress_max_prioN_bytes",
                "headroom_max_prioN_bytes", "pfcwd_storms_prioN")}  # fmt: skip
            if any(one.values()):
                rows.append({
                    "Port": f"{p['node']}:{p['port']}", "TxQ": f"UC{c}", "Counter/pkts": one["tx_prioN_packets"],
                    "Counter/bytes": one["tx_prioN_bytes"], "Drop/pkts": one["drops_prioN"],
                    "Queue max": one["queue_max_prioN_bytes"], "PG max": one["ingress_max_prioN_bytes"],
                    "Headroom max": one["headroom_max_prioN_bytes"], "PFCWD storms": one["pfcwd_storms_prioN"],
                })  # fmt: skip
    return rows


def qps(seen: Counters) -> Rows:
    """The queue pairs of all NICs."""
    keys = ("rank", "qp", "peer", "peer_qp", "path", "state", "tx_packets", "tx_bytes", "retransmitted", "cnps")
    return [
        {k: q[k] for k in keys} | {"rate_Gbps": round(q["rate_bps"] / 1e9, 3), "window_bytes": q["window_bytes"]}
        for q in seen["qps"]
    ]


def drops(seen: Counters) -> Rows:
    """As `show dropcounters counts`: where, why, how many, and the last one's headers."""
    return list(seen["drops"])


VIEWS: dict[str, Callable[[Counters], Rows]] = {
    "counters": counters, "pfc": pfc, "ecn": ecn, "queues": queues, "qps": qps, "drops": drops,
}  # fmt: skip


def ethtool(seen: Counters, rank: int) -> dict[str, int]:
    """A NIC's counters by the names that mlx5 gives them."""
    nic = seen["nics"][rank]
    port = next(p for p in seen["ports"] if (p["node"], p["port"]) == (nic["nic"], 1))
    own = {
        "rx_packets_phy": port["rx_frames"], "rx_bytes_phy": port["rx_bytes"],
        "tx_packets_phy": port["tx_frames"], "tx_bytes_phy": port["tx_bytes"],
        "rx_discards_phy": sum(port["drops"].values()),
    }  # fmt: skip
    rest = {k: v for k, v in nic.items() if k not in ("nic", "rank", "retransmitted")}
    priorities = {}
    for c in range(8):
        for name in ("rx_prioN_bytes", "rx_prioN_packets", "tx_prioN_bytes", "tx_prioN_packets", "rx_prioN_pause",
                     "rx_prioN_pause_duration", "rx_prioN_pause_transition", "tx_prioN_pause"):  # fmt: skip
            priorities[name.replace("N", str(c))] = _by_priority(port, name)[c]
    return {**own, **rest, "roce_adp_retrans": nic["retransmitted"], **priorities}
