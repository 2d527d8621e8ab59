"""Chunks and repair without a network: each rank gets everything, whatever is lost and in whatever order it is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workloads.collectives.exchange import distances
from workloads.offloads.chunking import Chunks, runs, span
from workloads.offloads.repair import RUN_CHUNKS, Repair

SIZES = st.builds(
    Chunks,
    st.integers(1, 5000).map(lambda n: 4 * n),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 700),
    st.integers(1, 17),
)


@given(SIZES)
def test_chunks_cover_the_vector_once(chunks: Chunks) -> None:
    offsets = [chunks.offset(c) for c in range(chunks.count + 1)]
    assert offsets[0] == 0 and offsets[-1] == chunks.edges[-1]
    lengths = [b - a for a, b in zip(offsets, offsets[1:], strict=False)]
    assert all(0 < length <= chunks.payload for length in lengths)
    edges = set(chunks.edges)
    assert edges <= set(offsets), "every part begins with a chunk of its own"
    assert all(length == chunks.payload or end in edges for length, end in zip(lengths, offsets[1:], strict=True))
    parts = [chunks.of_part(p) for p in range(len(chunks.edges) - 1)]
    assert sum(parts) == span(0, chunks.count)
    assert chunks.bitmap_bytes * 8 >= chunks.count


@given(SIZES, st.data())
def test_a_run_is_known_by_its_beginning_and_length(chunks: Chunks, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, chunks.count - 1))
    end = data.draw(st.integers(first + 1, chunks.count))
    nbytes = chunks.offset(end) - chunks.offset(first)
    assert chunks.end(first, nbytes) == end


@given(st.sets(st.integers(0, 200)), st.integers(1, 50))
def test_runs_are_the_set_in_order(members: set[int], most: int) -> None:
    found = list(runs(sum(1 << m for m in members), most))
    assert [c for first, end in found for c in range(first, end)] == sorted(members)
    assert all(0 < end - first <= most for first, end in found)
    joined = sum(a[1] == b[0] and a[1] - a[0] < most for a, b in zip(found, found[1:], strict=False))
    assert not joined, "no shorter than it need be"


@given(st.integers(2, 200))
def test_the_barrier_hears_of_everybody(ranks: int) -> None:
    heard = [{rank} for rank in range(ranks)]
    for far in distances(ranks):
        heard = [heard[rank] | heard[rank - far] for rank in range(ranks)]
    assert all(len(known) == ranks for known in heard)
    assert len(distances(ranks)) == (ranks - 1).bit_length()


@given(st.data())
def test_everybody_gets_everything(data: st.DataObject) -> None:
    """Ranks end their multicast at different times, and messages between neighbours, each in order, take any time."""
    ranks = data.draw(st.integers(2, 9))
    root = data.draw(st.one_of(st.none(), st.integers(0, ranks - 1)))
    chunks = Chunks(4 * data.draw(st.integers(1, 400)), 4, data.draw(st.integers(1, 64)), ranks if root is None else 1)
    everything = span(0, chunks.count)
    own = [chunks.of_part(i) if root is None else everything * (i == root) for i in range(ranks)]
    here = [own[i] | data.draw(st.integers(0, everything)) for i in range(ranks)]
    state: list[Repair | None] = [None] * ranks
    to_left: list[list[int]] = [[] for _ in range(ranks)]  # from rank i
    to_right: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    asked: dict[int, int] = {}

    def give(i: int, given: list[tuple[int, int]]) -> None:
        r = state[i]
        assert r is not None
        for first, end in given:
            assert end - first <= RUN_CHUNKS
            assert not span(first, end) & r.missing, "gives only what it has"
        to_right[i] += given

    def hear(i: int) -> None:
        r, right = state[i], (i + 1) % ranks
        if r is not None and i in asked:
            give(i, r.request(asked.pop(i)))
        elif to_left[right]:
            asked[i] = to_left[right].pop(0)

    def take(i: int) -> None:
        r, left = state[i], (i - 1) % ranks
        assert r is not None
        first, end = to_right[left].pop(0)
        assert span(first, end) & ~r.missing == 0, "nothing is given twice, or unasked"
        give(i, r.receive(first, end))

    for _ in range(100_000):
        steps = [(0, i) for i in range(ranks) if state[i] is None]
        steps += [(1, i) for i in range(ranks) if to_left[(i + 1) % ranks] or (i in asked and state[i] is not None)]
        steps += [(2, i) for i in range(ranks) if to_right[i - 1]]
        if not steps:
            break
        kind, i = data.draw(st.sampled_from(steps)) if len(steps) < 40 else steps[0]
        if kind == 0:
            repair = state[i] = Repair(chunks.count, here[i])
            to_left[i].append(repair.missing)
        else:
            hear(i) if kind == 1 else take(i)
    assert all(r is not None and r.through and r.missing == 0 for r in state)
