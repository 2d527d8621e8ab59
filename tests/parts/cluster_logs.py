"""Logs in the form of those that clusters print, with times that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WORDS = {"all_reduce": ("sum", -1), "reduce_scatter": ("sum", -1), "all_gather": ("none", -1), "send_recv": ("sum", -1)}
BUSBW = {"all_reduce": lambda n: 2 * (n - 1) / n, "send_recv": lambda n: 1.0}


def table(
    collective: str, nodes: int, gpus: int, times_us: Mapping[int, float], *, header: bool = True, wrong: int = 0
) -> str:
    """As nccl-tests 2.17.8 prints it (src/util.cu): rows of `size: time`, in place half as much again."""
    n = nodes * gpus
    lines = []
    if header:
        program = collective.replace("send_recv", "sendrecv")
        lines += [
            "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902",
            f"# Collective test starting: {program}_perf",
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
            "validation: 1 graph: 0",
            "#",
            "# Using devices",
        ]
        lines += [
            f"#  Rank {r:2} Group  0 Pid {1000 + r:6} on  node-{r // gpus:03} device {r % gpus:2} [0000:1b:00] "
            "NVIDIA H100 80GB HBM3"
            for r in range(n)
        ]
        lines += [
            "#",
            "#                                                              out-of-place                  in-place",
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw"
            "   busbw  #wrong",
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)"
            "  (GB/s)",
        ]
    lines += [row(collective, n, size, time, wrong) for size, time in times_us.items()]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.0 ", "#"]
    return "\n".join(lines) + "\n"


def row(collective: str, n: int, size: int, time_us: float, wrong: int = 0) -> str:
    """A line; the second half took half as long again."""
    redop, root = WORDS[collective]
    return f"{size:12} {size // 4:13} {'float':>9} {redop:>7} {root:>7}" + "".join(
        half(collective, n, size, time, wrong) for time in (time_us, 1.5 * time_us)
    )


def half(collective: str, n: int, size: int, time_us: float, wrong: int = 0) -> str:
    algbw = size / time_us / 1e3
    factor = BUSBW.get(collective, lambda n: (n - 1) / n)(n)
    return f"  {_float(time_us, 7)}  {_float(algbw, 6)}  {_float(algbw * factor, 6)}  {wrong:6}"


def _float(value: float, width: int) -> str:
    """nccl-tests' getFloatStr: as many decimals as there is room for."""
    for decimals in (2, 1, 0):
        if len(text := f"{value:{width}.{decimals}f}") <= width:
            return text
    return f"{value:{width}.1e}"


def tagged(text: str, tags: Sequence[str]) -> str:
    """Each line by one process after the other, as `srun -l` would show several."""
    return "".join(f"{tags[i % len(tags)]}{line}\n" for i, line in enumerate(text.splitlines()))
