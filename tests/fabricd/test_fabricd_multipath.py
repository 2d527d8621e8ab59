"""Queue pairs that spray: which entropies are sent, and what acknowledgements bring back, in what a capture shows."""

from __future__ import annotations

from typing import Any

import pytest

from hardware.cc import Setting
from hardware.config import Hardware
from hardware.multipath import POLICIES
from testbed.live.look.look import Look
from testbed.live.views import VIEWS
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, fabricd_binary, plain
from tests.parts.traffic_fabric import nic, send, switch
from tests.parts.wire_view import ACK, frames

MTU, PACKETS = 4096, 600
ECN = {"3": {"kmin_bytes": 5000, "kmax_bytes": 40_000, "pmax": 1.0}}


def multipath(policy: str, entropies: int) -> dict[str, object]:
    return POLICIES[policy].in_fabricd(entropies, POLICIES[policy].values(Setting(400e9, 4000, MTU), {}))


def sprayed(f: BareFabric, policy: str) -> tuple[list[Any], dict[str, Any], list[dict[str, Any]]]:
    """Two senders of one receiver, with losses and delays: the receiver's frames, a sender's counters and paths."""
    f.fabricd.request("start", ranks=[])
    about: dict[str, Any] = {"primitive": "frames", "ports": ["sw0:1"]}
    f.fabricd.request("inject", fault="loss", effect="drop", **about, select={"share": 0.005})
    late = {"delay_ns": 0, "jitter_ns": 2000, "reorder": True, "select": {"share": 0.5}}
    f.fabricd.request("inject", fault="late", effect="delay", **about, **late)
    file = f.directory / "seen.pcapng"
    f.fabricd.request("capture", port="h0:1", path=str(file))
    send(f, [(1, 0, PACKETS * MTU, 0), (2, 0, PACKETS * MTU, 0)])
    f.fabricd.request("capture_stop", path=str(file))
    (qp,) = (q for q in f.counters()["qps"] if q["rank"] == 1 and q["tx_packets"])
    return frames(file), qp, f.fabricd.request("paths", rank=1)["paths"]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_acknowledgement_returns_port_and_mark_of_the_packet_that_triggered_it(policy: str) -> None:
    its_nic = {
        **nic("nscc"), "recovery": "selective_repeat", "lossless": [], "sack_bits": 64, "loss_after_ns": 4000,
        "multipath": multipath(policy, 32),
    }  # fmt: skip
    hardware = Hardware(switch=switch(headroom=0, lossless=[], alpha=64, ecn=ECN), nic=its_nic)
    with bare_fabric("star", {"hosts": 3}, hardware, binary=fabricd_binary()) as f:
        seen, qp, paths = sprayed(f, policy)
    last: dict[str, Any] = {}
    used, marks, answers = set(), 0, 0
    for fr in seen:
        peer = fr.macs[1] if not fr.out else fr.macs[0]
        if not fr.out:
            last[peer] = fr
            used.add((peer, fr.source_port))
        elif fr.opcode == ACK:
            came = last[peer]
            assert (fr.source_port, fr.becn) == (came.source_port, came.ecn == 3)
            answers += 1
            marks += fr.becn
    assert marks > 20 and answers > PACKETS / 16
    assert max(len({port for who, port in used if who == peer}) for peer in last) == (32 if policy != "plb" else 1)
    assert qp["retransmitted"] == sum(path["lost"] for path in paths) > 0
    assert sum(path["sent"] for path in paths) == qp["tx_packets"]
    assert sum(path["marked"] for path in paths) == qp["marks_returned"] > 0
    assert all(path["timed"] == path["returned"] and path["took_ns"] > 2000 * path["timed"] for path in paths)
    counted = {"reps": "entropies_recycled", "bitmap": "entropies_skipped"}
    assert all((name in qp) == (policy == of) for of, name in counted.items())


def test_a_nic_may_take_to_another_policy_under_way_and_back() -> None:
    its_nic = {**nic(), "recovery": "selective_repeat", "lossless": [], "multipath": multipath("round", 16)}
    hardware = Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)
    with bare_fabric("star", {"hosts": 3}, hardware, binary=fabricd_binary()) as f:
        about = {"primitive": "params", "nic": 1, "for_ns": 8000}
        for k, other in enumerate((multipath("bitmap", 4096), None, multipath("reps", 1))):
            f.fabricd.request("inject", fault=f"f{k}", at_ns=5000 + 10_000 * k, **about, values={"multipath": other})
        seen, _, paths = sprayed(f, "round")
    assert {fr.psn for fr in seen if not fr.out and fr.macs[1].endswith("02")} >= set(range(PACKETS))
    assert len(paths) == 16


def test_paths_of_many_queue_pairs_come_in_pages_of_whole_queue_pairs() -> None:
    """Each has sent by each of its 256 entropies: 16 fill a page of 4096 lines."""
    its_nic = {**nic(), "recovery": "selective_repeat", "lossless": [], "multipath": multipath("round", 256)}
    hardware = Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)
    with bare_fabric("star", {"hosts": 2}, hardware, binary=plain()) as f:
        f.fabricd.request("start", ranks=[])
        send(f, [(1, 0, 256 * MTU, 0)] * 40)
        pages: list[Any] = []
        qp: int | None = 0
        while qp is not None:
            page = f.fabricd.request("paths", rank=1, qp=qp)
            pages.append(page["paths"])
            qp = page["next"]
        assert [len(rows) for rows in pages] == [4096, 4096, 2048]
        assert all(row["sent"] == 1 for rows in pages for row in rows)
        assert not any(row["timed"] or row["took_ns"] for rows in pages for row in rows)  # its control measures nothing
        assert len({(row["qp"], row["entropy"]) for rows in pages for row in rows}) == 40 * 256
        assert f.fabricd.request("paths", rank=1)["paths"] == pages[0]
        (table,) = VIEWS["paths"].show(Look(f.fabricd, {}), rank=1)
        ends = [pages[0][0]["qp"], pages[0][-1]["qp"], pages[1][0]["qp"]]
        assert table.title == "Queue pairs {} to {}; the others: --qp {}".format(*ends)


@pytest.mark.parametrize(("policy", "counter"), [("plb", "entropies_left"), ("reps", "entropies_frozen")])
@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
def test_each_timeout_is_told_to_the_policy(policy: str, counter: str, recovery: str) -> None:
    """PLB takes another path at each (tcp_plb_update_state_upon_rto), the first freezes REPS (onFailureDetection)."""
    values = {"suspend": 0} if policy == "plb" else {"freeze_on": 1, "freeze": 1e7}
    paths = POLICIES[policy].in_fabricd(16, POLICIES[policy].values(Setting(400e9, 4000, MTU), values))
    its_nic = {**nic(), "recovery": recovery, "multipath": paths}
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=50_000, nic=its_nic), binary=plain()) as f:
        f.fabricd.request("start", ranks=[])
        lost = {"primitive": "frames", "effect": "drop", "ports": ["h1:1"], "for_ns": 140_000}
        f.fabricd.request("inject", fault="l", **lost, at_ns=5000)
        send(f, [(1, 0, 100 * MTU, 0)])
        timeouts = f.nic(1)["local_ack_timeout_err"]
        (qp,) = (q for q in f.counters()["qps"] if q["rank"] == 1)
    assert timeouts == 3 and qp[counter] == (timeouts if policy == "plb" else 1)
