"""What a tenant may send: a policer at the NICs of its ranks."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.base import units
from testbed.faults.base import Place
from testbed.operate.steps import durations as take
from testbed.operate.steps.action import Action, ranks
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import Note, Put, Step
from testbed.words.entry import Parameter
from testbed.words.kinds import RANK, Kind, Number, Quantity, Wrong
from topologies.graph.fabric import Fabric
from topologies.graph.targets import NicTarget

BURST_BYTES = 65_536
RATE = Quantity("rate", "RATE", units.RATE, least=1)
"""A bucket that is never filled would be a cut."""


class _Ranks(Kind):
    def read(self, text: str, fabric: Fabric) -> list[int]:
        words = text.replace(",", " ").split()
        if not words:
            raise Wrong("no rank is named", "such as 1,3")
        return sorted({int(RANK.read(word, fabric)) for word in words})


def limit(site: Site, rate: float, members: list[int], priority: int | None) -> Iterator[Step]:
    """One bucket a NIC: what is above the rate is dropped as it comes from the NIC, as switches police a port."""
    of = "" if priority is None else f" of class {priority}"
    yield Note(f"{ranks(members)}: at most {rate / 1e9:g} Gb/s each{of}, a job's data included; the rest is dropped")
    match = {} if priority is None else {"classes": [priority]}
    for rank in members:
        ports = Place(site.fabric, NicTarget(site.fabric.nics[rank])).directions("forward")
        meter = {"rate_bps": rate, "burst_bytes": BURST_BYTES}
        yield Put({"primitive": "frames", "effect": "drop", "ports": ports, "select": {"meter": meter},
                   "shown": "meter", "match": match})  # fmt: skip


ACTIONS = (
    Action(
        words="tenant limit", about="Polices what a tenant's NICs send.",
        parameters=(Parameter("rate", RATE, "of each NIC, such as 50Gbps", required=True),
                    Parameter("members", _Ranks("ranks", "RANKS"), "the tenant's ranks, such as 1,3", required=True),
                    Parameter("priority", Number("priority", "CLASS", 0, 7), "only this class", True, short="-p")),
        steps=limit, cost_ns=take.SETTING_NS, cost_from=take.SETTING,
        blast="everything else that these NICs send, too, unless a class is given. "
        "A job in the same class is policed, too, and may stop",
        traffic=f"a bucket of {BURST_BYTES // 1024} KiB a NIC, full in the beginning; what finds it empty is dropped "
        "(`meter`), and RDMA sends it again",
        example="50Gbps 1,3 -p 3",
    ),
)  # fmt: skip
