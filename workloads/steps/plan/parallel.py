"""A plan of parallelism: how many ranks each dimension has, where each rank stands, and who forms groups.

The dimensions are Megatron's: tensor, context, data, pipeline; their product is the number of ranks.  Sequence
parallelism takes the ranks of the tensor dimension.  Expert parallelism takes neighbours among the ranks of context and
data, context first: attention and experts divide the same ranks each in its own way, as Megatron does since it folds
them (`expert_decoder_rank_generator` of megatron/core/parallel_state.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm, prod

DIMENSIONS = ("tensor", "context", "data", "pipeline")
"""From the inside: neighbours of the first are the nearest ranks, where nothing else is said (Megatron's order)."""


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """How many ranks each dimension has.

    `scatter_gather`: of what goes between stages each rank of tensor sends its part, and all of it is gathered behind.
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    sequence: bool = False
    scatter_gather: bool = False

    @property
    def ranks(self) -> int:
        return prod(getattr(self, name) for name in DIMENSIONS)

    @property
    def copies(self) -> int:
        """Ranks with the same parameters, whose gradients are added up."""
        return self.data * self.context

    @property
    def expert_copies(self) -> int:
        """Ranks with the same experts."""
        return self.copies // self.expert

    @property
    def closed(self) -> int:
        """Ranks of data, with all of their context, that share rings of context and experts with no others."""
        return lcm(self.expert, self.context) // self.context


@dataclass(frozen=True)
class Place:
    """Where a rank stands in a plan."""

    tensor: int
    context: int
    data: int
    pipeline: int


@dataclass(frozen=True)
class Layout:
    """Which rank stands where: `ranks[place]`."""

    parallel: Parallel
    ranks: dict[Place, int]

    def groups(self, *, mirrored: bool = False) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Name -> its groups of ranks; those of one rank are left out.

        `mirrored`: stages as far from the pipeline's two ends have the same parameters.
        """
        p = self.parallel
        groups = {
            "tensor": self._along("tensor"),
            "context": self._along("context"),
            "pipeline": self._along("pipeline"),
            "data": self._along("data", "context"),
            "expert": self._experts(),
            "expert_data": self._expert_copies() if p.expert > 1 else (),
        }
        if mirrored:
            groups |= {name: self._mirrored(groups[name]) for name in ("data", "expert_data")}
        return {name: tuples for name, tuples in groups.items() if tuples and len(tuples[0]) > 1}

    def _mirrored(self, groups: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """The groups of each stage's ranks, merged with those of the stage as far from the other end."""
        stages = self.parallel.pipeline
        each = len(groups) // stages
        half = range(stages // 2 * each)
        return tuple(groups[k] + groups[(stages - 1 - k // each) * each + k % each] for k in half)

    def ends(self) -> tuple[tuple[int, ...], ...]:
        """The first and the last stage of each pipeline."""
        return tuple((ranks[0], ranks[-1]) for ranks in self._along("pipeline")) if self.parallel.pipeline > 1 else ()

    def _along(self, *names: str) -> tuple[tuple[int, ...], ...]:
        """Ranks that differ in these dimensions alone; the first one varies slowest."""
        others = [name for name in reversed(DIMENSIONS) if name not in names]
        return tuple(
            tuple(self.ranks[Place(**{**fixed, **moving})] for moving in self._all(names))
            for fixed in self._all(others)
        )

    def _all(self, names: Sequence[str]) -> Iterator[dict[str, int]]:
        for at in product(*(range(getattr(self.parallel, name)) for name in names)):
            yield dict(zip(names, at, strict=True))

    def _experts(self) -> tuple[tuple[int, ...], ...]:
        expert = self.parallel.expert
        return tuple(
            copies[first : first + expert]
            for copies in self._along("data", "context")
            for first in range(0, len(copies), expert)
        )

    def _expert_copies(self) -> tuple[tuple[int, ...], ...]:
        expert = self.parallel.expert
        return tuple(copies[k::expert] for copies in self._along("data", "context") for k in range(expert))
