"""Gradients on their way to the other ranks with the same parameters: in buckets, while the backward pass goes on.

As DistributedDataParallel does it (Li et al. 2020): gradients stand in one row, in the order in which the backward pass
makes them, and the row is cut every `bucket_bytes`; a full bucket is sent at once.  The first may be smaller.  (PyTorch
cuts between parameters alone.)  With ZeRO-1 and 2 a bucket is reduced and scattered, and after the optimizer's step the
parameters are gathered by the same buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workloads.steps.plan.training import Training
from workloads.steps.program import Program

GRADIENTS, PARAMETERS = "gradients", "parameters"


@dataclass
class Buckets:
    """Of one rank and group; `copies` is how many ranks that group has."""

    training: Training
    program: Program
    group: str
    copies: int
    sent: list[str] = field(default_factory=list)
    waiting: int = 0

    def __post_init__(self) -> None:
        self._width = width = 4 if self.training.optimizer_in else self.training.model.width
        self._size = self._padded(max(self.training.bucket_bytes // width, 1))
        first = self.training.first_bucket_bytes
        self._first = self._size if first is None else max(first // width, 1)

    def _padded(self, elements: int) -> int:
        """A bucket that is scattered has as many elements for each rank."""
        return -(-elements // self.copies) * self.copies if self.scattered else elements

    @property
    def scattered(self) -> bool:
        return self.training.shard != "none"

    def add(self, elements: int) -> None:
        """So many gradients are there."""
        if self.copies == 1:
            return
        self.waiting += elements
        while self.waiting >= (size := self._size if self.sent else self._first):
            self._send(size)
            self.waiting -= size

    def flush(self) -> None:
        """Sends the last bucket as it is."""
        if self.waiting:
            self._send(self._padded(self.waiting))
            self.waiting = 0

    def gather(self, elements: int, after: tuple[str, ...]) -> list[str]:
        """All of so many parameters from their ranks, bucket by bucket."""
        if self.copies == 1:
            return []
        sizes = [self._size] * (elements // self._size)
        if rest := elements % self._size:
            sizes.append(-(-rest // self.copies) * self.copies)
        dtype, width = self.training.model.dtype, self.training.model.width
        return [
            self.program.collective(
                f"parameters.{self.group}{k}", PARAMETERS, "all_gather", self.group, n * width, dtype,
                stream=f"{self.group}_gather", after=after,
            )
            for k, n in enumerate(sizes)
        ]  # fmt: skip

    def _send(self, elements: int) -> None:
        collective, dtype = "all_reduce", self.training.model.dtype
        if self.training.optimizer_in:
            collective, dtype = "optimizer_step", "float32"
        elif self.scattered:
            collective = "reduce_scatter"
        name = f"gradients.{self.group}{len(self.sent)}"
        size = elements * self._width
        self.sent.append(self.program.collective(name, GRADIENTS, collective, self.group, size, dtype))
