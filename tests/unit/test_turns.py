"""Schedules in C are those in Python, command by command.

On the fake fabric every time hangs on the order of what is said, as each message draws how long it takes.  So lines are
the same, times and all, or something differs.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parts import fake_run, task_graphs
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import Line, collective, plan
from tests.parts.in_c import by, graph
from workloads.base import native
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES, OPS, combines
from workloads.collectives import compiled
from workloads.collectives.compiled import Compiled
from workloads.collectives.execution import Execution
from workloads.parts import turns
from workloads.registry import ALGORITHMS
from workloads.tasks import communicator

SCHEDULED = [e for e in ALGORITHMS.values() if e.schedule and e.max_ranks is None and not e.lengths]
GRIDS = {4: [2, 2], 6: [2, 3], 8: [2, 2, 2], 9: [3, 3]}


def both(ranks: int, told: Line, seed: int) -> tuple[list[Line], list[Line]]:
    seen = []
    for kind in (Execution, Compiled):
        fake = FakeFabric(ranks, seed, any_order=seed % 2 == 1)
        with by(kind):
            lines, errors = fake_run.run(fake, told)
        assert (fake.error, errors) == (None, [])
        seen.append(lines)
    return seen[0], seen[1]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SCHEDULED),
    st.integers(2, 9),
    st.sampled_from([(dtype, op) for dtype in sorted(DTYPES) for op in OPS if combines(op, dtype)]),
    st.integers(1, 40) | st.integers(1, 30_000),
    st.none() | st.integers(64, 50_000),
    st.sampled_from([(None, False), (8e9, False), (8e9, True)]),
    st.sampled_from([0.0, 1500.0]),
    st.integers(0, 2**32),
)
def test_any_schedule(
    entry: Algorithm,
    ranks: int,
    kind: tuple[str, str],
    count: int,
    chunk: int | None,
    reduces: tuple[float | None, bool],
    wake_ns: float,
    seed: int,
) -> None:
    dtype, op = kind
    size = count * DTYPES[dtype] if entry.collective.sized else 0
    dims = [ranks // 2, 2] if entry.layout == "rails" and ranks % 2 == 0 else GRIDS.get(ranks, [1, ranks])
    if not entry.fits(ranks, dims if entry.layout in ("grid", "rails") else ()):
        return
    told = {"dims": dims, "senders": max(1, ranks // 3), "skew": 1.0, "iterations": 2, "dtype": dtype, "op": op}
    chunk = chunk and max(chunk, size // 50)
    step = collective(entry.collective.name, [size], algorithm=entry.name, chunk=chunk, **told)
    costs: dict[str, Any] = {"reduce_bps": reduces[0], "by_channel": reduces[1], "wake_ns": wake_ns}
    in_python, in_c = both(ranks, plan(ranks, step, **costs), seed)
    assert in_c == in_python


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("reduce_bps", "by_channel"), [(None, False), (8e9, False), (8e9, True)])
def test_tasks(monkeypatch: pytest.MonkeyPatch, seed: int, reduce_bps: float | None, by_channel: bool) -> None:
    """Also where few receives are posted ahead, which are C's to post then."""
    monkeypatch.setattr(communicator, "POSTED", 4 if seed % 2 else 8192)
    step = task_graphs.step(graph(), iterations=2)
    told = plan(4, step, reduce_bps=reduce_bps, by_channel=by_channel, wake_ns=700.0)
    in_python, in_c = both(4, told, seed)
    assert in_c == in_python


def test_a_library_of_other_sources_is_not_used() -> None:
    """Nor is what is no such library at all: ranks do without."""
    assert turns.library(compiled._SIZES) is not None
    assert turns.library((*compiled._SIZES[:-1], 8)) is None
    with mock.patch.object(native, "TURNS", native.LIBRARY):
        native.turns.cache_clear()
        try:
            assert turns.library(compiled._SIZES) is None
        finally:
            native.turns.cache_clear()


def test_an_error_in_what_c_calls_is_told() -> None:
    """A reduction that C does not know is Python's: what goes wrong there ends the call that led to it."""
    step = collective("all_reduce", [4000], algorithm="ring", dtype="float16")
    fake = FakeFabric(3)
    with by(Compiled), mock.patch("workloads.collectives.compiled.reduced", side_effect=OverflowError("too much")):
        _, errors = fake_run.run(fake, plan(3, step))
    assert "too much" in map(str, errors)
