"""What training steps need of their GPUs' memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from testbed.checklist.finding import Case, Found, check, size
from workloads.steps.memory import Memory, memory
from workloads.steps.plan.training import Training

NEARLY = 0.9
"""Of the memory: what is above it is left to the CUDA context, NCCL's buffers, and holes between tensors."""


def figures(case: Case) -> Iterator[str]:
    """Of each training step, what its fullest rank holds."""
    for number, t, its in _steps(case):
        of = f" of {size(t.gpu.memory)}" if t.gpu.memory else "; the GPU's memory is not stated"
        parts = ", ".join(f"{f.name} {size(getattr(its, f.name))}" for f in fields(its))
        yield f"workload[{number}]: a rank holds {size(its.all)}{of} ({parts})"


@check("GPU memory", "training steps leave a tenth of the GPUs' memory free", figures)
def gpu_memory(case: Case) -> Found:
    for number, t, its in _steps(case):
        if t.gpu.memory is not None and its.all > NEARLY * t.gpu.memory:
            what = (
                f"a rank holds {size(its.all)} of the GPU's {size(t.gpu.memory)}, without what CUDA and NCCL need, and "
                "what is lost between tensors"
            )
            hint = "shard or recompute more, or a smaller micro-batch"
            yield what, ("workload", number, "train", "gpu"), hint


def _steps(case: Case) -> Iterator[tuple[int, Training, Memory]]:
    """Of the whole model, also where fewer layers are run."""
    for number, step in enumerate(case.experiment.workload):
        if (t := step.training()) is not None:
            needed = [memory(t, stage) for stage in range(t.parallel.pipeline)]
            yield number, t, max(needed, key=lambda its: its.all)
