"""A GPU as numbers, and what its makers say of those that people have.

`flops` are dense, of the tensor cores, without sparsity.  A matrix multiplication gets `efficiency` of them; reads and
writes get all of `hbm`.  Of a GPU that was measured each kind of operation has a rate of its own, and a time before it
begins, so that small ones are less efficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MATRIX, ATTENTION, ATTENTION_BACKWARD, MEMORY = "matrix", "attention", "attention_backward", "memory"
KINDS = (MATRIX, ATTENTION, ATTENTION_BACKWARD, MEMORY)
"""Operations: those of FLOPs, and what is bound by memory."""


class Measured(NamedTuple):
    """An operation's time is `start_ns` + work / `rate`: FLOPs or bytes, per second."""

    rate: float
    start_ns: float

    def ns(self, work: float) -> float:
        return self.start_ns + 1e9 * work / self.rate if work else 0.0


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """`hbm` in bytes per second (None: memory is never in the way); `memory` in bytes (None: everything fits)."""

    flops: float
    efficiency: float = 1.0
    hbm: float | None = None
    memory: int | None = None
    measured: Mapping[str, Measured] = field(default_factory=dict)

    def time_ns(self, flops: float, nbytes: float, kind: str = MATRIX) -> float:
        """The roofline: whichever takes longer, the arithmetic or the memory (Williams et al. 2009)."""
        arithmetic = flops / (self.flops * self.efficiency)
        moving = nbytes / self.hbm if self.hbm else 0.0
        if not self.measured:
            return 1e9 * max(arithmetic, moving)
        its, memory = self.measured.get(kind), self.measured.get(MEMORY)
        return max(its.ns(flops) if its else 1e9 * arithmetic, memory.ns(nbytes) if memory else 1e9 * moving)


def _preset(half: float, tf32: float, hbm: float, memory_gb: int) -> dict[str, Gpu]:
    """`half`: FLOPS of both 16-bit types."""
    flops = {"bfloat16": half, "float16": half, "float32": tf32}
    return {dtype: Gpu(flops=n, hbm=hbm, memory=memory_gb * 10**9) for dtype, n in flops.items() if n}


PRESETS: dict[str, dict[str, Gpu]] = {
    "v100": {"float16": Gpu(flops=125e12, hbm=900e9, memory=32 * 10**9)},
    "a100": _preset(312e12, 156e12, 2039e9, 80),
    "h100": _preset(989.4e12, 494.7e12, 3350e9, 80),
    "h200": _preset(989.4e12, 494.7e12, 4800e9, 141),
    "h20": _preset(148e12, 74e12, 4000e9, 96),
    "l40s": _preset(362.05e12, 183e12, 864e9, 48),
    "b200": _preset(2250e12, 1125e12, 8000e9, 180),
    "mi250x": _preset(383e12, 0, 3200e9, 128),
    "mi300x": _preset(1307.4e12, 653.7e12, 5300e9, 192),
}
"""By the type of the elements (float32 stands for TF32).  NVIDIA's data sheets of V100 SXM2 32 GB, A100 SXM 80 GB, H100
SXM, H200 SXM, H20 96 GB, L40S, and HGX B200 (half of the figures with sparsity); AMD's of MI250X (both dies) and
MI300X.  A GB is 10^9 bytes, also where a data sheet means 2^30."""
