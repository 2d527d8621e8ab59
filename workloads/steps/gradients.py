"""Gradients on their way to the other ranks with the same parameters: in buckets, while the backward pass goes on.

As DistributedDataParallel does it (Li et al. 2020): gradients stand in one row, in the order in which the backward pass
makes them, and the row is cut every `bucket_bytes`; a bucket sets off when all of it is there.  The first may be
a smaller one.  (PyTorch cuts between parameters alone.)  With ZeRO-1 and 2
a bucket is reduced and scattered, and after the optimizer's step the parameters are gathered by the same buckets.
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
    asked: list[str] = field(default_factory=list)
    waiting: int = 0

    def __post_init__(self) -> None:
        width = 4 if self.training.optimizer_in else self.training.model.width
        self._width = width
        most = max(self.training.bucket_bytes // width, 1)
        self._most = -(-most // self.copies) * self.copies if self.scattered else most
        first = self.training.first_bucket_bytes
        self._first = self._most if first is None else max(first // width, 1)

    @property
    def scattered(self) -> bool:
        return self.training.shard != "none"

    def add(self, elements: int) -> None:
        """So many gradients are there."""
        if self.copies == 1:
            return
        self.waiting += elements
        while self.waiting >= (most := self._most if self.asked else self._first):
            self._set_off(most)
            self.waiting -= most

    def flush(self) -> None:
        """The last bucket sets off with what it has."""
        if self.waiting:
            self._set_off(-(-self.waiting // self.copies) * self.copies if self.scattered else self.waiting)
            self.waiting = 0

    def gather(self, elements: int, after: tuple[str, ...]) -> list[str]:
        """All of so many parameters from their ranks, bucket by bucket."""
        if self.copies == 1:
            return []
        sizes = [self._most] * (elements // self._most)
        if rest := elements % self._most:
            sizes.append(-(-rest // self.copies) * self.copies)
        dtype, width = self.training.model.dtype, self.training.model.width
        return [
            self.program.collective(
                f"parameters.{self.group}{k}", PARAMETERS, "all_gather", self.group, n * width, dtype,
                stream=f"{self.group}_gather", after=after,
            )
            for k, n in enumerate(sizes)
        ]  # fmt: skip

    def _set_off(self, elements: int) -> None:
        collective, dtype = "all_reduce", self.training.model.dtype
        if self.training.optimizer_in:
            collective, dtype = "optimizer_step", "float32"
        elif self.scattered:
            collective = "reduce_scatter"
        name = f"gradients.{self.group}{len(self.asked)}"
        size = elements * self._width
        self.asked.append(self.program.collective(name, GRADIENTS, collective, self.group, size, dtype))
