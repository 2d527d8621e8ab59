"""Rules that come and go: an adaptive switch knows the sets of ports that it last took one of, and no others stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import send

MTU, KNOWN, ENTROPIES = 4096, 1024, 2048
GROUP = 1 << 31
UP = (2, 3, 4, 5)
SETS = list(itertools.islice(itertools.product(range(1, 7), repeat=len(UP)), KNOWN + 100))
"""Weights of the four ports up, of each set."""
MEANT = [frozenset(zip(UP, weights, strict=True)) for weights in SETS]


@contextmanager
def leaves(sample: int) -> Iterator[BareFabric]:
    """leaf0 has a group for each of the first entropies."""
    paths = {"policy": "round", "entropies": ENTROPIES, "params": {}}
    nic = {"recovery": "selective_repeat", "reorder_packets": 4096, "loss_after_ns": 1e8, "multipath": paths}
    hardware = Hardware(timeout_ns=1e9, nic=nic, switch={"adaptive": {"policy": "round_robin"}})
    with bare_fabric(
        "clos", {"leaves": 2, "spines": 4, "hosts_per_leaf": 1}, hardware, sample=sample, binary=plain()
    ) as f:
        groups, rules = [], []
        for k, weights in enumerate(SETS):
            ports = [port for port, weight in zip(UP, weights, strict=True) for _ in range(weight)]
            buckets = ",".join(f"bucket=output:{port}" for port in ports)
            groups.append(f"group_id={GROUP + k},type=all,{buckets}")
            port = f"udp_src={k}/{ENTROPIES - 1}"  # in a row, they have each remainder once
            rules.append(f"priority=60000,udp,{port},nw_dst={f.fabric.nics[1].ip},actions=group:{GROUP + k}")
        f.ofctl("add-groups", f.bridge("leaf0"), "-", flows=groups)
        f.ofctl("add-flows", f.bridge("leaf0"), "-", flows=rules)
        f.fabricd.request("start", ranks=[])
        yield f


def known(f: BareFabric) -> set[frozenset[tuple[int, int]]]:
    """The sets, each as its ports with their weights."""
    sets: dict[str, list[tuple[int, int]]] = {}
    for row in f.counters()["groups"]:
        if row["switch"] == "leaf0":
            sets.setdefault(row["set"], []).append((row["port"], row["weight"]))
    return {frozenset(ports) for ports in sets.values()}


@pytest.mark.parametrize("sample", [0, 1024])
def test_sets_that_nothing_went_by_for_longest_are_forgotten(sample: int) -> None:
    with leaves(sample) as f:
        send(f, [(0, 1, ENTROPIES * MTU, 0)])  # one packet by each entropy
        first = known(f)
        assert len(first) >= KNOWN and first <= set(MEANT)
        assert len(first) == KNOWN or sample  # others are named by flows that the fast path knows
        f.ofctl("del-flows", f.bridge("leaf0"), "udp")
        f.ofctl("add-flow", f.bridge("leaf0"), f"priority=60000,ip,nw_dst={f.fabric.nics[1].ip},actions=group:{GROUP}")
        send(f, [(0, 1, 64 * MTU, 0)])
        assert len(known(f)) == KNOWN and MEANT[0] in known(f)
