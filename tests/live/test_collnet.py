"""Whole runs of all-reduces by scale-up domains and switches."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.experiment import loads
from testbed.predict import predict
from tests.parts.offload_runs import FAULTS, by_the_network, counters, run

RAIL = "{rail: {servers: 2, gpus: 2}}"
STEP = "{collective: all_reduce, algorithm: collnet_direct, sizes: [%s], dtype: %s, chunk: 32KiB, iterations: %d}"


def test_results_and_times(tmp_path: Path) -> None:
    """Also of vectors of which some GPU has no share, and whose shares differ."""
    steps = [STEP % ("4B, 12B, 100004B, 1MiB", dtype, 1) for dtype in ("int32", "float32")]
    result = run(tmp_path, RAIL, *steps, switch="{accelerator: {}}")
    assert by_the_network(result)
    text = f"name: x\nfabric: {{topology: {RAIL}, switch: {{accelerator: {{}}}}}}\nworkload: [{', '.join(steps)}]"
    for row, figure in zip(result.results, predict(loads(text)).figures, strict=True):
        if row["size_bytes"] > 12:
            assert row["time_ns"] == pytest.approx(figure.time_ns, rel=0.08)


REDUCE_SCATTER = "{collective: reduce_scatter, algorithm: collnet_direct, sizes: [%s], dtype: %s, chunk: 32KiB}"
NVLS = "{collective: all_reduce, algorithm: collnet_nvls, sizes: [%s], dtype: %s, chunk: 16KiB}"
TASKS = """tasks:
      groups: {dp: [[0, 1, 2, 3]], tp: [[0, 1], [2, 3]]}
      list:
      - {id: a, collective: all_reduce, algorithm: collnet_direct, group: dp, size: 300KB, stream: dp}
      - {id: b, collective: all_reduce, algorithm: collnet_direct, group: dp, size: 4KB, stream: dp}
      - {id: c, collective: reduce_scatter, algorithm: collnet_direct, group: dp, size: 300KB, stream: rs}
      - {id: n, collective: all_reduce, algorithm: collnet_nvls, group: dp, size: 300KB, stream: nvls}
      - {id: d, collective: all_reduce, algorithm: nvls, group: tp, size: 1MB, stream: tp}
      - {id: e, collective: all_gather, algorithm: nvls, group: tp, size: 1MB, stream: tp}"""


def test_parts_and_tasks_side_by_side(tmp_path: Path) -> None:
    """Each rank has its part, some an empty one; tasks with other sums, and sums in domains, beside them."""
    steps = [REDUCE_SCATTER % ("4B, 12B, 100004B", "int32"), REDUCE_SCATTER % ("300KB", "float32"), TASKS]
    steps.append(NVLS % ("4B, 20B, 300KB", "float32"))
    assert by_the_network(
        run(tmp_path, RAIL, *steps, switch="{accelerator: {slots: 4096}}", more="workers: {memory: 1GiB}")
    )


def test_without_accelerators_rails_add_up_by_themselves(tmp_path: Path) -> None:
    """Parts and tasks, too: each rank ends with the right sums, and says why its rail did them."""
    more = "workers: {memory: 1GiB}\ninject: [{fault: accelerator_down, on: 'switch:rail1', at: 0ns}]"
    rows = run(
        tmp_path,
        RAIL,
        REDUCE_SCATTER % ("100004B", "int32"),
        NVLS % ("100004B", "int32"),
        TASKS,
        switch="{accelerator: {slots: 4096}}",
        more=more,
    ).results
    assert [row["wrong"] for row in rows] == [0, 0, 0]
    assert all("rail1" in row["fallback"] for row in rows)


def test_losses_are_made_good(tmp_path: Path) -> None:
    result = run(tmp_path, RAIL, STEP % ("300KB", "float32", 3), switch="{accelerator: {}}", more=FAULTS)
    assert by_the_network(result)
    assert sum(unit["duplicates"] for unit in counters(result)["accelerators"]) > 0


def test_a_rail_whose_accelerator_dies_adds_up_by_itself(tmp_path: Path) -> None:
    """Dead from 200 to 500 us.  The other rail's goes on, and all is as fast again when this one has a group again."""
    inject = "inject: [{fault: accelerator_down, on: 'switch:rail0', at: 200us, for: 300us}]"
    more = f"control: {{reaction: 150us}}\n{inject}"
    rows = run(tmp_path, RAIL, STEP % ("256KiB", "int32", 32), switch="{accelerator: {}}", more=more).results
    assert [row["wrong"] for row in rows] == [0] * 32
    slow = [n for n, row in enumerate(rows) if row["fallback"]]
    assert slow and slow == list(range(slow[0], slow[-1] + 1)) and slow[-1] < 31
    assert all(row["time_ns"] < 2 * rows[0]["time_ns"] for row in rows[slow[0] + 1 : slow[-1] + 1])
    assert rows[-1]["time_ns"] == pytest.approx(rows[0]["time_ns"], rel=0.02)
    assert all("rail0" in row["fallback"] for row in rows if row["fallback"])
