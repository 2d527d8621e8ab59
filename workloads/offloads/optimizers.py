"""Optimizers in float32, one rounding after each operation: as those of a NIC (fabricd/offload/ring/optimizer.c).

SGD with momentum is that of Sutskever et al. (ICML 2013) as PyTorch writes it; Adam is algorithm 1 of Kingma and Ba
(ICLR 2015).  Both work in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class Optimizer(Protocol):
    """What turns gradients into parameters.

    `number` is its name on the worker socket, `arrays` how many arrays a step reads or writes besides the gradients.
    """

    number: ClassVar[int]
    arrays: ClassVar[int]

    def update(self, parameters: F32, gradients: F32) -> None:
        """One step."""

    def step_args(self) -> tuple[int, ...]:
        """The next step's arguments for a NIC."""


def _pair(low: float, high: float) -> int:
    """Two float32 in a 64-bit argument, the first in its low half."""
    return int(unpack("<Q", pack("<ff", low, high))[0])


@dataclass
class Sgd:
    """v = momentum v + g;  p = p - rate v."""

    number: ClassVar[int] = 1
    arrays: ClassVar[int] = 2
    rate: float = 0.01
    momentum: float = 0.9
    velocity: F32 | None = field(default=None, repr=False)

    def update(self, parameters: F32, gradients: F32) -> None:
        if self.velocity is None:
            self.velocity = np.zeros_like(parameters)
        self.velocity[:] = np.float32(self.momentum) * self.velocity + gradients
        parameters -= np.float32(self.rate) * self.velocity

    def step_args(self) -> tuple[int, ...]:
        return (_pair(self.rate, self.momentum),)


@dataclass
class Adam:
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g;  p = p - rate (c1 m) / (sqrt(c2 v) + eps); c = 1 / (1 - b^t)."""

    number: ClassVar[int] = 2
    arrays: ClassVar[int] = 3
    rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    steps: int = 0
    moments: tuple[F32, F32] | None = field(default=None, repr=False)

    def _corrections(self) -> tuple[float, float]:
        return 1 / (1 - self.beta1**self.steps), 1 / (1 - self.beta2**self.steps)

    def update(self, parameters: F32, gradients: F32) -> None:
        f = np.float32
        if self.moments is None:
            self.moments = np.zeros_like(parameters), np.zeros_like(parameters)
        self.steps += 1
        c1, c2 = self._corrections()
        m, v = self.moments
        m[:] = f(self.beta1) * m + f(1 - self.beta1) * gradients
        v[:] = f(self.beta2) * v + (f(1 - self.beta2) * gradients) * gradients
        parameters -= (f(self.rate) * (f(c1) * m)) / (np.sqrt(f(c2) * v) + f(self.eps))

    def step_args(self) -> tuple[int, ...]:
        self.steps += 1
        return (
            _pair(self.rate, self.eps),
            _pair(self.beta1, 1 - self.beta1),
            _pair(self.beta2, 1 - self.beta2),
            _pair(*self._corrections()),
        )


OPTIMIZERS: Mapping[str, type[Any]] = {"sgd": Sgd, "adam": Adam}
