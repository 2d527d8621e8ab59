"""The counters of a live fabric as operators know them: tables as SONiC's commands print them, and `ethtool -S`.

Columns are those of sonic-utilities: portstat (`show interfaces counters`), intfutil (`show interfaces status`),
pfcstat (`show pfc counters`), queuestat (`show queue counters`), wredstat (`show queue wredcounters`), watermarkstat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Counters = Mapping[str, Any]
Rows = list[dict[str, Any]]
GAP_BYTES = 20
"""Preamble and gap of a frame: on the cable, and in no counter of bytes."""
_CLASSES = range(8)
_TX_DROPS = ("lossy", "cable", "mtu", "watchdog", "ttl")
"""Reasons that are counted at the egress port; all others are counted at the ingress port."""
_RX_ERRORS = ("icrc", "malformed")


@dataclass(frozen=True)
class Table:
    """One table of a view: its name in JSON, its title, its rows."""

    name: str
    title: str
    rows: Rows


@dataclass(frozen=True)
class Snapshot:
    """Counters `now`, a moment `before` (for rates), and when they were `cleared`."""

    now: Counters
    before: Counters | None = None
    cleared: Counters | None = None
    nic_mtu: int = 0
    _own: Counters = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_own", since(self.now, self.cleared))

    @property
    def counts(self) -> Counters:
        """The counters since they were cleared; watermarks and states as they are."""
        return self._own


# The keys that identify a row, and the columns that are not counters.
_KEYS = {
    "ports": ("node", "port"),
    "nics": ("rank",),
    "qps": ("rank", "qp"),
    "drops": ("node", "port", "reason"),
    "switches": ("switch",),
    "accelerators": ("switch",),
    "flows": ("switch", "table", "priority", "match"),
}
_STATES = {
    *("port", "rank", "qp", "peer", "peer_qp", "rate_bps", "window_bytes", "udp_src_port", "engine_used_bytes"),
    *("table", "priority", "buffer_bytes", "buffer_used_bytes"),
    *("ip", "slots", "slots_free", "elements", "fan_in", "shared_slots", "shared_used"),
}


def since(now: Counters, then: Counters | None) -> Counters:
    """What was counted after `then`."""
    if then is None:
        return now
    rows: dict[str, Any] = {}
    for table, keys in _KEYS.items():
        old = {tuple(row[k] for k in keys): row for row in then.get(table, ())}
        rows[table] = [_less(row, _same(row, old.get(tuple(row[k] for k in keys), {}))) for row in now.get(table, ())]
    return {**now, **rows}


def _same(row: Mapping[str, Any], old: Mapping[str, Any]) -> Mapping[str, Any]:
    """The old row, unless the new one is another thing: a later job's queue pairs have the same numbers."""
    return {} if row.get("tx_packets", 0) < old.get("tx_packets", 0) else old


def _less(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in new.items():
        if isinstance(value, Mapping):
            row[key] = _less(value, old.get(key, {}))
        elif isinstance(value, int) and not isinstance(value, bool) and key not in _STATES and "_max" not in key:
            row[key] = value - old.get(key, 0)
        else:
            row[key] = value
    return row


def _switch_ports(counters: Counters) -> list[Mapping[str, Any]]:
    switches = {s["switch"] for s in counters["switches"]}
    return [p for p in counters["ports"] if p["node"] in switches]


def _name(port: Mapping[str, Any]) -> str:
    return f"{port['node']}:{port['port']}"


def _by_priority(port: Mapping[str, Any], counter: str) -> list[int]:
    """The eight values of a counter such as `rx_prioN_pause`."""
    return [port.get("priorities", {}).get(counter.replace("N", str(c)), 0) for c in _CLASSES]


def _links(counters: Counters) -> dict[tuple[str, int], Mapping[str, Any]]:
    return {(link["node"], link["port"]): link for link in counters.get("links", ())}


def counters(snapshot: Snapshot) -> list[Table]:
    """As `show interfaces counters`."""
    before = {} if snapshot.before is None else {_name(p): p for p in snapshot.before["ports"]}
    passed_ns = 0 if snapshot.before is None else snapshot.now["time_ns"] - snapshot.before["time_ns"]
    now = {_name(p): p for p in snapshot.now["ports"]}
    links = _links(snapshot.now)
    rows = []
    for p in _switch_ports(snapshot.counts):
        link = links.get((p["node"], p["port"]), {})
        row: dict[str, Any] = {"IFACE": _name(p), "STATE": "U" if link.get("up") else "D"}
        for way, dropped in (("rx", p["drops"].keys() - {*_TX_DROPS, *_RX_ERRORS}), ("tx", {*_TX_DROPS})):
            errors = sum(p["drops"].get(why, 0) for why in _RX_ERRORS) if way == "rx" else 0
            rate, use = _rate(now[_name(p)], before.get(_name(p)), way, passed_ns, link.get("rate_bps", 0))
            head = way.upper()
            row |= {
                f"{head}_OK": p[f"{way}_frames"], f"{head}_BPS": rate, f"{head}_UTIL": use, f"{head}_ERR": errors,
                f"{head}_DRP": sum(p["drops"].get(why, 0) for why in dropped), f"{head}_OVR": 0,
            }  # fmt: skip
        rows.append(row)
    return [Table("counters", "", rows)]


def _rate(
    now: Mapping[str, Any], before: Mapping[str, Any] | None, way: str, passed_ns: float, speed: int
) -> tuple[str, str]:
    """Bytes per second of emulated time, and the share of the cable that they take with preamble and gap."""
    if before is None or passed_ns <= 0:
        return "N/A", "N/A"
    rate = (now[f"{way}_bytes"] - before[f"{way}_bytes"]) * 1e9 / passed_ns
    gaps = (now[f"{way}_frames"] - before[f"{way}_frames"]) * GAP_BYTES * 1e9 / passed_ns
    return bytes_per_second(rate), f"{(rate + gaps) * 8 / speed:.2%}" if speed else "N/A"


def bytes_per_second(rate: float) -> str:
    """As SONiC writes it: `12.50 MB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("KB/s", 1e3)):
        if rate > 10 * size or (unit == "GB/s" and rate >= size):
            return f"{rate / size:.2f} {unit}"
    return f"{rate:.2f} B/s"


def status(snapshot: Snapshot) -> list[Table]:
    """As `show interfaces status`, of switches and NICs. A switch's MTU is any, unless a fault limits it."""
    links = _links(snapshot.now)
    nics = {n["nic"] for n in snapshot.now["nics"]}
    rows = []
    for p in snapshot.now["ports"]:
        if (link := links.get((p["node"], p["port"]))) is not None:
            rows.append({
                "Interface": _name(p), "Speed": _speed(link["rate_bps"]),
                "MTU": link["mtu"] or (snapshot.nic_mtu if p["node"] in nics else 0) or "any",
                "Oper": "up" if link["up"] else "down", "Admin": "up", "Peer": p["peer"],
            })  # fmt: skip
    return [Table("interfaces", "", rows)]


def _speed(bps: int) -> str:
    return f"{bps / 1e9:g}G" if bps >= 1e9 else f"{bps / 1e6:g}M"


def pfc(snapshot: Snapshot) -> list[Table]:
    """As `show pfc counters`: PFC frames received and sent by priority, of switch ports and NICs."""
    cabled = [p for p in snapshot.counts["ports"] if p["peer"]]
    return [
        Table(way.lower(), "", [
            {f"Port {way}": _name(p)} | {f"PFC{c}": v for c, v in enumerate(_by_priority(p, counter))} for p in cabled
        ])
        for way, counter in (("Rx", "rx_prioN_pause"), ("Tx", "tx_prioN_pause"))
    ] + [
        Table("pauses", "RX pause time (us)", [
            {"Port": _name(p)} | {f"PFC{c}": v for c, v in enumerate(_by_priority(p, "rx_prioN_pause_duration"))}
            for p in cabled
        ]),
        Table("watchdog", "Storms that the PFC watchdog saw", [
            {"Port": _name(p)} | {f"PFC{c}": v for c, v in enumerate(_by_priority(p, "pfcwd_storms_prioN"))}
            for p in _switch_ports(snapshot.counts)
        ]),
    ]  # fmt: skip


def ecn(snapshot: Snapshot) -> list[Table]:
    """As `show queue wredcounters`: marked packets by queue, and what NICs did about them."""
    queued = [
        {"Port": _name(p), "TxQ": f"UC{c}", "WredDrp/pkts": "N/A", "EcnMarked/pkts": marked}
        for p in _switch_ports(snapshot.counts)
        for c, marked in enumerate(_by_priority(p, "ecn_marked_prioN"))
    ]
    keys = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")
    nics = [{"NIC": f"{n['nic']} (rank {n['rank']})"} | {k: n[k] for k in keys} for n in snapshot.counts["nics"]]
    return [Table("queues", "", queued), Table("nics", "Congestion notifications", nics)]


def queues(snapshot: Snapshot) -> list[Table]:
    """As `show queue counters`, `show queue watermark unicast` and `show priority-group watermark`."""
    ports = _switch_ports(snapshot.counts)
    counted = []
    for p in ports:
        names = ("tx_prioN_packets", "tx_prioN_bytes", "drops_prioN", "drop_bytes_prioN")
        for c, one in enumerate(zip(*(_by_priority(p, name) for name in names), strict=True)):
            heads = ("Counter/pkts", "Counter/bytes", "Drop/pkts", "Drop/bytes")
            counted.append({"Port": _name(p), "TxQ": f"UC{c}", **dict(zip(heads, one, strict=True))})

    def watermark(name: str, title: str, counter: str, column: str) -> Table:
        rows = [{"Port": _name(p)} | {f"{column}{c}": v for c, v in enumerate(_by_priority(p, counter))} for p in ports]
        return Table(name, f"{title}, the most since the fabric came up or its last job began (bytes)", rows)

    return [
        Table("queues", "", counted),
        watermark("watermark", "Egress queue", "queue_max_prioN_bytes", "UC"),
        watermark("shared", "Ingress shared pool by priority group", "ingress_max_prioN_bytes", "PG"),
        watermark("headroom", "Ingress headroom by priority group", "headroom_max_prioN_bytes", "PG"),
    ]


def qps(snapshot: Snapshot) -> list[Table]:
    """The queue pairs of all NICs."""
    keys = ("rank", "qp", "peer", "peer_qp", "path", "state", "tx_packets", "tx_bytes", "retransmitted", "cnps")
    rows = [
        {k: q[k] for k in keys} | {"rate_Gbps": round(q["rate_bps"] / 1e9, 3), "window_bytes": q["window_bytes"]}
        for q in snapshot.counts["qps"]
    ]
    return [Table("qps", "", rows)]


def drops(snapshot: Snapshot) -> list[Table]:
    """As `show dropcounters counts`: where, why, how many, and the last one's headers."""
    return [Table("drops", "", [row for row in snapshot.counts["drops"] if row["count"]])]


VIEWS: dict[str, Callable[[Snapshot], list[Table]]] = {
    "counters": counters, "status": status, "pfc": pfc, "ecn": ecn, "queues": queues, "qps": qps, "drops": drops,
}  # fmt: skip


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
    for c in _CLASSES:
        for name in ("rx_prioN_bytes", "rx_prioN_packets", "tx_prioN_bytes", "tx_prioN_packets", "rx_prioN_pause",
                     "rx_prioN_pause_duration", "rx_prioN_pause_transition", "tx_prioN_pause"):  # fmt: skip
            priorities[name.replace("N", str(c))] = _by_priority(port, name)[c]
    return {**own, **rest, "roce_adp_retrans": nic["retransmitted"], **priorities}
