"""OmniReduce's state machines without a fabric: any data, any order of messages, any loss."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.parts.sparse_share import union_share
from workloads.sparse.inputs import SparseInputs
from workloads.sparse.layout import NONE, Layout
from workloads.sparse.protocol import Aggregator, Malformed, Message, Worker
from workloads.sparse.spots import Aggregator as SpotAggregator
from workloads.sparse.spots import Windows
from workloads.sparse.spots import Worker as SpotWorker

LAYOUTS = st.builds(
    Layout.of, st.integers(1, 300), st.integers(1, 8), st.integers(1, 5) | st.just(32), st.integers(1, 6)
)


def vectors(layout: Layout, workers: int, density: float, rng: random.Random) -> list[NDArray[np.int64]]:
    made = []
    for _ in range(workers):
        vector = np.array([rng.randint(1, 99) for _ in range(layout.count)], dtype=np.int64)
        for block in range(layout.blocks):
            if rng.random() >= density:
                vector[layout.elements(block)] = 0
        made.append(vector)
    return made


class Wire:
    """Carries messages between workers and one aggregator, in any order; if lossy, some never or more than once."""

    def __init__(self, layout: Layout, inputs: list[NDArray[Any]], rng: random.Random, *, lossy: bool) -> None:
        self.rng = rng
        self.lossy = lossy
        self.layout = layout
        self.workers = [Worker(layout, vector, lossy=lossy) for vector in inputs]
        self.aggregator = Aggregator(layout, len(inputs), range(layout.slots), np.dtype(np.int64), lossy=lossy)
        self.up: list[tuple[int, Message]] = []  # worker, its message
        self.down: list[tuple[int, Message]] = []
        self.sent_elements = [0] * len(inputs)
        self.results = 0

    def run(self) -> None:
        for number, worker in enumerate(self.workers):
            for slot in range(self.layout.slots):
                self._to_aggregator(number, worker.begin(slot))
        for _ in range(200_000):
            if all(w.done for w in self.workers):
                return
            if self.lossy and (not self.up + self.down or self.rng.random() < 0.05):
                self._timers()
            self._deliver()
        raise AssertionError("it does not end")

    def _timers(self) -> None:
        for number, worker in enumerate(self.workers):
            slot = self.rng.randrange(self.layout.slots)
            if (message := worker.again(slot)) is not None:
                self._to_aggregator(number, message)

    def _deliver(self) -> None:
        queue = self.rng.choice([q for q in (self.up, self.down) if q] or [self.up])
        if not queue:
            return
        # Without loss, messages of a connection stay in order; those of different ones do not.
        at = self.rng.randrange(len(queue))
        if not self.lossy:
            at = next(i for i, (number, _) in enumerate(queue) if number == queue[at][0])
        number, message = queue.pop(at)
        if queue is self.up:
            self._at_aggregator(number, message)
        elif (answer := self.workers[number].result(message)) is not None:
            self._to_aggregator(number, answer)

    def _at_aggregator(self, number: int, message: Message) -> None:
        outcome = self.aggregator.contribution(number, message)
        if outcome is None:
            return
        result, to_all = outcome
        self.results += to_all
        # What is on its way is not what is in the sums later: the caller sends before it calls again.
        result = result._replace(data=result.data.copy())
        for worker in range(len(self.workers)) if to_all else [number]:
            self._carry(self.down, worker, result)

    def _to_aggregator(self, number: int, message: Message) -> None:
        self.sent_elements[number] += len(message.data)
        self._carry(self.up, number, message)

    def _carry(self, queue: list[tuple[int, Message]], number: int, message: Message) -> None:
        copies = self.rng.choice([0, 1, 1, 1, 2, 3]) if self.lossy else 1
        queue += [(number, message)] * copies


@settings(max_examples=60, deadline=None)
@given(LAYOUTS, st.integers(1, 8), st.sampled_from([0.0, 0.03, 0.3, 0.8, 1.0]), st.booleans(), st.integers(0, 2**32))
@example(Layout.of(1, 256, 4, 256), 2, 1.0, False, 0)
def test_every_worker_ends_with_the_sum(layout: Layout, workers: int, density: float, lossy: bool, seed: int) -> None:
    rng = random.Random(seed)
    inputs = vectors(layout, workers, density, rng)
    expected = np.sum(inputs, axis=0)
    held = [int(layout.nonzero(vector).sum()) for vector in inputs]
    union = np.any([layout.nonzero(vector) for vector in inputs], axis=0)
    sizes = [layout.length(b) for b in range(layout.blocks)]
    own = [sum(n for n, marked in zip(sizes, layout.nonzero(v), strict=True) if marked) for v in inputs]
    wire = Wire(layout, inputs, rng, lossy=lossy)
    wire.run()
    for vector in inputs:
        assert np.array_equal(vector, expected)
    assert wire.aggregator.done
    if not lossy:  # every non-zero block goes there once, and nothing else
        assert wire.sent_elements == own
        assert wire.results <= max(held) * workers + layout.slots
        if density == 0:
            assert wire.results == layout.slots
    assert wire.aggregator.added_elements == sum(own) - sum(n for n, m in zip(sizes, union, strict=True) if m)


@given(LAYOUTS, st.floats(0, 1), st.integers(0, 2**32))
def test_the_next_block_is_the_first_non_zero_one_behind_in_the_column(
    layout: Layout, density: float, seed: int
) -> None:
    (vector,) = vectors(layout, 1, density, random.Random(seed))
    nonzero = layout.nonzero(vector)
    following = layout.following(nonzero)
    for block in range(layout.blocks):
        behind = [b for b in range(block + layout.columns, layout.blocks, layout.columns) if nonzero[b]]
        assert following[block] == (behind[0] if behind else NONE)


@given(LAYOUTS)
def test_columns_of_the_slots_hold_every_block_once(layout: Layout) -> None:
    seen = []
    for slot in range(layout.slots):
        for first in layout.first(slot):
            if first != NONE:
                seen += range(first, layout.blocks, layout.columns)
    assert sorted(seen) == list(range(layout.blocks))
    assert sum(layout.length(b) for b in seen) == layout.count


def test_without_loss_a_message_out_of_turn_is_an_error() -> None:
    layout = Layout.of(8, 1, 1, 1)
    worker = Worker(layout, np.ones(8, dtype=np.int64))
    aggregator = Aggregator(layout, 2, range(1), np.dtype(np.int64))
    message = worker.begin(0)
    assert aggregator.contribution(0, message) is None
    with pytest.raises(Malformed, match="worker 0, slot 0: round 0 in round 0"):
        aggregator.contribution(0, message)
    with pytest.raises(Malformed, match="result of round 3 in round 0"):
        worker.result(message._replace(round=3))
    with pytest.raises(Malformed, match="2 elements in a message of 1"):
        aggregator.contribution(1, message._replace(data=np.ones(2, dtype=np.int64)))


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.25, 1.0])
def test_inputs_have_the_density_and_overlap_asked_for(density: float, overlap: float) -> None:
    inputs = SparseInputs(7, 4, "float32", "sum", 8, density, overlap)
    masks = [inputs.nonzero(index, 4000, variant=3) for index in range(4)]
    assert [int(m.sum()) for m in masks] == [int(4000 * density)] * 4
    assert np.any(masks, axis=0).mean() == pytest.approx(union_share(density, 4, overlap), abs=0.02)
    vector = np.empty(4000 * 8 - 3, dtype=np.float32)
    inputs.fill(vector, 2, variant=3)
    layout = Layout.of(len(vector), 8, 4, 16)
    assert np.array_equal(layout.nonzero(vector), masks[2])
    if 0 < density < 1:
        assert not np.array_equal(masks[2], inputs.nonzero(2, 4000, variant=4))


@pytest.mark.parametrize(("dtype", "op"), [("float32", "sum"), ("float16", "avg"), ("int32", "avg"), ("int64", "sum")])
def test_the_check_finds_each_wrong_element(dtype: str, op: str) -> None:
    inputs = SparseInputs(1, 3, dtype, op, 16, 0.5, 0.2)
    vectors_ = [np.empty(1003, dtype=dtype) for _ in range(3)]
    for index, vector in enumerate(vectors_):
        inputs.fill(vector, index, variant=5)
    total = np.sum([v.astype(np.int64) for v in vectors_], axis=0)
    result = (np.trunc(total / 3) if dtype == "int32" else total / 3 if op == "avg" else total).astype(dtype)
    assert inputs.count_wrong(result, 5) == 0
    result[[0, 500, 1002]] += np.array(1, dtype=dtype)
    assert inputs.count_wrong(result, 5) == 3
    assert inputs.count_wrong(result, 6) > 100


def test_union_of_independent_positions() -> None:
    assert union_share(0.25, 4) == pytest.approx(1 - 0.75**4)
    assert union_share(0.25, 4, 1.0) == pytest.approx(0.25)
    assert union_share(1.0, 8) == 1.0
    assert union_share(0.0, 8) == 0.0


WINDOWS = st.builds(Windows, st.integers(1, 300), st.integers(1, 8), st.integers(1, 9), st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(WINDOWS, st.integers(1, 6), st.sampled_from([0.0, 0.03, 0.3, 0.8, 1.0]), st.integers(0, 2**32))
def test_spots_end_with_the_sum_in_any_order(windows: Windows, workers: int, density: float, seed: int) -> None:
    """Messages of a connection stay in order, those of different ones do not; no spot is used for two windows."""
    rng = random.Random(seed)
    layout = Layout.of(windows.count, windows.block, 1, 1)
    inputs = vectors(layout, workers, density, rng)
    expected = np.sum(inputs, axis=0)
    own = [int(sum(layout.length(b) for b in np.flatnonzero(layout.nonzero(v)))) for v in inputs]
    sides = [SpotWorker(windows, vector) for vector in inputs]
    sums = [SpotAggregator(windows, a, workers, np.dtype(np.int64)) for a in range(windows.aggregators)]
    up = {(w, a): deque() for w in range(workers) for a in range(windows.aggregators)}
    down = {key: deque() for key in up}
    sent = [0] * workers

    def write(worker: int, window: int) -> None:
        part = sides[worker].contribution(window)
        sent[worker] += len(part.data)
        up[worker, windows.aggregator(window)].append(part)

    for worker, side in enumerate(sides):
        for window in side.first():
            write(worker, window)
    while ready := [(queues, key) for queues in (up, down) for key, queue in queues.items() if queue]:
        queues, (worker, aggregator) = rng.choice(ready)
        part = queues[worker, aggregator].popleft()
        if queues is up:
            result = sums[aggregator].contribution(worker, part)
            if result is not None:
                result = result._replace(data=result.data.copy())
                for w in range(workers):
                    down[w, aggregator].append(result)
        elif (after := sides[worker].result(part)) is not None:
            write(worker, after)
    assert all(side.done for side in sides) and all(a.done for a in sums)
    assert all(np.array_equal(vector, expected) for vector in inputs)
    assert sent == own


def test_a_spot_takes_one_window_at_a_time() -> None:
    windows = Windows(16, 2, 2, 1)
    worker, other = (SpotWorker(windows, np.ones(16, dtype=np.int64)) for _ in range(2))
    aggregator = SpotAggregator(windows, 0, 2, np.dtype(np.int64))
    assert worker.first() == [0, 1]
    part = worker.contribution(0)
    assert aggregator.contribution(0, part) is None
    with pytest.raises(Malformed, match="worker 0: window 0 while 0 is in the spot"):
        aggregator.contribution(0, part)
    with pytest.raises(Malformed, match="worker 1: window 2 while 0 is in the spot"):
        aggregator.contribution(1, other.contribution(2))
    with pytest.raises(Malformed, match="indices that are not in order"):
        aggregator.contribution(1, part._replace(indices=part.indices[::-1]))
    with pytest.raises(Malformed, match="3 elements"):
        aggregator.contribution(1, part._replace(data=part.data[:3]))
