"""Adaptive switches in whole runs: what they give, what a slow or a cut uplink takes, faults of them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from testbed.experiment import Experiment, loads
from testbed.run.outcome import RunResult
from testbed.run.run import run

SPINES = 4
PARTNERS = [6, 4, 7, 5, 2, 0, 3, 1]
"""Each of the four hosts of a leaf writes to one of the other leaf."""
UPLINKS = range(5, 5 + SPINES)


def experiment(routing: Any, size: str = "1MB", **more: Any) -> Experiment:
    flows = [{"from": a, "to": b, "size": size} for a, b in enumerate(PARTNERS)]
    fabric = {
        "topology": {"clos": {"leaves": 2, "spines": SPINES, "hosts_per_leaf": 4}},
        "switch": {"pfc": False, "ecn": {"kmin": "50KB", "kmax": "150KB", "pmax": 1.0}},
        "nic": {"pfc": False},
        **more.pop("fabric", {}),
    }
    control = {"routing": routing, **more.pop("control", {})}
    transport = {"cc": "nscc", "recovery": "selective_repeat", "sack": {}, "loss": {}}
    named = {"name": "paths", "fabric": fabric, "control": control, "transport": transport}
    return loads(yaml.safe_dump({**named, "workload": [{"flows": flows}], **more}))


def shares(done: RunResult) -> list[float]:
    """Of the rate alone, that each flow had."""
    return [row["ideal_ns"] / row["time_ns"] for row in done.results]


def sent(done: RunResult, switch: str, key: str = "tx_frames") -> list[int]:
    ports = json.loads((done.folder / "counters.json").read_text())["ports"]
    of = {p["port"]: p.get(key, 0) for p in ports if p["node"] == switch}
    return [of[port] for port in UPLINKS]


def test_all_paths_are_used_evenly_whichever_way_frames_go(tmp_path: Path) -> None:
    fast = run(experiment("adaptive"), tmp_path / "fast")
    slow = run(experiment("adaptive", control={"fast_path": "off"}), tmp_path / "slow")
    assert fast.metrics_sha256 == slow.metrics_sha256 and fast.fidelity.verdict == "exact"
    assert min(shares(fast)) > 0.97 and not fast.counters["retransmitted"]
    for leaf in ("leaf0", "leaf1"):
        assert sent(fast, leaf) == sent(fast, leaf, "picks")
        assert max(sent(fast, leaf)) < 1.05 * min(sent(fast, leaf))


def test_one_slow_path_of_four_takes_no_more_than_what_it_lacks(tmp_path: Path) -> None:
    """(S - 1 + r) / S of the rate, within 5 %; spread evenly, flows wait for their packets on it."""
    slow = {"cables": {"cable:leaf0-spine0": {"rate": "40Gbps"}}}
    done = run(experiment({"adaptive": {"weights": "capacity"}}, "2MB", fabric=slow), tmp_path / "run")
    assert min(shares(done)) > 0.95 * (SPINES - 1 + 0.1) / SPINES


def test_weights_follow_a_cable_that_comes_up_slow_two_hops_away(tmp_path: Path) -> None:
    """From 40 us on, of some 110, leaf0 weighs by the other leaf's slow cable, which no queue of its own shows."""
    slow = [{"fault": "reduced_rate", "on": "cable:leaf1-spine0", "rate": "40Gbps", "at": "20us"}]
    weighs = experiment({"adaptive": {"weights": "capacity"}}, "4MB", inject=slow, control={"reaction": "20us"})
    done = run(weighs, tmp_path / "run")
    assert min(shares(done)) > 0.9 * (SPINES - 1 + 0.1) / SPINES and done.fidelity.verdict == "exact"
    first, *others = sent(done, "leaf0")
    late = min(others) * 0.1  # what it weighs from then on
    before = 2 * 40e-6 * 400e9 / 8 / 4178  # of four hosts over four cables, and as much again for what is sent twice
    assert late < first < late + before


def test_a_cable_that_is_cut_in_the_middle_costs_some_frames(tmp_path: Path) -> None:
    """Those on it, and what the other leaf sends to its spine until the controller leads around it."""
    cut = [{"fault": "cable_down", "on": "cable:leaf0-spine0", "at": "10us"}]
    done = run(experiment("adaptive", control={"reaction": "20us"}, inject=cut), tmp_path / "run")
    assert done.counters["drops"].keys() <= {"cable", "forwarding"}
    assert 0 < sum(done.counters["drops"].values()) < 400  # a quarter of what its hosts send in 20 us is 244
    assert fmean(shares(done)) > 0.5 and done.fidelity.verdict == "exact"


def test_a_switch_that_hashes_and_one_that_weighs_wrongly(tmp_path: Path) -> None:
    faults = [
        {"fault": "adaptive_off", "on": "switch:leaf0"},
        {"fault": "wrong_group_weights", "on": "port:leaf1:6", "weight": 5},
    ]
    done = run(experiment({"adaptive": {"policy": "round_robin"}}, inject=faults), tmp_path / "run")
    assert sent(done, "leaf0", "picks") == [0] * SPINES and max(sent(done, "leaf0")) > 1.5 * min(sent(done, "leaf0"))
    picks = sent(done, "leaf1", "picks")
    assert all(abs(picks[1] - 5 * n) <= 5 for n in (picks[0], *picks[2:]))
