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
    from torch.nn.parallel import DistributedDataParallel

    def compiled(*args: Any, **kwargs: Any) -> Any:
        raise Refused(
            "torch.compile: fused operations cannot be charged one by one",
            "leave it out when RAILBED is set in the environment",
        )

    def hook(*args: Any, **kwargs: Any) -> Any:
        raise Refused(
            "a communication hook of DDP: what it computes goes on a stream that torch does not tell",
            "leave register_comm_hook out; for fewer bytes, keep the model itself in bfloat16",
        )

    torch.compile = compiled
    DistributedDataParallel.register_comm_hook = hook
