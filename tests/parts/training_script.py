"""A small transformer, trained by DDP, then FSDP2, then HSDP: an ordinary script, run on a fabric by tests."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, LENGTH = 3, 64, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, WIDTH), *[Block() for _ in range(2)], nn.Linear(WIDTH, 8))


def train(name: str, net: nn.Module) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(STEPS):
        batch = torch.randn(2, LENGTH, 8)
        optimizer.zero_grad()
        loss = F.mse_loss(net(batch), batch.flip(1))
        loss.backward()
        optimizer.step()
        print(name, step, repr(loss.item()))


def sharded(mesh: object = None) -> nn.Module:
    net = model()
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


if __name__ == "__main__":
    dist.init_process_group("nccl" if "RAILBED" in os.environ else "gloo")
    world = dist.get_world_size()
    if "ddp" in sys.argv:
        train("ddp", DistributedDataParallel(model(), bucket_cap_mb=0.1))
    if "fsdp" in sys.argv:
        train("fsdp", sharded(init_device_mesh("cpu", (world,))))
    if "hsdp" in sys.argv:
        train("hsdp", sharded(init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))))
    dist.destroy_process_group()
