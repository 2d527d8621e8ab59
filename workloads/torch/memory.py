"""What a script's rank holds in its GPU's memory: all storages that operations have made and that are still there.

Their sum is followed from operation to operation; its peak in each step is what has to fit.  After an optimizer's step
its parameters, their gradients and its state are counted by themselves: all of them are this rank's own shards.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch


class MemoryTracker:
    """Bytes that are there, the most that were in each part of the script, and what optimizers had of them.

    Part 0 is the set-up, which ends when the model is first called; each of the others ends with an optimizer's step.
    """

    def __init__(self) -> None:
        self.live = self.peak = 0
        self._done: list[dict[str, int]] = []  # parts
        self._storages: dict[int, tuple[int, Any]] = {}  # its address -> bytes, and what hears of its end
        self._parts: dict[int, dict[str, int]] = {}

    def track(self, tensors: Iterable[torch.Tensor]) -> None:
        """What an operation has returned: new storages, and those that are known already."""
        for tensor in tensors:
            if tensor.device.type != "meta":
                self.storage(tensor.untyped_storage())

    def storage(self, storage: torch.UntypedStorage) -> None:
        """It is there, and as large as it is now."""
        at = storage._cdata
        known = self._storages.get(at)
        finalizer = known[1] if known else weakref.ref(storage, lambda _: self._freed(at))
        nbytes = storage.nbytes()
        self._storages[at] = nbytes, finalizer
        self.live += nbytes - (known[0] if known else 0)
        self.peak = max(self.peak, self.live)

    def _freed(self, at: int) -> None:
        self.live -= self._storages.pop(at)[0]

    def resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP frees and takes what it has gathered that way."""
        if storage._cdata in self._storages:
            self.storage(storage)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has done a step."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state = [v for values in optimizer.state.values() for v in values.values() if isinstance(v, torch.Tensor)]
        self._parts[id(optimizer)] = {
            "parameters": _bytes(parameters),
            "gradients": _bytes(p.grad for p in parameters if p.grad is not None),
            "optimizer": _bytes(state),
        }

    def model_is_called(self) -> None:
        """For the first time: the set-up is over."""
        self._next()

    def step_ends(self) -> None:
        """What is made from now on belongs to the next step."""
        if not self._done:  # no model was called: there was no set-up
            self._done.append({"peak": 0})
        self._next()

    def step_goes_on(self) -> None:
        """A second optimizer follows the first at once: both are of one step."""
        if self._done:
            self.peak = max(self.peak, self._done.pop()["peak"])

    def _next(self) -> None:
        self._done.append(self._now())
        self.peak = self.live

    def _now(self) -> dict[str, int]:
        """What optimizers have is that of all their last steps; nothing before the first."""
        keys = ("parameters", "gradients", "optimizer") if self._parts else ()
        return {"peak": self.peak, **{key: sum(part[key] for part in self._parts.values()) for key in keys}}

    def recorded(self) -> list[dict[str, int]]:
        """Of each part, the last one too."""
        return [*self._done, self._now()]

    def install(self) -> None:
        """From now on it hears when a storage is resized."""
        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, nbytes: int) -> Any:
            done = resize(storage, nbytes)
            self.resized(storage)
            return done

        torch.UntypedStorage.resize_ = resized


def _bytes(tensors: Iterable[Any]) -> int:
    own = (getattr(t, "_local_tensor", t) for t in tensors)  # of a sharded one this rank's part
    return sum(t.numel() * t.element_size() for t in own)
