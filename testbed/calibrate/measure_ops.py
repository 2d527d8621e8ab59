"""Measures the operations of training steps on the GPU that is here (or the CPU), for `testbed calibrate --ops FILE`.

    python measure_ops.py --out ops.json [--quick] [--dtype bfloat16] [--seconds 0.2]

It needs PyTorch and nothing of Railbed: this file can be copied to a machine that has a GPU. Each operation is done
until it has taken so many seconds, 5 times at least, by the GPU's own clock; the times of single ones are written.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

SIZES = (256, 512, 1024, 2048, 4096, 8192)
WIDTHS = ((1024, 4096, 4096), (4096, 4096, 11008), (8192, 8192, 28672))
ATTENTION = ((1, 8, 512, 64), (1, 16, 1024, 128), (1, 32, 2048, 128), (2, 32, 4096, 128), (1, 64, 8192, 128))
ELEMENTS = (1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 28)
NORMS = ((128, 1024), (2048, 4096), (8192, 8192))
LEAST, MOST = 5, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--dtype", action="append", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--seconds", type=float, default=0.2, help="of each operation (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes alone: to try it on a CPU")
    options = parser.parse_args()
    document = measured(options.dtype or ["bfloat16"], options.seconds, options.quick)
    with open(options.out, "w") as file:
        json.dump(document, file, indent=1)
    print(f"{len(document['ops'])} operations on {document['gpu']}: {options.out}")


def measured(dtypes: list[str], seconds: float, quick: bool) -> dict[str, Any]:
    """The file's content."""
    import torch

    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    name = torch.cuda.get_device_name() if cuda else "CPU"
    ops = []
    with torch.no_grad():
        for dtype in dtypes:
            for kind, shape in _asked(quick):
                try:
                    do = _operation(torch, kind, shape, getattr(torch, dtype), device)
                    times = _times(torch, do, seconds, cuda)
                except torch.OutOfMemoryError:
                    continue
                ops.append({"name": kind, "dtype": dtype, "shape": list(shape), "time_ns": times})
    return {
        "gpu": name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "date": time.strftime("%Y-%m-%d"),
        "ops": ops,
    }


def _asked(quick: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    for n in SIZES[:3] if quick else SIZES:
        yield "matrix", (n, n, n)
        yield "matrix", (n, n, 4 * n)
    for shape in () if quick else WIDTHS:
        yield "matrix", shape
    for many in ATTENTION[:1] if quick else ATTENTION:
        shapes = [many] if not quick else [(1, 2, seq, 64) for seq in (64, 128, 256, 512)]
        for one in shapes:
            yield "attention", one
            yield "attention_backward", one
    for elements in ELEMENTS[:3] if quick else ELEMENTS:
        yield "addition", (elements,)
    for elements in ELEMENTS[:2] if quick else ELEMENTS[:4]:
        yield "adam", (elements,)
    for two in NORMS[:1] if quick else NORMS:
        yield "layer_norm", two


def _operation(torch: Any, kind: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Callable[[], Any]:
    """What is done once, its operands made before."""

    def made(*sizes: int) -> Any:
        return torch.randn(sizes, device=device, dtype=dtype)

    if kind == "matrix":
        m, k, n = shape
        a, b = made(m, k), made(k, n)
        return lambda: a @ b
    if kind == "attention":
        q, k, v = (made(*shape) for _ in range(3))
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
    if kind == "attention_backward":
        with torch.enable_grad():
            q, k, v = (made(*shape).requires_grad_() for _ in range(3))
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        gradient = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
    if kind == "layer_norm":
        x = made(*shape)
        return lambda: torch.nn.functional.layer_norm(x, shape[1:])
    if kind == "addition":
        a, b = made(*shape), made(*shape)
        return lambda: a + b
    parameter = torch.nn.Parameter(torch.randn(shape, device=device, dtype=torch.float32))
    parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW([parameter], fused=device.type == "cuda")
    return lambda: optimizer.step()


def _times(torch: Any, do: Callable[[], Any], seconds: float, cuda: bool) -> list[int]:
    """Of single ones, in ns; the first are not counted."""
    for _ in range(2):
        do()
    if cuda:
        torch.cuda.synchronize()
    times: list[int] = []
    ends = time.monotonic() + seconds
    while len(times) < LEAST or (time.monotonic() < ends and len(times) < MOST):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            do()
            end.record()
            end.synchronize()
            times.append(max(1, round(begin.elapsed_time(end) * 1e6)))
        else:
            began = time.perf_counter_ns()
            do()
            times.append(max(1, time.perf_counter_ns() - began))
    return times


if __name__ == "__main__":
    main()
