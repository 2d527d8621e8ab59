"""What the library's schedules take, against closed forms that follow from the mechanisms alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from workloads.base.entry import NoModel
from workloads.library import trees
from workloads.library.choice import Choice, choose
from workloads.library.costs import EFFICIENCY, PARAMETERS, Costs
from workloads.library.servers import Servers
from workloads.library.settings import Settings
from workloads.library.times import time_ns

L0, B, C, TS, TM, TI = 5000.0, 400e9, 100e9, 700.0, 300.0, 9000.0
TOLD = {"launch": L0, "nic.rate": B, "cta.rate": C, "cta.slice": TS, "net.message": TM, "net.hop": TI}
FREE = dict.fromkeys(["launch", "cta.slice", "nvlink.hop", "net.message", "net.hop"], 0.0) | {
    **{"nic.rate": B, "cta.rate": 1e18, "nvlink.rate": 1e18},
}
ONE = Choice("ring", "simple", 1)


def test_one_hop_of_one_slice() -> None:
    """L0 + s/C + t_s + t_m + s/(B e) + t_i."""
    s = 16 << 10
    for protocol, efficiency in EFFICIENCY.items():
        own = "" if protocol == "simple" else f"{protocol}."
        told = TOLD | {f"{own}cta.rate": C, f"{own}cta.slice": TS, f"{own}net.hop": TI}
        found = time_ns("all_gather", 2 * s, Servers(2, 1), Costs.of(told), Choice("ring", protocol, 1))
        assert found == pytest.approx(L0 + s * 8e9 / C + TS + TM + s * 8e9 / (B * efficiency) + TI, abs=1e-3)


@pytest.mark.parametrize(("n", "hop_ns"), [*product((2, 3, 5, 8), (0.0, 9000.0, 60000.0))])
def test_all_gather_of_one_loop(n: int, hop_ns: float) -> None:
    """L0 + 2p + h + (n-2) max(2p, p + h), with two slices to a chunk."""
    s = 256 << 10
    p, w = s * 8e9 / C + TS, TM + s * 8e9 / B
    assert w <= p
    h = w + hop_ns
    found = time_ns("all_gather", 2 * s * n, Servers(n, 1), Costs.of({**TOLD, "net.hop": hop_ns}), ONE)
    assert found == pytest.approx(L0 + 2 * p + h + (n - 2) * max(2 * p, p + h), abs=1e-3)


@pytest.mark.parametrize(
    ("collective", "share"), [("all_reduce", lambda n: 2 * (n - 1) / n), ("all_gather", lambda n: (n - 1) / n)]
)
def test_where_nothing_but_bytes_counts_a_ring_fills_all_nics(collective: str, share: object) -> None:
    size, servers = 1 << 34, Servers(4, 8, 8)
    found = time_ns(collective, size, servers, Costs.of(FREE), Choice("ring", "simple", 16))
    bound = size * 8e9 * share(servers.ranks) / (8 * B)  # type: ignore[operator]
    assert bound <= found < 1.01 * bound


def test_a_ring_is_as_fast_as_its_nics_or_its_channels() -> None:
    """Many loops: min(k B, c C), but for what a loop's first chunk waits for the last one of the loop before."""
    size = 1 << 35
    for rate in (30e9, 60e9, 300e9):
        costs = Costs.of({**FREE, "cta.rate": rate})
        found = time_ns("all_gather", size, Servers(4, 1, 1), costs, Choice("ring", "simple", 4))
        assert size * 8e9 * 3 / 4 / found == pytest.approx(min(B, 4 * rate), rel=0.03)


def test_a_tree_of_two_servers_sends_the_size_once() -> None:
    size = 1 << 34
    found = time_ns("all_reduce", size, Servers(2, 8, 8), Costs.of(FREE), Choice("tree", "simple", 16))
    assert found == pytest.approx(size * 8e9 / (8 * B), rel=0.01)
    ring = time_ns("all_reduce", size, Servers(2, 8, 8), Costs.of(FREE), Choice("ring", "simple", 16))
    assert ring / found == pytest.approx(2 * 15 / 16, rel=0.01)


def test_costs_that_are_arrays_are_cases_of_their_own() -> None:
    rates, hops = np.array([100e9, 150e9, 200e9]), np.array([1000.0, 5000.0, 20000.0])
    for collective, servers in product(("all_reduce", "all_gather", "send_recv"), (Servers(4, 2, 2), Servers(1, 8))):
        for size in (8 << 10, 64 << 20):
            choice = choose(collective, size, servers)
            both = time_ns(collective, size, servers, Costs.of({"cta.rate": rates, "net.hop": hops}), choice)
            for k, found in enumerate(both):
                alone = Costs.of({"cta.rate": rates[k], "net.hop": hops[k]})
                assert time_ns(collective, size, servers, alone, choice) == pytest.approx(found, rel=1e-12)


def test_more_of_anything_does_not_make_it_faster() -> None:
    """Each constant, of each algorithm that can be told."""
    of = {"all_reduce": ("ring", "tree", "nvls_tree", "collnet_direct", "collnet_chain"), "all_gather": ("ring", "pat")}
    for collective, algorithms in of.items():
        for algorithm, size in product(algorithms, (4096, 32 << 20)):
            servers, choice = Servers(4, 1 if algorithm == "pat" else 4, 4), Choice(algorithm, "simple", 8)
            base = time_ns(collective, size, servers, Costs.of(), choice)
            for name, its in PARAMETERS.items():
                slower = Costs.of({name: its.prior * (0.5 if its.unit == "bps" else 2.0)})
                assert time_ns(collective, size, servers, slower, choice) >= base * (1 - 1e-9), (algorithm, name)


def test_a_smaller_buffer_makes_smaller_chunks() -> None:
    costs, servers = Costs.of({**FREE, "cta.slice": 1000.0}), Servers(4, 1)
    usual, small = (
        time_ns("all_gather", 1 << 30, servers, costs, ONE, Settings.of({"NCCL_BUFFSIZE": nbytes}))
        for nbytes in (4 << 20, 1 << 20)
    )
    assert small > 1.01 * usual


def test_what_it_has_no_model_of_is_refused() -> None:
    with pytest.raises(NoModel, match="mesh"):
        time_ns("all_reduce", 1024, Servers(2, 1), Costs.of(), Choice("mesh", "simple", 1))
    with pytest.raises(KeyError, match="cta.speed"):
        Costs.of({"cta.speed": 1.0})


@pytest.mark.parametrize("protocol", ["ll", "ll128"])
def test_lines_are_handed_on_while_a_slice_still_comes(protocol: str) -> None:
    """A slice of s bytes on one channel among n servers: its first clock takes s/C + t, and every hop only the network,
    as all other clocks have had their time meanwhile (NCCL's LL and LL128 poll flags in the data)."""
    nodes, size = 5, 5 * 4096
    values = {
        "launch": 5000.0,
        f"{protocol}.cta.rate": 8e9,
        f"{protocol}.cta.slice": 700.0,
        f"{protocol}.net.hop": 9000.0,
    }
    values |= {"nic.rate": 400e9, "net.message": 100.0}
    choice, servers = Choice("ring", protocol, 1), Servers(nodes, 1)
    hop = 100.0 + 4096 * 8 / 400 / EFFICIENCY[protocol] + 9000.0
    found = time_ns("all_gather", size, servers, Costs.of(values), choice)
    assert hop > 4096 + 700.0  # else clocks would be what takes longest
    assert found == pytest.approx(5000.0 + 4096 + 700.0 + (nodes - 1) * hop, abs=1.0)


def test_of_very_many_servers_a_tree_is_as_much_deeper(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(nodes: int) -> float:
        return float(time_ns("all_reduce", 1 << 20, Servers(nodes, 1), Costs.of(), Choice("tree", "simple", 4)))

    smaller, found = of(256), of(512)
    monkeypatch.setattr(trees, "_MOST_NODES", 1024)
    assert smaller < found == pytest.approx(of(512), rel=0.01)
