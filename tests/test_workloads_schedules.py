"""Collectives and flows against the fake fabric: any group, size, type and reduction, with messages that take any time."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_fabric import FakeFabric
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads import registry, worker
from workloads.collectives import ring
from workloads.verbs import CompletionError, Device, FabricError

Line = dict[str, Any]
THOROUGH = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plan(ranks: int, *steps: Line, wake_ns: float = 0, reduce_bps: float | None = None) -> Line:
    return {"ranks": ranks, "seed": 1, "costs": {"wake_ns": wake_ns, "reduce_bps": reduce_bps}, "steps": list(steps)}


def collective(name: str, sizes: list[int], **more: Any) -> Line:
    entry = registry.find(name, more.pop("algorithm", None))
    step: Line = {"kind": "collective", "collective": name, "algorithm": entry.algorithm, "sizes": sizes}
    return {**step, "dtype": "float32", "op": "sum", "iterations": 1, "warmup": 0, "ranks": None, **more}


@contextmanager
def fabric(ranks: int, seed: int = 0) -> Iterator[FakeFabric]:
    with tempfile.TemporaryDirectory() as directory, FakeFabric(Path(directory), ranks, seed) as fake:
        yield fake


def run(fake: FakeFabric, steps: Line) -> tuple[list[Line], list[Exception]]:
    """Runs a plan on one thread per rank.  Returns the lines, and what went wrong."""
    lines: list[Line] = []
    errors: list[Exception] = []

    def rank_main(rank: int) -> None:
        try:
            with Device(fake.socket(rank), wake_ns=steps["costs"]["wake_ns"]) as device:
                worker.run(steps, device, lines.append)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=rank_main, args=(r,)) for r in range(fake.ranks)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return lines, errors


def measured(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] != "progress"]


@THOROUGH
@given(
    st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)), st.integers(2, n))),
    st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]),
    st.sampled_from(sorted(registry.DTYPES)),
    st.sampled_from(registry.OPS),
    st.lists(st.integers(0, 40) | st.integers(0, 60000), min_size=1, max_size=3),
    st.integers(0, 2**32),
)
def test_ring_collectives_are_right_whatever_the_timing(
    place: tuple[int, list[int], int], name: str, dtype: str, op: str, counts: list[int], seed: int
) -> None:
    ranks, order, members = place
    group = order[:members]
    sizes = [count * registry.DTYPES[dtype] for count in counts]
    step = collective(name, sizes, dtype=dtype, op=op, ranks=group, iterations=2, warmup=1)
    with fabric(ranks, seed) as fake:
        lines, errors = run(fake, plan(ranks, step))
    assert (fake.error, errors) == (None, [])
    assert sorted((line["rank"], line["size_bytes"], line["iteration"]) for line in measured(lines)) == sorted(
        (rank, size, iteration) for rank in group for size in sizes for iteration in range(2)
    )
    assert {line["wrong"] for line in lines} == {0}
