"""Trimming as an operator sees it, its faults, and what mends them: three hosts of a leaf send over one uplink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from hardware.config import Hardware
from testbed.faults import Injection
from testbed.live.look.look import Look, Sight
from testbed.live.views import VIEWS
from testbed.operate.actions.queues import trimming
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import Put
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import DSCP, drops, nic, send, switch

TRIM = {"classes": [3], "bytes": 128, "dscp": 36, "queue": 6}
UPLINK, FLOWS = "leaf0:4", [(0, 3, 400_000, 0), (1, 4, 400_000, 0), (2, 5, 400_000, 0)]
HARDWARE = Hardware(
    switch_buffer_bytes=1_000_000, timeout_ns=300_000, retry=100,
    switch={**switch(headroom=0, lossless=[], alpha=0.125, dscp=DSCP | {"36": 6}), "trimming": TRIM},
    nic={**nic("nscc", rtt_ns=5000), "lossless": [], "recovery": "selective_repeat", "trimmed_dscp": 36},
)  # fmt: skip


class Bare:
    """A bare fabric as something to look at."""

    experiment: dict[str, Any] = {}

    def __init__(self, f: BareFabric) -> None:
        self.f, self.fabric = f, f.fabric

    def counters(self) -> dict[str, Any]:
        return self.f.counters()

    def history(self) -> tuple[()]:
        return ()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.f.fabricd.request(op, **arguments)

    def rows(self, words: str, **values: Any) -> list[dict[str, Any]]:
        (table,) = VIEWS[words].show(Look(cast(Any, self), self.counters(), None, sight=Sight()), **values)
        return table.rows

    def inject(self, **written: Any) -> None:
        injection = Injection.of(written)
        for request in injection.requests(injection.place(self.fabric), "f1"):
            self.request("inject", **request)


@contextmanager
def clos() -> Iterator[Bare]:
    params = {"leaves": 2, "spines": 1, "hosts_per_leaf": 3}
    with bare_fabric("clos", params, HARDWARE, binary=plain(), sample=FAST) as f:
        f.fabricd.request("start", ranks=[])
        yield Bare(f)


def of_uplink(bare: Bare, queue: str) -> dict[str, Any]:
    return next(r for r in bare.rows("queue counters") if (r["Port"], r["TxQ"]) == (UPLINK, queue))


def received(bare: Bare, counter: str) -> int:
    return sum(n.get(counter, 0) for n in bare.counters()["nics"])


def test_views_have_what_was_trimmed_by_sonics_names() -> None:
    with clos() as bare:
        assert "Trim/pkts" not in of_uplink(bare, "UC3")  # of switches that have trimmed nothing
        send(bare.f, FLOWS)
        trimmed = received(bare, "rx_trimmed")
        data, headers = of_uplink(bare, "UC3"), of_uplink(bare, "UC6")
        assert trimmed > 50 and not drops(bare.f) and received(bare, "local_ack_timeout_err") == 0
        assert (data["Trim/pkts"], data["TrimSent/pkts"], data["Drop/pkts"]) == (trimmed, 0, 0)
        assert (headers["Trim/pkts"], headers["TrimSent/pkts"], headers["TrimDrop/pkts"]) == (0, trimmed, 0)
        ports = {row["IFACE"]: row for row in bare.rows("interfaces counters trim")}
        assert ports.pop(UPLINK) == {
            "IFACE": UPLINK, "STATE": "U", "TRIM_PKTS": trimmed, "TRIM_TX_PKTS": trimmed, "TRIM_DRP_PKTS": 0
        }  # fmt: skip
        assert not any(row["TRIM_PKTS"] for row in ports.values())
        sent = {row["Switch"]: row["TrimSent/pkts"] for row in bare.rows("switch counters trim")}
        assert sent == {"leaf0": trimmed, "leaf1": 0, "spine0": 0}
        (told,) = bare.rows("switch-trimming global", switch="leaf0")
        assert told == {
            "Switch": "leaf0", "packet_discard_action": "trim", "Queues": "UC3", "size": 128, "dscp_value": 36,
            "queue_index": 6,
        }  # fmt: skip


def test_a_switch_that_does_not_trim_drops_until_it_is_switched_on() -> None:
    class AsItCameUp:
        def switch(self, name: str) -> dict[str, Any]:
            return {"trimming": TRIM}

    with clos() as bare:
        bare.inject(fault="trim_off", on="switch:leaf0")
        told = {row["Switch"]: row["packet_discard_action"] for row in bare.rows("switch-trimming global")}
        assert told == {"leaf0": "drop", "leaf1": "trim", "spine0": "trim"}
        send(bare.f, FLOWS)
        lost = drops(bare.f)["lossy"]
        assert lost > 50 and not received(bare, "rx_trimmed")
        (step,) = trimming(cast(Site, AsItCameUp()), "leaf0", None)
        assert isinstance(step, Put)
        bare.request("inject", fault="op", **step.primitive)
        send(bare.f, FLOWS)
        assert drops(bare.f) == {"lossy": lost} and received(bare, "rx_trimmed") > 5


def test_trimmed_frames_without_their_dscp_are_nobodys() -> None:
    """They come in another class from the next switch on, and end at the first ICRC check."""
    with clos() as bare:
        bare.inject(fault="trim_dscp_lost", on="cable:leaf0-spine0")
        send(bare.f, FLOWS)
        trimmed = of_uplink(bare, "UC6")["TrimSent/pkts"]
        assert received(bare, "rx_icrc_encapsulated") == drops(bare.f)["icrc"] == trimmed > 50
        assert not received(bare, "rx_trimmed")
        behind = next(r for r in bare.rows("queue counters") if (r["Port"], r["TxQ"]) == ("spine0:2", "UC0"))
        assert behind["Counter/pkts"] == trimmed
