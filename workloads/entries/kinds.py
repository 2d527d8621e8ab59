"""What entries of algorithms have in common: who carries them out, and the keys that kinds of them heed."""

from __future__ import annotations

from typing import Any

from workloads.base.entry import EVEN, Algorithm, Collective
from workloads.base.vocabulary import ADDER_DTYPES, SWITCH_OPS
from workloads.entries import collectives as c


def hosts(
    collective: Collective, name: str, schedule: str, time: str, summary: str, wide: str = "", **more: Any
) -> Algorithm:
    """Hosts carry out a schedule of workloads/collectives/; `time` is its formula in workloads/times/ (or "").

    `wide`: its model for large fabrics in workloads/times/wide/models.py (or "").
    """
    part, schedule = (f"workloads.collectives.{its}" for its in (collective.part, schedule))
    time = time and f"workloads.times.{time}"
    return Algorithm(collective, name, summary, part, time, schedule, collective.ops, wide=_wide(wide), **more)


def others(
    collective: Collective, name: str, code: str, time: str, summary: str, wide: str = "", **more: Any
) -> Algorithm:
    """A part of its own."""
    return Algorithm(collective, name, summary, f"workloads.{code}", f"workloads.{time}", wide=_wide(wide), **more)


def offload(collective: Collective, name: str, code: str, *more: str, **keys: Any) -> Algorithm:
    """Likewise one of workloads/offloads/, of NICs or switches that do the work."""
    return others(collective, name, f"offloads.{code}", *more, offloaded=True, **keys)


def _wide(name: str) -> str:
    return name and f"workloads.times.wide.models:{name}"


CHUNK: dict[str, Any] = {"extra": ("chunk",)}
PIPED: dict[str, Any] = {"extra": ("chunk",), "chunk_bytes": 128 << 10}  # worth little unless pipelined
RAILS: dict[str, Any] = {"layout": "rails", "wide": "RAILS"}
SKEW: dict[str, Any] = {"extra": ("skew", "parts"), "defaults": {"skew": 1.0}}
PIECES_OF_PARTS: dict[str, Any] = {**SKEW, "extra": ("chunk", *SKEW["extra"])}
SENDERS: dict[str, Any] = {**SKEW, "extra": ("senders", *SKEW["extra"])}
TREES: dict[str, Any] = {"extra": ("slots", "timeout", "trees")}
MULTICAST: dict[str, Any] = {"defaults": {"cutoff": "20us"}, "layout": "ring", "multicast": True}
ALONE: dict[str, Any] = {"waits": True}
SUMS: dict[str, Any] = {"ops": ("sum", "avg")}
BY_SWITCHES: dict[str, Any] = {
    **{"ops": SWITCH_OPS, "dtypes": ADDER_DTYPES, "extra": ("slots", "timeout"), "accelerators": True}
}
COLLNET: dict[str, Any] = {
    **BY_SWITCHES, "extra": (*BY_SWITCHES["extra"], "chunk"), "chunk_bytes": 128 << 10, "layout": "rails",
    "apart": True,
}  # fmt: skip
NVLS: dict[str, Any] = {"dtypes": ADDER_DTYPES, "layout": "domain"}
BY_NICS: dict[str, Any] = {"dtypes": ADDER_DTYPES, "engines": True, "layout": "ring"}
OPTIMIZER: dict[str, Any] = {
    **{"ops": c.OPTIMIZER_STEP.ops, "dtypes": ("float32",), "layout": "ring"},
    **{"extra": ("optimizer",), "defaults": {"optimizer": "sgd"}},
}
PAIR: dict[str, Any] = {"max_ranks": 2}
GRID: dict[str, Any] = {"layout": "grid"}
EVEN_GRID: dict[str, Any] = {"layout": "grid", "lengths": EVEN}
BUFFERS: dict[str, Any] = {"extra": ("chunk",), "chunk_bytes": 512 << 10}  # PAT's (workloads/collectives/pat.py)
MESSAGE: dict[str, Any] = {"extra": ("message",), "defaults": {"message": {}}, "in_turn": True}
STORAGE: dict[str, Any] = {"extra": ("storage",), "defaults": {"storage": {}}, "min_ranks": 3}
FED: dict[str, Any] = {"extra": ("feed",), "defaults": {"feed": {}}, "in_turn": True}
SPARSE_INPUT: dict[str, Any] = {"density": 1.0, "overlap": 0.0, "block": 256}  # workloads/sparse/inputs.py
SPARSE: dict[str, Any] = {**SUMS, **ALONE, "unpredicted": "what it sends depends on where the vectors have zeros"}
