"""Pipelines of PyTorch on a fabric, as its tutorials write them: ranks first call their models at different places.

Losses are those over Gloo, and steps take what the longest path through their tasks takes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import results
from testbed.experiment import load
from testbed.machine.scratch import scratch
from testbed.plan.choose import Chooser
from testbed.plan.expected import expected
from testbed.plan.steps import scripts as recorded_graphs
from testbed.plan.steps.plan import plan
from testbed.run.run import run
from tests.parts.torch_scripts import losses, over_gloo
from workloads.tasks.oracle import step_ns
from workloads.torch import launch

SCRIPT = Path(__file__).parents[1] / "parts" / "pipeline_script.py"
NAMES = ["gpipe", "1f1b", "interleaved", "ddp", "traced", "ring"]
RANKS = 4

pytestmark = pytest.mark.skipif(
    not launch.available(),
    reason="PyTorch is not installed here: ./setup.sh torch installs torch==2.13.0+cpu if pip can find it",
)


def test_pipelines_run_as_they_are(tmp_path: Path) -> None:
    """The fabric does what the script does: values to 1e-6 of Gloo's, and no step longer than its longest path."""
    (tmp_path / "e.yaml").write_text(
        f"name: t\nfabric:\n  topology: {{star: {{hosts: {RANKS}}}}}\nworkload:\n"
        f"- {{torch: {SCRIPT}, args: [{', '.join(NAMES)}], gpu: {{flops: 4T, hbm: 100GBps, efficiency: 1}}}}\n"
    )
    experiment = load(tmp_path / "e.yaml")
    run(experiment, tmp_path / "run")
    names = tuple(NAMES)
    plain = over_gloo(SCRIPT, NAMES, RANKS, tmp_path)
    for rank in range(RANKS):
        ours = losses((tmp_path / "run" / "logs" / f"script0.rank{rank}.log").read_text(), names)
        theirs = losses(plain[rank], names)
        assert [line[:2] for line in ours] == [line[:2] for line in theirs] and ours
        assert [line[2] for line in ours] == pytest.approx([line[2] for line in theirs], rel=1e-6)

    fabric = experiment.build_fabric()
    planned = plan(experiment).told()["steps"]
    _, found = recorded_graphs.script_of(experiment.workload[0], experiment, fabric)
    assert [(step.name, step.times) for step in found if step.training and step.times > 1] == [
        ("steps 2 to 3", 2), ("steps 5 to 6", 2), ("steps 8 to 9", 2)
    ]  # fmt: skip
    rows = results.load(tmp_path / "run").rows("timeline")
    for number, (step, told) in enumerate(zip(found, planned, strict=True)):
        for iteration in range(step.times):
            its = [row for row in rows if row["step"] == number and row["iteration"] == iteration]
            took = max(row["end_ns"] for row in its) - min(row["start_ns"] for row in its)
            alone = step_ns(expected(step.graph, told, Chooser(experiment)))
            assert 0.999 * alone <= took <= 1.01 * alone, (step.name, took, alone)


HELD = """
import os, runpy, sys
import torch
from torch.profiler import ProfilerActivity, profile
from torch._C._profiler import _EventType
from workloads.torch.group import RecordedGroup as Group

inner = Group._inner          # Gloo's own buffers are none of a GPU's, and its threads hold what they sent for a while
moves = "_allgather_base", "broadcast"
Group._inner = lambda self, name, *its: (lambda: None) if name in moves else inner(self, name, *its)
Group._reduced = Group._scattered = lambda *_: None

def flat(nodes):
    for one in nodes:
        yield one
        yield from flat(one.children)

script = sys.argv.pop(1)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as told:
    runpy.run_path(script, run_name="__main__")
held = [(e.start_time_ns, n, e.extra_fields.alloc_size) for n, e in enumerate(
    flat(told.profiler.kineto_results.experimental_event_tree())) if e.tag == _EventType.Allocation]
now = peak = 0
for _, _, size in sorted(held):
    now += size
    peak = max(peak, now)
print("allocated", peak)
"""


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_what_ranks_hold_does_not_grow_with_steps_and_is_what_torchs_allocator_says(tmp_path: Path, how: str) -> None:
    """Step for step the same; to the byte what torch's profiler says of its allocator in the same processes.

    With DDP that is at an operation that needs 32 KiB for itself.
    """
    study, steps = Path(__file__).parents[2] / "experiments" / "training" / "transformer.py", 6
    (tmp_path / "held.py").write_text(HELD)
    text = study.read_text().replace("= 256, 4, 6, 128, 4, 3", f"= 64, 4, 3, 32, 4, {steps}")
    assert f"4, 3, 32, 4, {steps}" in text
    (tmp_path / "train.py").write_text(text)
    script = launch.Script(str(tmp_path / "held.py"), ("train.py", how), str(tmp_path), ("h0", "h1"), 7)
    with scratch("test") as made:
        done = launch.record(script, made)
    for rank, printed in zip(done.ranks, done.printed, strict=True):
        setup, first, *others, end = (part["peak"] for part in rank["memory"])
        assert len(others) == steps - 1 and len(set(others)) == 1
        assert others[0] == max(setup, first, *others, end)
        assert 0 <= int(printed.split()[-1]) - others[0] <= (33_000 if how == "ddp" else 0)
