"""The collectives that take tokens to their experts and back (M2N, N2M), or all-to-alls of both pools in their place.

`m2n` sends each rank its part and waits for nobody; `all_to_all_v` sends the same parts as a collective of both pools,
in which everybody hears of everybody; `all_to_all` likewise with parts that are all as large as the largest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.serving.routing import Table
from workloads.steps.plan.model import Model
from workloads.tasks.graph import Settings
from workloads.tasks.task import Collective, Parts

EXCHANGES = ("m2n", "all_to_all_v", "all_to_all")
DISPATCH, COMBINE = "expert_dispatch", "expert_combine"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """How tokens of a model go between the ranks of two pools; each micro-batch has streams of its own."""

    model: Model
    attention: tuple[int, ...]
    experts: tuple[int, ...]
    how: str = "m2n"
    algorithms: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        forth, back = (*self.attention, *self.experts), (*self.experts, *self.attention)
        return {"exchange": (forth,)} if self.how == "all_to_all" else {"dispatch": (forth,), "combine": (back,)}

    @property
    def settings(self) -> dict[str, Settings]:
        senders = {"dispatch": len(self.attention), "combine": len(self.experts)}
        return {
            name: Settings(algorithms=dict(self.algorithms), options=self._senders(senders.get(name, 0)))
            for name in self.groups
        }

    def _senders(self, count: int) -> dict[str, Any]:
        return {"senders": count} if self.how == "m2n" else {}

    def dispatch(self, name: str, j: int, after: tuple[str, ...], tokens: Table) -> Collective:
        """Of micro-batch `j`; `tokens`: [attention rank][expert rank]."""
        size = max(map(sum, tokens))
        return self._task(f"dispatch{name}", f"dispatch{j}", DISPATCH, after, tokens, size)

    def combine(self, name: str, j: int, after: tuple[str, ...], tokens: Table) -> Collective:
        """In the sense of nccl-tests an n2m's size is what a receiver gets, an all-to-all's what a rank sends."""
        sizes = map(sum, tokens) if self.how == "m2n" else map(sum, zip(*tokens, strict=True))
        return self._task(f"combine{name}", f"combine{j}", COMBINE, after, tokens, max(sizes))

    def _task(self, name: str, stream: str, kind: str, after: tuple[str, ...], tokens: Table, size: int) -> Collective:
        back, ranks = kind == COMBINE, len(self.attention) + len(self.experts)
        group, parts = "combine" if back else "dispatch", None
        collective = {"dispatch": "m2n", "combine": "n2m"}[group] if self.how == "m2n" else self.how
        match self.how:
            case "m2n":
                parts = tokens
            case "all_to_all_v":
                parts = _square(tokens, back)
            case _:
                group, size = "exchange", ranks * max(map(max, tokens))
        return Collective(
            id=name,
            stream=stream,
            after=after,
            kind=kind,
            collective=collective,
            group=group,
            size_bytes=size * self.model.hidden * self.model.width,
            dtype=self.model.dtype,
            parts=parts,
        )


def _square(tokens: Table, back: bool) -> Parts:
    """[from][to] of all ranks of both pools, in the order of their group."""
    first, second = len(tokens), len(tokens[0])
    nothing = (0,) * (first + second)
    if not back:
        return (*((0,) * first + row for row in tokens), *(nothing,) * second)
    return (*((0,) * second + column for column in zip(*tokens, strict=True)), *(nothing,) * first)
