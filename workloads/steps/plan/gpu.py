"""A GPU as numbers, and what its makers say of those that people have.

`flops` are dense, of the tensor cores, without sparsity.  A matrix multiplication gets `efficiency` of them; reads and
writes get all of `hbm`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """`hbm` in bytes per second (None: memory is never in the way); `memory` in bytes (None: everything fits)."""

    flops: float
    efficiency: float = 1.0
    hbm: float | None = None
    memory: int | None = None

    def time_ns(self, flops: float, nbytes: float) -> float:
        """The roofline: whichever takes longer, the arithmetic or the memory (Williams et al. 2009)."""
        arithmetic = flops / (self.flops * self.efficiency)
        return 1e9 * max(arithmetic, nbytes / self.hbm if self.hbm else 0.0)


_GB = 10**9

PRESETS: dict[str, dict[str, Gpu]] = {
    "v100": {"float16": Gpu(flops=125e12, hbm=900e9, memory=32 * _GB)},
    "a100": {d: Gpu(flops=312e12, hbm=2039e9, memory=80 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=156e12, hbm=2039e9, memory=80 * _GB)},
    "h100": {d: Gpu(flops=989.4e12, hbm=3350e9, memory=80 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=494.7e12, hbm=3350e9, memory=80 * _GB)},
    "h200": {d: Gpu(flops=989.4e12, hbm=4800e9, memory=141 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=494.7e12, hbm=4800e9, memory=141 * _GB)},
    "h20": {d: Gpu(flops=148e12, hbm=4000e9, memory=96 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=74e12, hbm=4000e9, memory=96 * _GB)},
    "l40s": {d: Gpu(flops=362.05e12, hbm=864e9, memory=48 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=183e12, hbm=864e9, memory=48 * _GB)},
    "b200": {d: Gpu(flops=2250e12, hbm=8000e9, memory=180 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=1125e12, hbm=8000e9, memory=180 * _GB)},
    "mi250x": {d: Gpu(flops=383e12, hbm=3200e9, memory=128 * _GB) for d in ("bfloat16", "float16")},
    "mi300x": {d: Gpu(flops=1307.4e12, hbm=5300e9, memory=192 * _GB) for d in ("bfloat16", "float16")}
    | {"float32": Gpu(flops=653.7e12, hbm=5300e9, memory=192 * _GB)},
}
"""By the type of the elements (float32 stands for TF32).  NVIDIA's data sheets of V100 SXM2 32 GB, A100 SXM 80 GB, H100
SXM, H200 SXM, H20 96 GB, L40S, and HGX B200 (half of the figures with sparsity); AMD's of MI250X (both dies) and
MI300X.  A GB is 10^9 bytes, also where a data sheet means 2^30."""
