"""Fabrics by name for `testbed bench`: a kind of topology whose parameters follow from a number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Params = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """`params(n)`: parameters of the topology of this name for `n` ranks; None where no such fabric has `n` of them."""

    name: str
    summary: str
    params: Callable[[int], Params | None]


def _rail(n: int) -> Params:
    """Servers of 8, 4 or 2 GPUs if there are then two of them at least, else of one."""
    gpus = next(g for g in (8, 4, 2, 1) if n % g == 0 and (n // g > 1 or g == 1))
    return {"servers": n // gpus, "gpus": gpus, "spines": 1}


def _clos(n: int) -> Params:
    """As many spines as a leaf has hosts, so that nothing is oversubscribed; with a prime `n` one host stays idle."""
    leaves = _near_root(n) if _near_root(n) > 1 else 2
    hosts = -(-n // leaves)
    return {"leaves": leaves, "spines": hosts, "hosts_per_leaf": hosts}


def _torus(n: int) -> Params | None:
    rows = _near_root(n)
    return {"dims": [rows, n // rows]} if rows > 1 else None


def _near_root(n: int) -> int:
    """The largest divisor of `n` that is not above its square root."""
    return next(d for d in range(int(n**0.5), 0, -1) if n % d == 0)


PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        Preset("star", "all on one switch", lambda n: {"hosts": n}),
        Preset("rail", "servers of 8, 4, 2 or 1 GPUs, a switch per rail, one spine", _rail),
        Preset("clos", "leaves and spines without oversubscription", _clos),
        Preset("ring", "a switch per rank, in a circle", lambda n: {"nodes": n}),
        Preset("torus", "a switch per rank, in two dimensions that are as equal as can be", _torus),
    )
}
"""Name of a kind of topology -> how bench sizes it."""
