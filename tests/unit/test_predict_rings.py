"""Rules that make long rings short to predict: what repeats, and what goes always on, is as hop by hop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from workloads.times.messages import Costs, Link, Path
from workloads.times.rings import ring_over_ns
from workloads.times.wide.around import (
    Edge,
    Ring,
    Run,
    always_on,
    direct_over_ns,
    hop_by_hop,
    hops,
    host_ring_over_ns,
    longest_ways,
)


def test_a_turn_is_the_fewest_edges_that_repeat() -> None:
    for which, fewest in (([0, 1, 0, 1], 2), ([0, 0, 0], 1), ([0, 1, 0], 3)):
        edges = [Edge(PATHS[k], PATHS[k]) for k in which]
        assert len(Ring.of(edges).of_each(lambda e: 1.0)) == fewest


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9), st.integers(0, 200)
)  # fmt: skip
def test_hops_that_repeat_are_as_if_each_was_done(edges: list[tuple[int, int]], times: int) -> None:
    busy, cross = (np.array(column, float) for column in zip(*edges, strict=True))

    def step(now: NDArray[Any]) -> NDArray[Any]:
        return np.maximum(now + busy, np.roll(now + cross, 1))

    state = np.zeros(len(edges))
    for _ in range(times):
        state = step(state)
    assert hops(step, np.zeros(len(edges)), times) == pytest.approx(state)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(5, 30), st.integers(1, 5)), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=3),
)
def test_where_all_go_always_on_the_longest_way_is_the_latest(
    edges: list[tuple[int, int]], kinds: list[tuple[int, int]]
) -> None:
    cross, busy = (np.array(column, float) for column in zip(*edges, strict=True))
    runs = [Run(cross + more, busy, times) for times, more in kinds]
    assert always_on(runs)
    found, followed = longest_ways(runs, len(edges)), hop_by_hop(runs, len(edges))
    assert (found + cross).max() == pytest.approx((followed + cross).max())
    assert not always_on([*runs, Run(cross, cross + 1, 1)])


PATHS = [Path.uniform(s, rate_bps=400e9, delay_ns=500, latency_ns=500) for s in (1, 3, 5)]
PATHS.append(Path((Link(3600e9, 300),), scale_up=True))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(PATHS), min_size=2, max_size=24), st.integers(0, 1 << 20))
def test_a_ring_over_any_edges_is_as_hop_by_hop(paths: list[Path], chunk: int) -> None:
    n = len(paths)
    costs = Costs(reduce_bps=800e9)
    for reduces in ([True] * (n - 1) + [False] * (n - 1), [True] * (n - 1), [False] * (n - 1)):
        found = host_ring_over_ns(reduces, chunk, Ring.of([Edge(path, path) for path in paths]), costs)
        assert found == pytest.approx(ring_over_ns(reduces, chunk, paths, costs))


def ring_of(ranks: int) -> Ring:
    return Ring.of([Edge(PATHS[0], PATHS[0])] * ranks)


def test_a_ring_of_a_quarter_of_a_million_nics_is_as_long_as_its_hops() -> None:
    n = 262_144
    adds = [1] * (n - 1) + [0] * (n - 1)
    one = direct_over_ns(adds, 4096, ring_of(n), Costs())
    few = [direct_over_ns([1] * (k - 1) + [0] * (k - 1), 4096, ring_of(k), Costs()) for k in (4, 5)]
    assert one == pytest.approx(few[0] + (n - 4) * (few[1] - few[0]))
