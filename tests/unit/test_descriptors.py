"""How many files fabricd has open: the limit is raised before anything is made, or it is said what is missing."""

from __future__ import annotations

import resource

import pytest

from testbed.base.errors import MachineError
from testbed.machine import descriptors
from topologies import Fabric, build


def clos(leaves: int, spines: int, hosts: int) -> Fabric:
    return build("clos", {"leaves": leaves, "spines": spines, "hosts_per_leaf": hosts})


def limited(monkeypatch: pytest.MonkeyPatch, hard: int, *, may: bool) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        if not may:
            raise ValueError("not allowed to raise maximum limit")
        told.append(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    return told


def test_each_port_rank_and_host_counts() -> None:
    """4 leaves of 3 hosts under 2 spines: 12 ports to hosts, 8 cables with two ends, 12 listeners, sessions, hosts."""
    assert descriptors.needed(clos(4, 2, 3)) - descriptors.needed(clos(2, 1, 1)) == (12 + 16 + 36) - (2 + 4 + 6)


def test_a_limit_that_is_high_enough_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    count = descriptors.needed(clos(4, 2, 3))
    for hard in (count, resource.RLIM_INFINITY):
        told = limited(monkeypatch, hard, may=True)
        descriptors.allow(clos(4, 2, 3))
        assert told == []


def test_a_limit_that_is_too_low_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    count = descriptors.needed(clos(4, 2, 3))
    told = limited(monkeypatch, count - 1, may=True)
    descriptors.allow(clos(4, 2, 3))
    assert told == [(1024, count)]


def test_who_may_not_raise_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    count = descriptors.needed(clos(4, 2, 3))
    limited(monkeypatch, count - 1, may=False)
    with pytest.raises(MachineError) as said:
        descriptors.allow(clos(4, 2, 3))
    assert str(count) in said.value.what and str(count - 1) in said.value.what
    assert "ulimit -Hn" in said.value.where
