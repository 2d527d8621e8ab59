"""What a script may not do, because its time would not be what a GPU's is; each with what to do instead."""

from __future__ import annotations

from typing import Any


class Refused(RuntimeError):
    """`hint` says what to do instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what} (hint: {hint})")
        self.what, self.hint = what, hint


def install() -> None:
    """Puts a refusal in the place of each."""
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes

    def compiled(*args: Any, **kwargs: Any) -> Any:
        raise Refused(
            "torch.compile: fused operations cannot be charged one by one",
            "leave it out when RAILBED is set in the environment",
        )

    def split(*args: Any, **kwargs: Any) -> Any:
        raise Refused("torch.distributed.split_group: it splits a communicator of NCCL", "use new_group(ranks)")

    def spawned(fn: Any, args: Any = (), nprocs: int = 1, *more: Any, **kwargs: Any) -> None:
        raise Refused(
            f"torch.multiprocessing.spawn({getattr(fn, '__name__', fn)}, nprocs={nprocs}): ranks of the script's own",
            "its ranks are started here, as by torchrun: call the function with int(os.environ['RANK'])",
        )

    torch.compile, dist.split_group, processes.spawn = compiled, split, spawned
