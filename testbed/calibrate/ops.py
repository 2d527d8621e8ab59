"""Measured operations of a GPU, fitted to a rate and a time before it begins, kind by kind.

FLOPs and bytes follow from the name and the shape of an operation, as training steps count them
(workloads/steps/roofline.py). What is bound by memory is fitted first; a multiplication that memory holds up says
nothing of the arithmetic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import log, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.base.errors import InputError
from testbed.base.units import format_bandwidth, format_flops, format_time
from testbed.calibrate.fit import STEP, Problem, fit
from testbed.cluster.gpu import GpuProfile
from testbed.logs.read import raw
from workloads.base.vocabulary import DTYPES
from workloads.steps.plan.gpu import ATTENTION, ATTENTION_BACKWARD, MATRIX, MEMORY, Measured

FEWEST = 4
"""Operations of a kind."""
NOISE = 0.05
WIDE = 1.5
"""Of the priors' logarithms: they only keep what is not told where it may be."""
HELD_UP = 0.8
"""Of its time, that memory takes: then it is no measure of the arithmetic."""
MOST_OPS = 100_000

Array = NDArray[Any]


class Work(NamedTuple):
    kind: str
    flops: float
    nbytes: float


_WORK: Mapping[str, tuple[int, Callable[[Sequence[int], int], Work]]] = {
    "matrix": (3, lambda s, w: Work(MATRIX, 2 * prod(s), w * (s[0] * s[1] + s[1] * s[2] + s[0] * s[2]))),
    "attention": (4, lambda s, w: Work(ATTENTION, 4 * prod(s) * s[2], 4 * w * prod(s))),
    "attention_backward": (4, lambda s, w: Work(ATTENTION_BACKWARD, 8 * prod(s) * s[2], 8 * w * prod(s))),
    "layer_norm": (2, lambda s, w: Work(MEMORY, 0, 2 * w * prod(s))),
    "addition": (1, lambda s, w: Work(MEMORY, 0, 3 * w * prod(s))),
    "adam": (1, lambda s, w: Work(MEMORY, 0, 28 * prod(s))),
}
"""By name: entries of a shape ([m, k, n], [batch, heads, seq, head], [tokens, hidden], [elements]); what is done."""


@dataclass(frozen=True)
class Op:
    """`number` of an operation in its file."""

    number: int
    name: str
    dtype: str
    work: Work
    time_ns: float


def read(path: str) -> tuple[dict[str, Any], list[Op], str, list[str]]:
    """What the file says of itself, its operations, its hash, and notes.  Raises InputError."""
    content = raw(path)
    try:
        document = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"no JSON: {error}", path, _HINT) from None
    if not isinstance(document, dict) or not isinstance(document.get("ops"), list) or not document["ops"]:
        raise InputError("it has no `ops`", path, _HINT)
    if len(document["ops"]) > MOST_OPS:
        raise InputError(f"more than {MOST_OPS:,} operations", path)
    ops, notes = [], []
    for number, entry in enumerate(document["ops"]):
        try:
            ops.append(_op(number, entry))
        except ValueError as error:
            notes.append(f"{path}: ops[{number}]: {error}")
    return document, ops, sha256(content).hexdigest(), notes


_HINT = "of `python -m testbed.calibrate.measure_ops --out FILE`"


def _op(number: int, entry: Any) -> Op:
    """Raises ValueError."""
    if not isinstance(entry, dict) or entry.get("name") not in _WORK:
        raise ValueError(f"an operation is one of {', '.join(_WORK)}")
    entries, work = _WORK[entry["name"]]
    shape, dtype, times = entry.get("shape"), entry.get("dtype"), entry.get("time_ns")
    if dtype not in DTYPES:
        raise ValueError(f"unknown type {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) != entries or not all(_count(n) for n in shape):
        raise ValueError(f"the shape of {entry['name']} has {entries} whole numbers")
    values: list[Any] = times if isinstance(times, list) else [times]
    if not values or not all(isinstance(t, int | float) and 0 < t < 1e15 for t in values):
        raise ValueError("no time in ns")
    return Op(number, entry["name"], dtype, work(shape, DTYPES[dtype]), float(np.median(values)))


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40


class _Straight:
    """log(start + work / rate), by the logarithms of both."""

    def __init__(self, work: Array) -> None:
        self._work = work

    def at(self, x: Array, steps: Array | float = STEP) -> tuple[Array, Array]:
        def f(start: float, rate: float) -> Array:
            return np.asarray(np.log(np.exp(start) + 1e9 * self._work / np.exp(rate)))

        step = np.broadcast_to(steps, 2)
        here = f(x[0], x[1])
        ends = f(x[0] + step[0], x[1]), f(x[0], x[1] + step[1])
        return here, np.column_stack([(end - here) / one for end, one in zip(ends, step, strict=True)])


@dataclass(frozen=True)
class Kind:
    """A fit: of the rate its logarithm's standard deviation; `error`: of the rows in the middle."""

    measured: Measured
    sd: float
    rows: int
    error: float


def fitted(ops: Sequence[Op]) -> dict[str, Kind]:
    """By `kind.dtype`, and `memory`; kinds of which there is too little are left out."""
    found = {}
    moving = [op for op in ops if op.work.kind == MEMORY]
    if len(moving) >= FEWEST:
        found[MEMORY] = _kind([op.work.nbytes for op in moving], [op.time_ns for op in moving])
    groups: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.work.kind != MEMORY and not _held_up(op, found.get(MEMORY)):
            groups[f"{op.work.kind}.{op.dtype}"].append(op)
    for name, its in sorted(groups.items()):
        if len(its) >= FEWEST:
            found[name] = _kind([op.work.flops for op in its], [op.time_ns for op in its])
    return found


def _held_up(op: Op, memory: Kind | None) -> bool:
    return memory is not None and memory.measured.ns(op.work.nbytes) > HELD_UP * op.time_ns


def _kind(work: Sequence[float], times: Sequence[float]) -> Kind:
    done, y = np.array(work), np.log(times)
    fastest = float(np.max(done / np.array(times) * 1e9))
    prior = np.array([log(min(times) / 2), log(fastest)])
    result = fit(Problem(_Straight(done), y, np.full(len(y), NOISE), prior, np.full(2, WIDE)))
    scatter = max(float(np.sqrt(np.mean(result.weights * result.residuals**2))), NOISE / 5)
    start, rate = np.exp(result.x)
    sd = float(result.sd[1]) * scatter / NOISE
    return Kind(Measured(float(rate), float(start)), sd, len(y), float(np.median(np.abs(np.expm1(result.residuals)))))


def gpu_profile(path: str, about: str = "") -> tuple[GpuProfile, list[str]]:
    """Of a file of measured operations, and notes.  Raises InputError."""
    document, ops, digest, notes = read(path)
    kinds = fitted(ops)
    if not kinds:
        raise InputError(f"of no kind there are {FEWEST} operations", path, _HINT)
    said = ", ".join(f"{key} {document[key]}" for key in ("torch", "cuda", "date") if document.get(key))
    data = {
        "gpu": str(document.get("gpu", "unknown"))[:200],
        "about": (about or said)[:2000],
        "source": [{"file": path.rsplit("/", 1)[-1][-255:], "sha256": digest, "rows": len(ops)}],
        "kinds": {name: _written(name, its) for name, its in kinds.items()},
    }
    return GpuProfile.model_validate(data), notes


def _written(name: str, its: Kind) -> dict[str, Any]:
    unit = format_bandwidth if name == MEMORY else format_flops
    low, high = its.measured.rate * np.exp(-1.6449 * its.sd), its.measured.rate * np.exp(1.6449 * its.sd)
    return {
        "rate": unit(_digits(its.measured.rate)),
        "start": format_time(float(f"{its.measured.start_ns:.4g}")),
        "interval": [unit(_digits(low)), unit(_digits(high))],
        "rows": its.rows,
        "error": round(its.error, 4),
    }


def _digits(value: float) -> int:
    return int(float(f"{value:.4g}"))
