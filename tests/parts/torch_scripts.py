"""Runs a script of PyTorch without anything of ours, over Gloo: what its ranks print is what they must print here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Forked, because an import takes seconds.
PLAIN = """
import os, runpy, sys
import torch, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor
torch.set_num_threads(1)
world, folder, script = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.argv = sys.argv[3:]
children = []
for rank in range(world):
    if not (child := os.fork()):
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        os.dup2(os.open(f"{folder}/{rank}", os.O_WRONLY | os.O_CREAT), 1)
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""

Loss = tuple[str, int, float]


def over_gloo(script: Path, args: list[str], ranks: int, folder: Path) -> list[str]:
    """What each rank prints."""
    alone = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    plain = subprocess.run(
        [*alone, sys.executable, "-c", PLAIN, str(ranks), str(folder), str(script), *args],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert plain.returncode == 0, plain.stderr[-2000:]
    return [(folder / str(rank)).read_text() for rank in range(ranks)]


def losses(printed: str, names: tuple[str, ...]) -> list[Loss]:
    """Lines of a name, a number and a loss."""
    lines = [line.split() for line in printed.splitlines() if line.startswith(names)]
    return [(name, int(step), float(loss)) for name, step, loss in lines]
