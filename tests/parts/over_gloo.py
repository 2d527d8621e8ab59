"""`python -m tests.parts.over_gloo RANKS FOLDER SCRIPT ARGS..`: a script's ranks, without anything of ours, over Gloo.

What rank N prints is in FOLDER/N. They are forked, because an import of PyTorch takes seconds.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> int:
    import torch
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor

    torch.set_num_threads(1)
    world, folder, script = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.argv = sys.argv[3:]
    children = []
    for rank in range(world):
        if not (child := os.fork()):
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), **where}
            os.dup2(os.open(f"{folder}/{rank}", os.O_WRONLY | os.O_CREAT), 1)
            runpy.run_path(script, run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    return int(any(os.waitpid(child, 0)[1] for child in children))


if __name__ == "__main__":
    sys.exit(main())
