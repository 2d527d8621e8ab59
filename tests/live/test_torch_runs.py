"""Scripts of PyTorch on a fabric: DDP, FSDP2 and HSDP of a small transformer on four ranks, recorded once for all.

Losses are those of the same script over Gloo, and steps take what the longest path through their tasks takes.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import results
from testbed.experiment import Experiment, load
from testbed.machine.scratch import scratch
from testbed.plan.choose import Chooser
from testbed.plan.expected import expected
from testbed.plan.steps import scripts as recorded_graphs
from testbed.plan.steps.plan import plan
from testbed.run.run import run
from tests.parts.torch_scripts import losses, over_gloo
from workloads.tasks.oracle import step_ns
from workloads.torch import launch

SCRIPT = Path(__file__).parents[1] / "parts" / "training_script.py"
RANKS = 4

pytestmark = pytest.mark.skipif(
    not launch.available(),
    reason="PyTorch is not installed here: ./setup.sh torch installs torch==2.13.0+cpu if pip can find it",
)


@dataclass
class Done:
    experiment: Experiment
    folder: Path
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("torch")
    (folder / "e.yaml").write_text(
        f"name: t\nfabric:\n  topology: {{star: {{hosts: {RANKS}}}}}\nworkload:\n"
        f"- {{torch: {SCRIPT}, args: [ddp, fsdp, hsdp], gpu: {{flops: 4T, hbm: 100GBps, efficiency: 1}}}}\n"
    )
    experiment = load(folder / "e.yaml")
    run(experiment, folder / "run")
    return Done(experiment, folder / "run", results.load(folder / "run").rows("timeline"))


def test_losses_are_those_over_gloo(done: Done, tmp_path: Path) -> None:
    names = ("ddp ", "fsdp ", "hsdp ")
    ours = losses((done.folder / "logs" / "script0.rank0.log").read_text(), names)
    theirs = losses(over_gloo(SCRIPT, ["ddp", "fsdp", "hsdp"], RANKS, tmp_path)[0], names)
    assert [line[:2] for line in ours] == [(name, step) for name in ("ddp", "fsdp", "hsdp") for step in range(3)]
    assert [line[:2] for line in theirs] == [line[:2] for line in ours]
    assert [line[2] for line in ours] == pytest.approx([line[2] for line in theirs], rel=1e-6)


def test_steps_take_what_the_longest_path_takes(done: Done) -> None:
    """Where collectives of several groups share a link, they take longer; nothing is faster."""
    fabric = done.experiment.build_fabric()
    planned = plan(done.experiment).told()["steps"]
    _, found = recorded_graphs.script_of(done.experiment.workload[0], done.experiment, fabric)
    assert len(found) == len(planned) > 5
    for number, (step, told) in enumerate(zip(found, planned, strict=True)):
        rows = [row for row in done.rows if row["step"] == number]
        for iteration in range(step.times):
            its = [row for row in rows if row["iteration"] == iteration]
            took = max(row["end_ns"] for row in its) - min(row["start_ns"] for row in its)
            alone = step_ns(expected(step.graph, told, Chooser(done.experiment)))
            assert 0.999 * alone <= took <= 1.01 * alone, (step.name, took, alone)


def test_communication_is_hidden_behind_backward_and_behind_the_next_layers(done: Done) -> None:
    """DDP: a bucket is under way while backward computes.  FSDP2: a layer's parameters come while the one before it
    computes.  HSDP: gradients go among replicas, too."""
    told = json.loads((done.folder / "steps.json").read_text())["steps"]
    named = {step["name"].partition(", ")[2]: number for number, step in enumerate(told)}
    assert list(named)[0] == "setup" and {"step 3", "steps 5 to 6", "steps 8 to 9"} <= set(named)

    def overlap(name: str, of: str, computing: str) -> float:
        its = [r for r in done.rows if r["step"] == named[name] and r["rank"] == 0 and r["iteration"] == 0]
        busy = [(r["start_ns"], r["end_ns"]) for r in its if r["kind"] == computing and r["stream"] == "main"]
        moved = [(r["start_ns"], r["end_ns"]) for r in its if r["kind"] == of]
        return sum(max(0.0, min(b, d) - max(a, c)) for a, b in busy for c, d in moved)

    assert overlap("step 3", "gradients", "backward") > 10_000
    assert overlap("steps 5 to 6", "parameters", "forward") > 5_000
    assert overlap("steps 5 to 6", "gradients", "backward") > 5_000
    groups = {r["group"] for r in done.rows if r["step"] == named["steps 8 to 9"]} - {None}
    assert groups == {"shard", "replicate"}


def test_what_is_recorded_is_the_same_every_time_and_what_is_refused_says_what_to_do_instead(tmp_path: Path) -> None:
    script, left = tmp_path / "s.py", f"97.{os.getpid()}"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "x = torch.randn(1024, 1024)\n"
        "w = dist.all_reduce(x, async_op=True)\n"
        "y = torch.ones(1024, 1024) @ torch.ones(1024, 1024)\n"
        "w.wait()\n"
        "print(float((x + y).sum()))\n"
        f"__import__('subprocess').Popen(['sleep', '{left}'])\n"
        "torch.nn.functional.embedding(torch.arange(16), torch.ones(32000, 512))\n"
        "torch.ones(3, 7, 256) @ torch.ones(256, 96)\n"
        "torch.ones(100, 100) @ torch.ones(100)\n"
        "torch.zeros_like(torch.ones(3, 1001)).new_ones(3, 1001)\n"
        "torch.nn.LSTM(32, 64)(torch.ones(10, 4, 32))\n"
        "with torch.inference_mode():\n"
        "    torch.nn.functional.linear(torch.ones(8, 256), torch.ones(128, 256))\n"
        "    torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 2, 16, 32)] * 3)\n"
        "    torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True).eval()(torch.ones(2, 16, 64))\n"
        "r = dist.get_rank()\n"
        "gives, gets = [([1, 2], [1, 3]), ([3, 4], [2, 4])][r]\n"
        "into = torch.zeros(sum(gets), 256)\n"
        "dist.all_to_all_single(into, torch.full((sum(gives), 256), r + 1.0), gets, gives)\n"
        "assert into[:, 0].tolist() == [1.0] * gets[0] + [2.0] * gets[1]\n"
        "lists = [torch.zeros(n) for n in gets]\n"
        "dist.all_to_all(lists, [torch.full((n,), r + 1.0) for n in gives])\n"
        "assert [x.tolist() for x in lists] == [[1.0] * gets[0], [2.0] * gets[1]]\n"
        "dist.all_to_all_single(torch.zeros(8), torch.zeros(8), [4, 4], [4, 4])\n"
        "parts = torch.empty(2)\n"
        "dist.reduce_scatter(parts, [torch.full((2,), 10.0 * k + r) for k in range(2)])\n"
        "assert parts.tolist() == [20.0 * r + 1] * 2\n"
        "dist.isend(torch.full((4,), 1.0 + r), 1 - r)\n"  # nobody waits for it
        "ours = torch.zeros(4)\n"
        "batch = [dist.P2POp(dist.isend, x[0, :4], r), dist.P2POp(dist.irecv, ours, r)]\n"
        "for work in dist.batch_isend_irecv(batch):\n"
        "    work.wait()\n"
        "assert torch.equal(ours, x[0, :4])\n"
        "dist.recv(ours, 1 - r)\n"
        "assert ours.tolist() == [2.0 - r] * 4\n"
        "for refused in (lambda: torch.compile(torch.nn.Linear(2, 2)), lambda: dist.recv(x)):\n"
        "    try:\n"
        "        refused()\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
    )
    told = launch.Script(str(script), (), str(tmp_path), ("h0", "h1"), 7)
    with scratch("test") as here, scratch("test") as there:
        one, other = launch.record(told, here), launch.record(told, there)
    assert one == other and one.printed[0] == one.printed[1]
    _, compiled, received = one.printed[0].splitlines()
    assert compiled.startswith("torch.compile:") and "a receive from anybody" in received
    assert all("(hint: " in line for line in (compiled, received))
    reduced = [row for row in one.ranks[0]["rows"] if row["do"] == "collective"]
    assert [row["size_bytes"] for row in reduced] == [4 << 20, 32, 16]
    moved = [[(r["do"], r["size_bytes"]) for r in rank["rows"] if r["do"] in ("send", "recv")] for rank in one.ranks]
    given, taken = (2048, 8, 16), (3072, 12, 16)
    for its, gives, gets in zip(moved, (given, taken), (taken, given), strict=True):
        assert its == [
            one for pair in zip(gives, gets, strict=True) for one in zip(("send", "recv"), pair, strict=True)
        ]
    computed = [row for row in one.ranks[0]["rows"] if row["do"] == "compute"]
    work = [tuple(done[:2]) for row in computed for done in row["work"]]
    assert sorted(flops for flops, _ in work if flops) == sorted(
        [
            2 * 1024**3,
            2 * 21 * 256 * 96,
            2 * 100 * 100,
            2 * 40 * (4 * 64 * 32 + 4 * 64 * 64),  # four gates, of what comes in and what is remembered
            2 * 8 * 256 * 128,
            4 * 2 * 16 * 16 * 32,
            2 * 32 * (4 * 64 * 64 + 2 * 64 * 128) + 4 * 32 * 16 * 64,
        ]
    )
    assert (0, 16 * 8 + 2 * 16 * 512 * 4) in work  # a look-up reads what it finds
    assert (0, 2 * 21 * 96 * 4) not in work  # the product's other shape is no copy
    assert (0, 2 * 3 * 1001 * 4) not in work  # a tensor like another takes its shape, and reads nothing
    assert subprocess.run(["pgrep", "-f", f"^sleep {left}"], capture_output=True).returncode == 1
    assert [2 * 1024**3, 3 * (4 << 20), "float32", 1] in [done for row in computed for done in row["work"]]
