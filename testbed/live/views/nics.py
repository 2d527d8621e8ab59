"""NICs of a live fabric: counters by mlx5's names, queue pairs, settings (ethtool, mlnx_qos, lspci), traffic, order."""

from __future__ import annotations

from collections import defaultdict
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from testbed.base.text import printable
from testbed.base.units import format_rate, format_size, format_time
from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import View, counting
from testbed.words import kinds
from testbed.words.entry import Parameter
from topologies.graph.fabric import Nic

_RANK = Parameter("rank", kinds.RANK, "Whose: a rank, or its NIC's name.", required=True)

_FROM_QP = Parameter(
    "qp",
    kinds.Number("qp", "NUMBER", 0, (1 << 24) - 1),
    "Of many queue pairs the page that begins with this one.",
    True,
)


def qps(look: Look) -> list[Table]:
    keys = ("rank", "qp", "peer", "peer_qp", "path", "state", "tx_packets", "tx_bytes", "retransmitted", "cnps")
    rows = [
        {k: q[k] for k in keys} | {"rate_Gbps": round(q["rate_bps"] / 1e9, 3), "window_bytes": q["window_bytes"]}
        for q in look.counts["qps"]
    ]
    whose = {(p["rank"], q["qp"]): p["pid"] for p in look.source.request("programs")["programs"] for q in p["qps"]}
    if whose:
        for row in rows:
            pid = whose.get((row["rank"], row["qp"]))
            row["program"] = "" if pid is None else f"{_comm(pid)}[{pid}]"
    if any("cc" in q for q in look.counts["qps"]):  # not all go by what their NICs have
        for row, q in zip(rows, look.counts["qps"], strict=True):
            row["control"] = q.get("cc") or look.parameters["nics"][q["rank"]]["cc"]["algorithm"]
    return [Table("qps", "", rows, ("rank", "qp", "peer", "peer_qp", "rate_Gbps", "window_bytes"))]


def counted(look: Look, rank: int) -> dict[str, int]:
    """A NIC's counters by the names that mlx5 gives them, of `ethtool -S` and of RDMA's `hw_counters` together."""
    nic = look.counts["nics"][rank]
    port = next(p for p in look.counts["ports"] if (p["node"], p["port"]) == (nic["nic"], 1))
    full, drops = ports.rx_full(look, port), port["drops"]
    bad = 0 if look.sight.drops == "asic" else ports.called(look, port).get("crc", 0)
    own = {
        "rx_packets_phy": port["rx_frames"], "rx_bytes_phy": port["rx_bytes"],
        "tx_packets_phy": port["tx_frames"], "tx_bytes_phy": port["tx_bytes"],
        "rx_discards_phy": full, "rx_crc_errors_phy": bad, "rx_symbol_err_phy": bad,
        "tx_discards_phy": drops.get("cable", 0) - ports.cut_off(look, port) + drops.get("mtu", 0),
        "link_down_events_phy": _downs(look, nic["nic"]),
    }  # fmt: skip
    if stomped := ports.stomped(port):
        own["rx_stomped_crc_phy"] = stomped
    rest = {k: v for k, v in nic.items() if k not in ("nic", "rank")}
    if full:
        rest["rx_out_of_buffer"] -= full  # which mlx5 counts for want of a posted receive alone
    priorities = {}
    for c in ports.CLASSES:
        for name in ("rx_prioN_bytes", "rx_prioN_packets", "tx_prioN_bytes", "tx_prioN_packets", "rx_prioN_pause",
                     "rx_prioN_pause_duration", "rx_prioN_pause_transition", "tx_prioN_pause"):  # fmt: skip
            priorities[name.replace("N", str(c))] = ports.by_priority(port, name)[c]
    return {**own, **rest, **priorities}


def _downs(look: Look, nic: str) -> int:
    since = 0.0 if look.then is None else look.then["time_ns"]
    mine = (e for e in look.log if e["event"] == "link" and e["node"] == nic and e["port"] == 1)
    return sum(not e["up"] and e["time_ns"] >= since for e in mine)


def ethtool(look: Look, rank: int) -> list[Table]:
    """As `ethtool -S`, with RDMA's `hw_counters`, which a host has in /sys/class/infiniband."""
    rows = [{"counter": name, "value": value} for name, value in counted(look, rank).items()]
    return [Table("ethtool", "", rows)]


def nics(look: Look) -> list[Table]:
    """The counters of all NICs side by side; those that are 0 everywhere are left out."""
    every = {nic["rank"]: counted(look, nic["rank"]) for nic in look.counts["nics"]}
    names = dict.fromkeys(name for of in every.values() for name in of)
    names = {name: None for name in names if any(of.get(name) for of in every.values())}
    rows = [{"rank": rank, **{name: of.get(name, 0) for name in names}} for rank, of in every.items()]
    return [Table("nics", "", rows)]


def nic(look: Look, rank: int) -> list[Table]:
    """As `mlnx_qos -i`, the congestion control's parameters, and the PCIe link of `lspci -vv`."""
    p, name = look.parameters["nics"][rank], look.fabric.nics[rank].name
    port = look.parameters["ports"][f"{name}:1"]
    pauses = p["lossless"] if port["pfc_tx"] or port["pfc_rx"] else []
    uses = {kind: (p[f"{kind}_dscp"], p[f"{kind}_class"]) for kind in ("data", "ack", "cnp")}
    qos = [
        {
            "priority": c, "PFC enabled": int(c in pauses),
            "sends": ", ".join(f"{kind} (dscp {dscp})" for kind, (dscp, of) in uses.items() if of == c),
        }
        for c in ports.CLASSES
    ]  # fmt: skip
    p = {**p, "retry": min(p["retry"], p["retry_most"])}  # what its queue pairs get
    control = [
        {"parameter": "congestion control", "value": p["cc"]["algorithm"]},
        *({"parameter": k, "value": _written(k, v)} for k, v in p["cc"]["params"].items()),
        *({"parameter": k, "value": _written(k, p[k])} for k in ("recovery", "timeout_ns", "retry", "rnr_timeout_ns",
                                                                 "rnr_retry", "ack_every")),
    ]  # fmt: skip
    return [
        Table("qos", "Priority trust state: dscp", qos, ("priority", "PFC enabled")),
        Table("roce", "RoCE", control),
        Table("pcie", "PCIe", [pcie(look, rank)]),
    ]


def _written(name: str, value: Any) -> str:
    """With the unit that its name says."""
    for ending, write in (("_ns", format_time), ("_bps", lambda v: format_rate(int(v))),
                          ("_bytes", lambda v: format_size(int(v)))):  # fmt: skip
        if name.endswith(ending):
            return str(write(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


_GENERATIONS = (64.0, 32.0, 16.0, 8.0, 5.0, 2.5)  # GT/s, a lane's
_WIDTHS = (16, 8, 4, 2, 1)


def pcie(look: Look, rank: int) -> dict[str, str]:
    """As `lspci -vv` has it: what the slot is for, and what the link has come up with."""
    meant = look.source.request("parameters", meant=True)["nics"][rank]["pcie_rate_bps"] / 1e9
    now = look.parameters["nics"][rank]["pcie_rate_bps"] / 1e9
    speed = next((g for g in _GENERATIONS if g * 16 == meant), None)
    cap = f"Speed {speed:g}GT/s, Width x16" if speed else f"{meant:g} Gb/s"
    row = {"LnkCap": cap, "LnkSta": _link(now, speed), "bandwidth": f"{now:g} Gb/s"}
    if now < meant:
        row["LnkSta"] += " (downgraded)"
    return row


def _link(gbps: float, speed: float | None) -> str:
    """The same speed with fewer lanes, else fewer transfers."""
    choices = [(g, w) for g in (speed, *_GENERATIONS) if g for w in _WIDTHS]
    found = next(((g, w) for g, w in choices if g * w == gbps), None)
    return f"Speed {found[0]:g}GT/s, Width x{found[1]}" if found else f"{gbps:g} Gb/s"


def traffic(look: Look) -> list[Table]:
    """What each rank has sent to whom, the most first; `job`: by the workers' queue pairs, else by other tenants'."""
    sent: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for q in look.counts["qps"]:
        row = sent[q["rank"], q["peer"], "other" if q["generated"] else "job"]
        row[0] += q["tx_packets"]
        row[1] += q["tx_bytes"]
    rows = [
        {"rank": rank, "peer": peer, "tenant": who, "tx_packets": packets, "tx_bytes": bytes_}
        for (rank, peer, who), (packets, bytes_) in sent.items()
    ]
    return [Table("traffic", "", sorted(rows, key=lambda r: (-r["tx_bytes"], r["rank"], r["peer"])))]


def paths(look: Look, rank: int, qp: int | None = None) -> list[Table]:
    """What a queue pair that sprays knows of each entropy; the delay is from the cable to the acknowledgement.

    Of many queue pairs it is a page, from one of them on.
    """
    page, rows = look.source.request("paths", rank=rank, qp=qp or 0), []
    for path in page["paths"]:
        timed, took_ns = path.pop("timed"), path.pop("took_ns")
        rows.append({**path, "delay_us": round(took_ns / timed / 1e3, 3) if timed else None})
    title = f"Queue pairs {rows[0]['qp']} to {rows[-1]['qp']}; the others: --qp {page['next']}" if page["next"] else ""
    return [Table("paths", title, rows, ("qp", "peer", "entropy", "udp_src_port", "delay_us"))]


def credit(look: Look, rank: int) -> list[Table]:
    """Where packets go on credit alone: what a rank's queue pairs may send, and whom its NIC lets send next."""
    found = look.source.request("credits", rank=rank)
    sends = [{**row, "waits_us": round(row.pop("waits_ns") / 1e3, 3)} for row in found["sends"]]
    queue = sorted(found["receives"], key=lambda row: (row["place"] == 0, row["place"]))
    return [
        Table("sends", "What it may send", sends, ("qp", "peer")),
        Table("receives", "Whom it lets send, by their place in the queue", queue, ("qp", "peer", "rank", "place")),
    ]


_RECEIVED = {"most": "reorder_distance_max", "placed": "placed_out_of_order", "tx_sack": "tx_sack"}
_SENT = ("rx_sack", "retransmitted", "spurious_retransmitted", "loss_probes")


def reorder(look: Look) -> list[Table]:
    """Of receivers: packets ahead of their turn, by how many packets in the mean and at most, how many of them were
    placed at once, bitmaps sent, and packets that came twice. Of senders: bitmaps, what was sent again, what of it for
    nothing, probes."""
    received, sent = [], []
    for nic in look.counts["nics"]:
        early, name = nic["out_of_sequence"], f"{nic['nic']} (rank {nic['rank']})"
        mean = round(nic.get("reorder_distance", 0) / early, 1) if early else 0.0
        more = {column: nic.get(key, 0) for column, key in _RECEIVED.items()}
        twice = {"duplicate_request": nic["duplicate_request"]}
        received.append({"NIC": name, "out_of_sequence": early, "mean": mean, **more, **twice})
        sent.append({"NIC": name, **{key: nic.get(key, 0) for key in _SENT}})
    return [
        Table("received", "Packets ahead of their turn, by how many packets", received, ("mean", "most")),
        Table("sent", "Sent again", sent),
    ]


_HELD = {
    "mr": "regions",
    "mw": "windows",
    "dm": "device_memories",
    "mr_bytes": "region_bytes",
    "dm_bytes": "device_bytes",
}
"""Columns of `show rdma` by what fabricd calls them."""


def rdma(look: Look) -> list[Table]:
    """As `rdma link`, `rdma resource` and `rdma resource show qp` have it, of all ranks; programs by their sessions."""
    programs = look.source.request("programs")["programs"]
    links, device = ports.links(look.now), "railbed0"
    link = f"{device}/1"
    state = {nic.rank: links.get((nic.name, 1), {}).get("up") for nic in look.fabric.nics}
    states = {True: ("ACTIVE", "LINK_UP"), False: ("DOWN", "DISABLED")}
    ports_of = [
        {"rank": rank, "link": link, **dict(zip(("state", "physical_state"), states[bool(up)], strict=True))}
        for rank, up in state.items()
    ]
    resources, pairs = [], []
    for rank in state:
        its = [one for one in programs if one["rank"] == rank]
        held = {column: sum(one[key] for one in its) for column, key in _HELD.items()}
        qps = sum(len(one["qps"]) for one in its)
        resources.append({"rank": rank, "dev": device, "ctx": len(its), "qp": qps, **held})
        pairs += [
            {
                "rank": rank, "link": link, "lqpn": q["qp"], "rqpn": q["peer_qp"], "type": q["type"],
                "state": q["state"], "peer": q["peer"], "pid": one["pid"], "comm": _comm(one["pid"]),
            }
            for one in its for q in one["qps"]
        ]  # fmt: skip
    gids = [
        {"rank": nic.rank, "dev": device, "port": "1", "index": str(index), "gid": gid, "ver": version}
        for nic in look.fabric.nics
        for index, (gid, version) in enumerate(_gids(nic, look.parameters["nics"][nic.rank]["gids_moved"]))
    ]
    return [
        Table("link", "rdma link", ports_of),
        Table("gids", "show_gids", gids),
        Table("resource", "rdma resource", resources),
        Table("qp", "rdma resource show qp", pairs),
    ]


def _gids(nic: Nic, moved: bool) -> list[tuple[str, str]]:
    """Its table of GIDs, as `show_gids` has it: that of RoCE v2, alone or behind the link-local one of v1."""
    mac = b"\x02\x00" + nic.ip.packed
    link_local = bytes([0xFE, 0x80, *bytes(6), mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:]])
    found = [(str(IPv6Address(bytes(10) + b"\xff\xff" + nic.ip.packed)), "v2")]
    return [(str(IPv6Address(link_local)), "v1"), *found] if moved else found


def _comm(pid: int) -> str:
    """What the kernel calls a process; it may have ended meanwhile."""
    try:
        return printable(Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n"))
    except OSError:
        return ""


VIEWS = (
    counting(words="qps", about="Show the queue pairs of a live fabric's NICs.", make=qps),
    counting(words="nics", about="Show the counters of all NICs of a live fabric side by side.", make=nics),
    counting(
        words="ethtool", about="Show a NIC's counters by mlx5's names.", make=ethtool, parameters=(_RANK,),
        samples=("0",),
    ),
    View(
        words="nic", about="Show how a NIC is set: priorities, PFC, congestion control, its PCIe link.", make=nic,
        parameters=(_RANK,), samples=("0",),
    ),
    View(
        words="paths", about="Show what a rank's queue pairs that spray know of each entropy: marks, losses, delay.",
        make=paths, parameters=(_RANK, _FROM_QP), samples=("0", "0 --qp 17"),
    ),
    View(
        words="credits", about="Show what a rank may send by its receivers' credit, and whom it lets send next.",
        make=credit, parameters=(_RANK,), samples=("0",),
    ),
    View(words="rdma", about="Show RDMA links, and what programs have there, as rdma(8) does.", make=rdma),
    counting(words="traffic", about="Show which rank of a live fabric has sent how much to whom.", make=traffic),
    counting(
        words="reorder",
        about="Show how far packets of a live fabric overtake each other, by NIC, and what is sent again for nothing.",
        make=reorder,
    ),
)  # fmt: skip
