"""What the hosts' collectives take, from container to table, against their closed forms (docs/collectives.md)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_closed_form import measured

from testbed.choose import Chooser
from testbed.spec import loads
from testbed.spec.steps import CollectiveStep
from workloads.closed_form import Costs
from workloads.closed_form import Path as Way
from workloads.registry import COLLECTIVES, Collective

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("runc") or not shutil.which("ovs-vsctl"),
    reason="needs root, runc and Open vSwitch",
)

STAR = "{star: {hosts: 16}}"
ANYWHERE = [e for e in COLLECTIVES.values() if e.schedule and e.layout not in ("grid", "domains")]


def written(entry: Collective, ranks: list[int] | None, **more: str) -> str:
    told = {"collective": entry.name, "algorithm": entry.algorithm, **({"sizes": "[16MiB]"} if entry.sized else {})}
    told |= {"ranks": str(ranks)} if ranks else {}
    return "{" + ", ".join(f"{key}: {value}" for key, value in (told | more).items()) + "}"


def off(tmp_path: Path, topology: str, steps: list[str]) -> dict[str, float]:
    """By which share each step takes longer than its closed form over this topology says."""
    experiment = loads(f"name: x\nfabric: {{topology: {topology}}}\nworkload:\n" + "\n".join(f"  - {s}" for s in steps))
    chooser = Chooser(experiment, experiment.build_fabric())
    rows: list[dict[str, Any]] = measured(tmp_path, topology, steps)
    found = {}
    for text, step, row in zip(steps, experiment.workload, rows, strict=True):
        assert isinstance(step, CollectiveStep)
        (candidate,) = chooser.candidates(step)
        found[text] = row["time_ns"] / chooser.expected_ns(candidate, step, row["size_bytes"]) - 1
    return found


@pytest.mark.parametrize("ranks", [2, 7, 8])
@pytest.mark.parametrize("name", ["all_reduce", "all_to_all", "other"])
def test_every_algorithm_on_a_star(tmp_path: Path, name: str, ranks: int) -> None:
    groups = {"all_reduce": ("all_reduce", "reduce", "reduce_scatter"), "all_to_all": ("all_to_all", "all_to_all_v")}
    named = [n for group in groups.values() for n in group]
    entries = [e for e in ANYWHERE if e.name in groups.get(name, ()) or (name == "other" and e.name not in named)]
    entries = [e for e in entries if e.max_ranks is None or ranks <= e.max_ranks]
    found = off(tmp_path, STAR, [written(e, list(range(ranks))) for e in entries])
    assert {step: share for step, share in found.items() if abs(share) > 0.02} == {}


def test_all_reduce_on_sixteen_ranks(tmp_path: Path) -> None:
    found = off(tmp_path, STAR, [written(e, None) for e in ANYWHERE if e.name == "all_reduce"])
    assert {step: share for step, share in found.items() if abs(share) > 0.02} == {}


def test_in_pieces(tmp_path: Path) -> None:
    """Where reductions overlap with what comes in."""
    steps = [written(e, list(range(8)), chunk="128KiB") for e in ANYWHERE if "chunk" in e.extra]
    found = off(tmp_path, STAR, steps)
    assert {step: share for step, share in found.items() if abs(share) > 0.02} == {}


def test_grids(tmp_path: Path) -> None:
    entry = COLLECTIVES["all_reduce", "torus"]
    steps = [written(entry, None), written(entry, None, chunk="128KiB"), written(entry, [0, 1, 2, 3])]
    found = off(
        tmp_path / "torus", "{torus: {dims: [4, 4]}}", [*steps, written(COLLECTIVES["all_gather", "ring"], None)]
    )
    entry = COLLECTIVES["all_reduce", "hierarchical"]
    steps = [
        written(entry, None),
        written(entry, None, chunk="128KiB"),
        written(COLLECTIVES["all_reduce", "ring"], None),
    ]
    found |= off(tmp_path / "rail", "{rail: {servers: 4, gpus: 2}}", steps)
    assert {step: share for step, share in found.items() if abs(share) > 0.02} == {}


def test_pipelining_hides_the_reductions(tmp_path: Path) -> None:
    ring = COLLECTIVES["all_reduce", "ring"]
    whole, piped = measured(
        tmp_path, STAR, [written(ring, list(range(8))), written(ring, list(range(8)), chunk="128KiB")]
    )
    reductions = 7 * (16 << 20) / 8 * 8e9 / 800e9
    latency = 14 * 3600  # of a hop: the next piece is on its way meanwhile
    assert whole["time_ns"] - piped["time_ns"] == pytest.approx(reductions + latency, rel=0.05)


def test_a_uniform_path_is_a_star(tmp_path: Path) -> None:
    """The registry's own question, which knows no fabric."""
    way = Way.uniform(1, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0)
    experiment = loads(f"name: x\nfabric: {{topology: {STAR}}}\nworkload: []")
    chooser = Chooser(experiment, experiment.build_fabric())
    for entry in ANYWHERE:
        if entry.max_ranks is None and entry.sized and "skew" not in entry.extra:
            step = CollectiveStep.model_validate(
                {"collective": entry.name, "algorithm": entry.algorithm, "sizes": ["1MiB"], "ranks": list(range(6))}
            )
            (candidate,) = chooser.candidates(step)
            alone = entry.closed_form_ns(6, 1 << 20, way, Costs(reduce_bps=800e9))
            assert chooser.expected_ns(candidate, step, 1 << 20) == pytest.approx(alone), entry.algorithm
