"""A sum over all ranks by Gloo; PyTorch reads torchrun's environment, which `testbed exec --all` gives it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.full((4096,), float(dist.get_rank() + 1))
dist.all_reduce(x)
print("sum", x[0].item(), x[-1].item())
dist.destroy_process_group()
