"""A small transformer, trained by DDP or by FSDP2: `transformer.py ddp`, `transformer.py fsdp`.

`torchrun --nproc-per-node 4 transformer.py ddp` runs it as it is, too.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS = 256, 4, 6, 128, 4, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def wrapped(how: str) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(*[Block() for _ in range(LAYERS)])
    if how == "ddp":
        return DistributedDataParallel(net, bucket_cap_mb=4)
    for block in net:
        fully_shard(block)
    return fully_shard(net)


if __name__ == "__main__":
    dist.init_process_group("nccl" if "RAILBED" in os.environ else "gloo")
    net = wrapped(sys.argv[1])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(STEPS):
        batch = torch.randn(BATCH, LENGTH, WIDTH)
        loss = F.mse_loss(net(batch), batch.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    dist.destroy_process_group()
