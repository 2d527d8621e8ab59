"""Transports of single NICs and queue pairs: who sends by what, and what its peer answers (config/transports.c).

The receiver has no control of its own in any of these: what it answers, it answers as its senders' controls want it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hardware.client import FabricdError
from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, bare_fabric
from tests.parts.traffic_fabric import drops, nic, send, star, switch
from workloads.verbs import wire

ECN = {"3": {"kmin_bytes": 20_000, "kmax_bytes": 20_000, "pmax": 1.0}}
MARKS = Hardware(switch=switch(headroom=10**6, alpha=8, ecn=ECN), nic=nic(), switch_buffer_bytes=10**9, timeout_ns=1e9)
LOSSY = Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic={**nic(), "lossless": []})
DCQCN = {"cc": nic("dcqcn")["cc"]}
SELECTIVE = {"recovery": "selective_repeat", "reorder_packets": 256}


def of_nics(transports: Mapping[int, Mapping[str, Any]]) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        for rank, transport in transports.items():
            config["nics"][rank]["transport"] = transport

    return change


def test_two_controls_share_a_receiver_and_each_hears_what_it_goes_by() -> None:
    """DCQCN by notifications, DCTCP by marks in acknowledgements, the third by nothing: its NIC gets no word."""
    with star(4, MARKS, of_nics({1: DCQCN, 2: {"cc": nic("dctcp")["cc"]}})) as f:
        send(f, [(rank, 0, 4_000_000, 0) for rank in (1, 2, 3)])
        qps = {q["rank"]: q for q in f.counters()["qps"] if q["tx_packets"]}
        assert f.nic(0)["np_cnp_sent"] == qps[1]["cnps"] > 5 and not qps[2]["cnps"] and not qps[3]["cnps"]
    assert qps[1]["rate_bps"] < 400e9 and not qps[1]["window_bytes"]
    assert qps[2]["rate_bps"] == 400e9 and 4096 <= qps[2]["window_bytes"] < 200_000
    assert qps[3]["rate_bps"] == 400e9 and not qps[3]["window_bytes"]


def test_it_is_as_if_all_nics_were_set_up_so() -> None:
    """Where all of them send by it, a transport is what the NICs' own parameters would be, to the byte."""
    flows = [(rank, 0, 3_000_000, 100.0 * rank) for rank in (1, 2, 3)]
    for transport, hardware in ((DCQCN, MARKS), (SELECTIVE, LOSSY)):
        times = []
        own = Hardware(**{**vars(hardware), "nic": {**hardware.nic, **transport}})
        for its, change in ((own, of_nics({})), (hardware, of_nics(dict.fromkeys(range(4), transport)))):
            with star(4, its, change) as f:
                for k, share in enumerate((0.01, 0.02, 0.005)):
                    f.fabricd.request("inject", fault=f"l{k}", primitive="frames", ports=[f"h{k + 1}:1"], effect="drop",
                                      select={"share": share if hardware is LOSSY else 0})  # fmt: skip
                took, counted = send(f, flows), f.counters()
                says = [q.pop("cc", None) for q in counted["qps"]]
                assert says == (6 * [None] if its is own else 6 * ["dcqcn" if hardware is MARKS else "none"])
                times.append((took, *(counted[table] for table in ("nics", "qps", "drops"))))
        assert times[0] == times[1]


def test_recovery_is_the_senders_and_the_receiver_keeps_what_it_needs() -> None:
    """One of two senders repeats what was lost, the other goes back; one receiver of neither."""
    narrow = Hardware(switch=LOSSY.switch, nic={**LOSSY.nic, "reorder_packets": 2})
    with star(3, narrow, of_nics({1: SELECTIVE})) as f:
        for rank in (1, 2):
            f.fabricd.request("inject", fault=f"l{rank}", primitive="frames", ports=[f"h{rank}:1"], effect="drop",
                              select={"share": 0.01})  # fmt: skip
        send(f, [(1, 0, 4_000_000, 0)])
        lost = drops(f)["fault"]
        send(f, [(2, 0, 4_000_000, 0)])
        again = [f.nic(rank)["retransmitted"] for rank in range(3)]
        assert lost > 5 and again[1] == lost
        assert again[2] > 10 * (drops(f)["fault"] - lost)


def test_a_connection_names_one_of_those_that_were_told() -> None:
    """And what was connected before keeps what it had when others are told."""
    with bare_fabric("star", {"hosts": 2}, MARKS) as f:
        f.fabricd.request("transports", transports=[SELECTIVE, {"cc": nic("dctcp")["cc"]}])
        f.start(0, 1)
        a, b = f.worker(0), f.worker(1)
        pairs = [f.connect(a, b, tag=k, transport=k) for k in range(3)]
        windows = {q["qp"]: q["window_bytes"] for q in f.counters()["qps"] if q["rank"] == 0}
        assert [windows[p.qp_a] > 0 for p in pairs] == [False, False, True]
        f.fabricd.request("transports", transports=[])
        a.send(wire.command(wire.CONNECT, 1, 9, 9, 0, 0, 1, 0))
        assert "no transport of that number" in a.reason()
        assert {q["qp"]: q["window_bytes"] for q in f.counters()["qps"] if q["rank"] == 0} == windows
        b.bye()


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"0": 1}, "a list"),
        ([1], "an object"),
        ([{"pcie_rate_bps": 1e9}], "the NIC's alone"),
        ([{"recovery": "hope"}], "go_back_n or selective_repeat"),
        ([{"timeout_ns": 0}], "more than 0"),
        ([SELECTIVE, {"cc": {"algorithm": "hope"}}], "unknown"),
        ([{}] * 1025, "up to 1024"),
    ],
)
def test_what_is_told_is_checked(told: Any, says: str) -> None:
    with star(2, MARKS) as f, pytest.raises(FabricdError, match=says):
        f.fabricd.request("transports", transports=told)


def test_the_figures_do_not_depend_on_the_fast_path() -> None:
    """Three controls, a policy of paths and both recoveries on one receiver, with losses."""
    reps = {
        "multipath": {"policy": "reps", "entropies": 16, "params": {"buffer": 8, "freeze_ns": 10_000, "explore": 16}}
    }
    mix = {
        1: DCQCN,
        2: {"cc": nic("dctcp")["cc"], **SELECTIVE},
        3: {"cc": nic("nscc")["cc"], **SELECTIVE, **reps, "sack_bits": 64, "loss_after_ns": 8000},
    }
    found = []
    for sample in (0, FAST):
        with bare_fabric("star", {"hosts": 5}, MARKS, sample=sample, change=of_nics(mix)) as f:
            f.start()
            f.fabricd.request("inject", fault="l", primitive="frames", ports=["h0:1"], effect="drop",
                              select={"share": 0.003})  # fmt: skip
            times = send(f, [(rank, 0, 1_500_000, 50.0 * rank) for rank in range(1, 5)])
            counted = f.counters()
            found.append((times, counted["nics"], counted["qps"], counted["drops"]))
    assert found[0] == found[1] and found[0][3]


def test_a_fault_of_a_nic_lies_over_its_transports_too() -> None:
    """As an operator's mistake does: DCQCN is off on the NIC, and on again when it is healed."""
    with star(4, MARKS, of_nics({1: DCQCN})) as f:
        send(f, [(rank, 0, 2_000_000, 0) for rank in (1, 2, 3)])
        before = f.nic(1)["rp_cnp_handled"]
        f.fabricd.request("inject", fault="off", primitive="params", nic=1, values={"cc": {"algorithm": "none"}})
        send(f, [(rank, 0, 2_000_000, 0) for rank in (1, 2, 3)])
        assert f.nic(1)["rp_cnp_handled"] == before > 0
        f.fabricd.request("heal", fault="off")
        send(f, [(rank, 0, 2_000_000, 0) for rank in (1, 2, 3)])
        assert f.nic(1)["rp_cnp_handled"] > before
