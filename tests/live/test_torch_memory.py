"""What scripts of PyTorch hold, what their scatters touch, and their communication hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.base.errors import InputError
from testbed.experiment import load
from testbed.machine.scratch import scratch
from testbed.plan.steps.plan import plan
from workloads.torch import launch

pytestmark = pytest.mark.skipif(
    not launch.available(),
    reason="PyTorch is not installed here: ./setup.sh torch installs torch==2.13.0+cpu if pip can find it",
)

SCRIPT = """import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
dist.init_process_group("nccl")
big = torch.ones(1 << 20)          # 4 MiB
more = big + 1                     # 8 MiB
del big
last = torch.cat([more, more])     # 12 MiB: the most
del more, last
table, rows = torch.zeros(32000, 512), torch.ones(16, 512)
where = torch.arange(16)
del rows
rows = torch.ones(16, 512)
table.index_add_(0, where, rows)
table[where] = rows
table.index_put_((where,), rows, accumulate=True)
table.scatter_add_(0, where[:, None], rows[:, :1])
del table, rows
net = nn.Sequential(nn.Linear(256, 512, bias=False), nn.ReLU(), nn.Linear(512, 256, bias=False))
ddp = DistributedDataParallel(net, bucket_cap_mb=0.4)
if HOOK:
    ddp.register_comm_hook(None, HOOK)
torch.manual_seed(dist.get_rank())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    loss = ddp(torch.randn(4, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", repr(loss.item()))
"""


def recorded(folder: Path, hook: str, ranks: int) -> launch.Recorded:
    script = folder / "s.py"
    script.write_text(SCRIPT.replace("HOOK", hook))
    with scratch("test") as made:
        return launch.record(launch.Script(str(script), (), str(folder), ("h0",) * ranks, 7), made)


def test_ranks_hold_and_touch_what_they_should(tmp_path: Path) -> None:
    """A table of 64 MB is 2 tables at no time; a scatter costs its 16 rows, read, written, and what goes there."""
    done = recorded(tmp_path, "None", 4)
    parameters = 2 * 256 * 512 * 4
    table = 32000 * 512 * 4
    for rank in done.ranks:
        setup, *steps, end = rank["memory"]
        assert setup == {"peak": setup["peak"]} and table + 16 * 512 * 4 <= setup["peak"] < table + 200_000
        assert len(steps) == 2 and end["peak"] <= min(step["peak"] for step in steps)
        for step in steps:  # the table is gone by then: what a step has is parameters, gradients, state, and DDP's copy
            assert (step["parameters"], step["gradients"], step["optimizer"]) == (parameters,) * 3
            assert 3 * parameters < step["peak"] < 6 * parameters
        work = {tuple(its[:2]) for row in rank["rows"] if row["do"] == "compute" for its in row["work"]}
        rows, index = 16 * 512 * 4, 16 * 8
        assert {(0, 3 * rows + index), (0, 2 * rows + index)} <= work
        assert (0, 2 * 16 * 4 + 16 * 4 + index) in work, "scatter_add_: an element for each index"
        assert not any(table < nbytes < 1.1 * table for _, nbytes in work)
    sums = [row["size_bytes"] for row in done.ranks[0]["rows"] if row.get("kind") == "gradients"]
    assert sum(sums) == 2 * parameters


def test_memory_that_a_gpu_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "x = torch.ones(1 << 20)\n"
        "y = x + x\n"
        "del x\n"
        "dist.all_reduce(y)\n"
    )
    text = "name: t\nfabric:\n  topology: {star: {hosts: 2}}\nworkload:\n"
    (tmp_path / "e.yaml").write_text(f"{text}- {{torch: s.py, gpu: {{flops: 1T, memory: 8MB}}}}\n")
    with pytest.raises(InputError) as raised:
        plan(load(tmp_path / "e.yaml"))
    assert "its rank 0 has 8MiB at a time, 388608B more than the GPU's 8" in raised.value.what
    assert raised.value.where.endswith("e.yaml:5: workload[0].torch.gpu") or ":5: " in raised.value.where
    (tmp_path / "e.yaml").write_text(f"{text}- {{torch: s.py, gpu: {{flops: 1T, memory: 9MB}}}}\n")
    (step,) = plan(load(tmp_path / "e.yaml")).steps
    assert step.about_step["memory"] == {
        "of": "script", "rank": 0, "peak": 2 << 22, "each": [{"ranks": [0, 1], "peak": 2 << 22}],
    }  # fmt: skip


HOOKED = """
local = nn.Sequential(nn.Linear(256, 512, bias=False), nn.ReLU(), nn.Linear(512, 256, bias=False))
local.load_state_dict(net.state_dict())
data = torch.randn(4, 256)
for model in (local, ddp):
    model.zero_grad()
    model(data).square().mean().backward()
for name, parameter in local.named_parameters():
    shared = parameter.grad.to(TYPE).div_(dist.get_world_size())
    summed = [torch.empty_like(shared) for _ in range(dist.get_world_size())]
    dist.all_gather(summed, shared)
    print("same", torch.equal(sum(summed[1:], summed[0]).float(), net.get_parameter(name).grad))
"""


def test_hooks_that_compress_send_half_of_the_bytes_beside_backward(tmp_path: Path) -> None:
    """Two ranks: a sum of two numbers is rounded once, however it is added up."""
    (tmp_path / "h.py").write_text(
        SCRIPT.replace("HOOK", "default_hooks.fp16_compress_hook") + HOOKED.replace("TYPE", "torch.float16")
    )
    with scratch("test") as made:
        done = launch.record(launch.Script(str(tmp_path / "h.py"), (), str(tmp_path), ("h0", "h1"), 7), made)
    assert [text.split()[1] for text in done.printed[0].splitlines() if text.startswith("same")] == ["True"] * 2
    rows = done.ranks[0]["rows"]
    sums = [(n, row) for n, row in enumerate(rows) if row.get("kind") == "gradients"]
    assert {row["dtype"] for _, row in sums} == {"float16"}
    bucket = 256 * 512 * 2  # a half of float32; the first step has one bucket, as always in DDP
    assert [row["size_bytes"] for _, row in sums] == [2 * bucket, *(bucket for _ in range(4))]
    (first, _), (second, _) = sums[1:3]
    back = [n for n, row in enumerate(rows) if "pool" in row["stream"] and {first, second} & set(row.get("after", ()))]
    assert len(back) == 2, "each bucket is widened when it is there"
    waited = {n for row in rows[second:] if row["stream"] == "main" for n in row.get("after", ())}
    assert set(back) <= waited, "and the optimizer waits for both"
    between = [row for row in rows[first:second] if row["do"] == "compute" and row["stream"] == "main"]
    assert between and not any(first in row["after"] for row in between), "the first bucket is under way meanwhile"
