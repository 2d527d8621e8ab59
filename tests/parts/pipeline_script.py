"""Pipelines as PyTorch's tutorials write them, and messages by hand: ordinary scripts, run on a fabric by tests.

`pipeline_script.py gpipe|1f1b|interleaved|ddp|ring ...`, with `--steps N`.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipeline,
)
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH, MICRO = 64, 8, 32, 4
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B, "ddp": Schedule1F1B}
STEPS = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 3


def layers(first: int, last: int) -> nn.Sequential:
    made: list[nn.Module] = []
    for k in range(first, last):
        torch.manual_seed(k)
        made += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*made)


def traced(rank: int, stages: int) -> None:
    """The tutorial's second way: torch splits the model.  There is no optimizer."""
    model = layers(0, LAYERS)
    split = {str(2 * LAYERS * k // stages): SplitPoint.BEGINNING for k in range(1, stages)}
    pipe = pipeline(module=model, mb_args=(torch.zeros(BATCH // MICRO, WIDTH),), split_spec=split)
    schedule = ScheduleGPipe(pipe.build_stage(rank, torch.device("cpu")), n_microbatches=MICRO, loss_fn=nn.MSELoss())
    train("traced", schedule, [], rank == 0, rank == stages - 1, 1)


def staged(name: str) -> None:
    world, device = dist.get_world_size(), torch.device("cpu")
    copies = 2 if name == "ddp" else 1
    mesh = init_device_mesh("cpu", (copies, world // copies), mesh_dim_names=("dp", "pp"))
    group = mesh.get_group("pp")
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    stages = ranks * (2 if name == "interleaved" else 1)
    mine = list(range(rank, stages, ranks))
    parts: list[nn.Module] = [layers(k * LAYERS // stages, (k + 1) * LAYERS // stages) for k in mine]
    told = {}
    if name == "ddp":  # torch's own finding out about shapes does not go with DDP
        parts = [DistributedDataParallel(part, process_group=mesh.get_group("dp")) for part in parts]
        told = {key: torch.zeros(BATCH // MICRO, WIDTH, requires_grad=True) for key in ("input_args", "output_args")}
    made = [PipelineStage(part, k, stages, device, group=group, **told) for part, k in zip(parts, mine, strict=True)]
    schedule = SCHEDULES[name](made if name == "interleaved" else made[0], n_microbatches=MICRO, loss_fn=nn.MSELoss())
    optimizers = [torch.optim.AdamW(part.parameters(), lr=1e-3) for part in parts]
    torch.manual_seed(mesh.get_local_rank("dp"))
    train(name, schedule, optimizers, 0 in mine, stages - 1 in mine, STEPS)


def train(name: str, schedule, optimizers: list, first: bool, last: bool, steps: int) -> None:
    for step in range(steps):
        x, y, losses = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH), []
        schedule.step(*([x] if first else []), **({"target": y, "losses": losses} if last else {}))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for k, loss in enumerate(losses):
            print(f"{name}.{k}", step, repr(loss.item()))


def ring(rank: int, world: int) -> None:
    """Ten lines: blocking, immediate and batched messages, around a model that the first rank calls first."""
    net, x = layers(0, 1), torch.ones(8, WIDTH)
    if rank:
        dist.recv(x, rank - 1)
    y = net(x)
    dist.send(y.detach(), (rank + 1) % world)
    if not rank:
        dist.recv(x, world - 1)
    got, sent = torch.empty(WIDTH), x.detach().sum(0)
    for work in (dist.isend(sent, (rank + 1) % world), dist.irecv(got, (rank - 1) % world)):
        work.wait()
    operations = [dist.P2POp(dist.isend, got, (rank - 1) % world), dist.P2POp(dist.irecv, sent, (rank + 1) % world)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    print("ring", rank, repr(float(sent.sum())))


if __name__ == "__main__":
    dist.init_process_group()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in SCHEDULES:
        if name in sys.argv:
            staged(name)
    if "traced" in sys.argv:
        traced(rank, world)
    if "ring" in sys.argv:
        ring(rank, world)
    dist.destroy_process_group()
