"""Algorithms on grids, cubes and aggregated trees against what their papers say: steps, bytes, links, bounds."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, product
from math import log2, prod

import pytest

from testbed.experiment import loads
from testbed.plan.choose import Chooser
from workloads.collectives import pat
from workloads.collectives.grids import hypercube, swing, torus
from workloads.collectives.schedule import Program, Recv, Send, Shape, output_elements, steps

Link = tuple[tuple[int, ...], int, int]  # from a node, along a dimension, up (1) or down (-1)


def sends(program: Program) -> list[Send]:
    return [step for step in steps(program) if isinstance(step, Send)]


def length(step: Send) -> int:
    return step.stop - step.start


def way(dims: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> list[Link]:
    """Dimension by dimension, the shorter way round."""
    links, at = [], list(a)
    for dim, n in enumerate(dims):
        up = (b[dim] - at[dim]) % n
        for _ in range(min(up, n - up)):
            step = 1 if up <= n - up else -1
            links.append((tuple(at), dim, step))
            at[dim] = (at[dim] + step) % n
    return links


@pytest.mark.parametrize("dims", [(4, 4), (3, 3, 3), (5, 5)])
def test_a_bucket_fills_every_link_with_its_share_and_no_more(dims: tuple[int, ...]) -> None:
    """2 (n-1)/n V over 2 d links of a node, the bound; 2 sum (p_i - 1) steps (Jain & Sabharwal)."""
    n, d = prod(dims), len(dims)
    count = 2 * d * n * 3
    places = list(product(*map(range, dims)))
    loads_: Counter[Link] = Counter()
    for rank in range(n):
        program = torus.bucket_all_reduce(Shape(n, count, dims=dims), rank)
        assert [len(sends([lane])) for lane in program] == [2 * sum(p - 1 for p in dims)] * (2 * d)
        for send in sends(program):
            (link,) = way(dims, places[rank], places[send.peer])
            loads_[link] += length(send)
    assert set(loads_.values()) == {2 * (n - 1) * count // n // (2 * d)} and len(loads_) == 2 * d * n


def test_the_halves_of_a_bucket_are_as_long() -> None:
    shape = Shape(16, 16 * 8, dims=(4, 4))
    whole = sum(map(length, sends(torus.bucket_all_reduce(shape, 5))))
    halves = (torus.bucket_reduce_scatter, torus.bucket_all_gather)
    assert [2 * sum(map(length, sends(half(shape, 5)))) for half in halves] == [whole] * 2


def test_swings_partners_are_those_of_the_paper() -> None:
    """rho(s) = (1 - (-2)^(s+1)) / 3; its figure for 8 nodes; both of a pair agree."""
    assert [swing.partner(0, 1 << 20, s) for s in range(6)] == [
        (1 - (-2) ** (s + 1)) // 3 % (1 << 20) for s in range(6)
    ]
    assert [[swing.partner(r, 8, s) for r in range(8)] for s in range(3)] == [
        [1, 0, 3, 2, 5, 4, 7, 6],
        [7, 2, 1, 4, 3, 6, 5, 0],
        [3, 6, 5, 0, 7, 2, 1, 4],
    ]
    for n, s, direction in product(range(2, 40, 2), range(5), (1, -1)):
        assert all(swing.partner(swing.partner(r, n, s, direction), n, s, direction) == r for r in range(n))


def test_swing_reaches_all_of_any_even_number() -> None:
    for n, direction in product(range(2, 130, 2), (1, -1)):
        assert all(len(has) == n for has in swing.held(n, direction)[0])


@pytest.mark.parametrize(("dims", "most"), [((4, 4), 1.2), ((8, 8), 1.2), ((4, 4, 4), 1.04)])
def test_swing_takes_log2_n_messages_and_little_more_than_the_bound(dims: tuple[int, ...], most: float) -> None:
    """Its congestion deficiency: 1.19 in two dimensions, 1.03 in three, of each step's busiest link."""
    n, d = prod(dims), len(dims)
    shape = Shape(n, 2 * d * n, dims=dims)
    places = list(product(*map(range, dims)))
    rounds = int(log2(n))
    loads_: list[Counter[Link]] = [Counter() for _ in range(rounds)]
    for rank in range(n):
        program = swing.reduce_scatter(shape, rank)
        for lane in program:
            its = sends([lane])
            assert [length(send) for send in its] == [n >> k + 1 for k in range(rounds)]
            for k, send in enumerate(its):
                loads_[k].update(dict.fromkeys(way(dims, places[rank], places[send.peer]), length(send)))
    busiest = sum(max(load.values()) for load in loads_)
    assert 1 <= busiest / ((n - 1) / n * shape.count / (2 * d)) <= most


def test_swing_for_small_vectors_sends_each_part_log2_n_times() -> None:
    program = swing.small_all_reduce(Shape(16, 64, dims=(4, 4)), 3)
    assert [[length(send) for send in sends([lane])] for lane in program] == [[16] * 4] * 4
    assert [[send.peer for send in sends([lane])] for lane in hypercube.all_reduce(Shape(8, 5), 3)] == [[2, 1, 7]]


@pytest.mark.parametrize("n", [2, 8, 64, 13, 100])
def test_aggregated_trees_have_as_many_rounds_as_their_buffers_leave(n: int) -> None:
    """log2 a + n/a - 1 for powers of two; a chunk comes from the parent of its place in a binomial tree, once."""
    for most in (2**k for k in range(n.bit_length())):
        rounds = pat.rounds(n, most)
        assert sorted((far, *those) for far, those in pat.backwards(n, most)) == sorted((far, *t) for far, t in rounds)
        if n & n - 1 == 0:
            assert len(rounds) == log2(most) + n // most - 1
        assert max(len(one.come) for one in rounds) <= most
        come = {0}
        for far, those in rounds:
            assert come.issuperset(those) and not come.intersection(new := {c + far for c in those})
            assert all(c + far & -(c + far) == far + c & far for c in those)
            come |= new
        assert come == set(range(n))


@pytest.mark.parametrize("most", [1, 2, 8])
def test_what_waits_to_be_passed_on_is_a_logarithmic_number_of_buffers(most: int) -> None:
    n = 64
    rounds = pat.rounds(n, most)
    last = {c: k for k, one in enumerate(rounds) for c in one.come}
    held, largest = set[int](), 0
    for k, (far, those) in enumerate(rounds):
        held |= {c + far for c in those}
        held = {c for c in held if last.get(c, -1) > k}
        largest = max(largest, len(held))
    assert largest <= most * (log2(n // most) + 1)


def test_the_farthest_messages_of_aggregated_trees_are_the_smallest() -> None:
    """Bruck's largest go farthest: with room for all, distance and chunks are the reverse of each other."""
    assert [(one.far, len(one.come)) for one in pat.rounds(16, 16)] == [(8, 1), (4, 2), (2, 4), (1, 8)]
    program = pat.all_gather(Shape(16, 160), 3)
    assert [(send.peer, length(send)) for send in sends(program)] == [(11, 10), (7, 20), (5, 40), (4, 80)]
    back = pat.reduce_scatter(Shape(16, 160), 3)
    assert [(send.peer, length(send)) for send in sends(back)] == [(2, 80), (1, 40), (15, 20), (11, 10)]


@pytest.mark.parametrize(
    ("n", "chunk", "rounds"),
    [(16, 512, 4), (64, 512, 10), (64, 64, 6), (64, 128, 6), (64, 300, 10), (2, 512, 1), (256, 1024, 34)],
)
def test_a_round_fills_eight_buffers_as_in_nccl(n: int, chunk: int, rounds: int) -> None:
    """Chunks of so many KiB, buffers of 512: what the constructors of NCCL 2.23.4 come to.

    A buffer holds a = 2^floor(log2(512 / chunk)) chunks, a round min(8 a, n / 2) = A: log2 A + n / A - 1 rounds.
    """
    shape = Shape(n, n * chunk, chunk=512)
    a = max(1, 2 ** int(log2(512 / chunk)))
    most = min(8 * a, n // 2)
    assert rounds == log2(most) + n // most - 1
    to = [(send.peer, length(send)) for send in sends(pat.all_gather(shape, 0))]
    assert len(list(groupby(to, key=lambda one: one[0]))) <= rounds
    assert max(size for _, size in to) == min(a, n // 2) * chunk if chunk <= 512 else 512
    for whole in (pat.rounds, pat.backwards):
        assert len(whole(n, pat.room_of(shape).round)) == rounds
    assert sum(size for _, size in to) == (n - 1) * chunk


def test_backwards_the_farthest_places_of_the_trees_come_first() -> None:
    """PatRSAlgorithm counts its aggregated steps down, 7, 6, .. 1: a place's chunk goes as far as its lowest bit."""
    got = [(one.far, [c + one.far for c in one.come]) for one in pat.backwards(16, 2)]
    trees = [(s & -s, [top + s for top in (0, 8)]) for s in range(7, 0, -1)]
    assert got == [*trees, (8, [8])]


def test_a_hypercube_exchanges_half_a_vector_log2_n_times() -> None:
    program = hypercube.all_to_all(Shape(16, 160), 5)
    assert [(send.peer, length(send)) for send in sends(program)] == [(5 ^ bit, 80) for bit in (1, 2, 4, 8)]
    received = [step for step in steps(program) if isinstance(step, Recv)]
    assert output_elements(program) == 160 + 2 * 4 * 80 and len(received) == 4


TORUS = "{torus: {dims: [4, 4], direct: true}}, nic: {router: {rate: 10Tbps}, pcie: {rate: 10Tbps, latency: 50ns}}"
TORUS += ", switch: {pfc: false}"  # schedules by themselves


def expected_us(algorithm: str, size: str) -> float:
    step = f"{{collective: all_reduce, algorithm: {algorithm}, sizes: [{size}]}}"
    one = loads(f"name: t\nfabric: {{topology: {TORUS}}}\ncosts: {{reduce: 80Tbps}}\nworkload: [{step}]")
    chooser, its = Chooser(one), one.workload[0]
    (candidate,) = chooser.candidates(its)
    return chooser.expected_ns(candidate, its, its.sizes[0]) / 1e3


def test_all_links_of_a_torus_at_once() -> None:
    """Buckets come near the bound by all cables of 400 Gb/s; Swing is faster up to a megabyte, and rings never are."""
    bound = 2 * 15 / 16 * (64 << 20) / (4 * 50e9) * 1e6
    assert 1.02 < expected_us("bucket", "64MiB") / bound < 1.06  # 82 bytes of 4178 are headers
    for size in ("1KiB", "1MiB"):
        its = {name: expected_us(name, size) for name in ("ring", "bidirectional_ring", "torus", "bucket", "swing")}
        assert min(its, key=its.__getitem__) == "swing", its
    assert expected_us("swing_latency", "1KiB") < expected_us("swing", "1KiB")
