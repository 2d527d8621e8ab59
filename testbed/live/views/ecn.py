"""ECN marks, and what NICs did about them (SONiC's wredstat)."""

from __future__ import annotations

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import counting


def ecn(look: Look) -> list[Table]:
    """As `show queue wredcounters`: marked packets by queue, and what NICs did about them."""
    queued = [
        {"Port": ports.name(p), "TxQ": f"UC{c}", "WredDrp/pkts": "N/A", "EcnMarked/pkts": marked}
        for p in ports.switch_ports(look.counts)
        for c, marked in enumerate(ports.by_priority(p, "ecn_marked_prioN"))
    ]
    keys = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")
    nics = [{"NIC": f"{n['nic']} (rank {n['rank']})"} | {k: n[k] for k in keys} for n in look.counts["nics"]]
    return [Table("queues", "", queued), Table("nics", "Congestion notifications", nics)]


VIEWS = (
    counting(
        words="ecn",
        about="Show ECN marks by queue, and congestion notifications by NIC, of a live fabric.",
        make=ecn,
    ),
)
