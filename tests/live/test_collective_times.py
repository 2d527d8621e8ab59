"""What the hosts' collectives take, from container to table, against their closed forms (docs/collectives.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import times_table
from tests.parts.measured_run import measured
from workloads.registry import ALGORITHMS

STAR = "{star: {hosts: 16}}"
ANYWHERE = [e for e in ALGORITHMS.values() if e.schedule and not e.shaped]


@pytest.mark.parametrize(
    ("topology", "ranks"),
    [
        ("{star: {hosts: 8}}", (3, 8)),
        ("{rail: {servers: 4, gpus: 2, spines: 1}}", (8,)),
        ("{clos: {leaves: 3, spines: 1, hosts_per_leaf: 2}}", (5,)),
        ("{torus: {dims: [3, 2]}}", (6,)),
        ("{ring: {nodes: 7}}", (7,)),
    ],
)
def test_every_algorithm(tmp_path: Path, topology: str, ranks: tuple[int, ...]) -> None:
    """Whoever waits for whom, and however the messages meet."""
    workload = list(times_table.steps(topology, ranks, ["4B", "200KB"]))
    assert len(workload) > 25 * len(ranks)
    found = times_table.rows(topology, workload, tmp_path / "run")
    assert [str(row) for row in found if abs(row.off) > times_table.LIMIT] == []
    alike = [row for row in found if row.size_bytes == 4 and row.entry.collective.name == "all_reduce"]
    assert max(abs(row.off) for row in alike) < 1e-3, "nothing meets, or by a packet"


def test_large_vectors_whole_and_in_pieces(tmp_path: Path) -> None:
    """Where trains are many packets, and the time of many pieces is that of some."""
    entries = [e for e in ANYWHERE if "chunk" in e.extra]
    workload = [times_table.step(e, 8, ["2MiB"], chunk="64KiB") for e in entries]
    workload += [times_table.step(e, 7, ["2MiB"]) for e in entries[:4]]
    workload += [times_table.step(ALGORITHMS["broadcast", "chain"], 4, ["4MiB"], chunk="8KiB")]  # 512 of them
    found = times_table.rows(STAR, workload, tmp_path / "run")
    assert [str(row) for row in found if abs(row.off) > times_table.LIMIT] == []


def test_pipelining_hides_the_reductions(tmp_path: Path) -> None:
    ring = ALGORITHMS["all_reduce", "ring"]
    whole, piped = measured(
        tmp_path,
        STAR,
        [times_table.step(ring, 8, ["16MiB"]), times_table.step(ring, 8, ["16MiB"], chunk="128KiB")],
    )
    reductions = 7 * (16 << 20) / 8 * 8e9 / 800e9
    latency = 14 * 3600  # of a hop: the next piece is on its way meanwhile
    assert whole["time_ns"] - piped["time_ns"] == pytest.approx(reductions + latency, rel=0.05)
