"""The default ring order: every rank once, ring neighbours next to each other in the network."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

import topologies
from topologies.ranks.ring_order import ring_order, snake


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_snake_takes_single_steps_through_every_place(dims: list[int]) -> None:
    order = snake(dims)
    assert sorted(order) == list(range(prod(dims)))

    def place(number: int) -> list[int]:
        coordinates = []
        for size in reversed(dims):
            number, coordinate = divmod(number, size)
            coordinates.append(coordinate)
        return coordinates

    for a, b in zip(order, order[1:], strict=False):
        assert sum(abs(x - y) for x, y in zip(place(a), place(b), strict=True)) == 1


@given(st.integers(1, 5).map(lambda n: 2 * n), st.integers(1, 4))
def test_a_ring_over_a_rail_fabric_never_leaves_its_rails(servers: int, gpus: int) -> None:
    fabric = topologies.build("rail", {"servers": servers, "gpus": gpus, "spines": 1})
    order = ring_order(fabric)
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        one, other = fabric.nics[a], fabric.nics[b]
        assert one.host == other.host or one.gpu == other.gpu


def test_a_torus_ring_takes_one_cable_per_step() -> None:
    fabric = topologies.build("torus", {"dims": [4, 4]})
    order = ring_order(fabric)
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        assert fabric.graph.has_edge(f"sw{a // 4}-{a % 4}", f"sw{b // 4}-{b % 4}")
