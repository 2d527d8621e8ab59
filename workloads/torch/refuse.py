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

    def compiled(*args: Any, **kwargs: Any) -> Any:
        raise Refused(
            "torch.compile: fused operations cannot be charged one by one",
            "leave it out when RAILBED is set in the environment",
        )

    torch.compile = compiled
