"""An algorithm of a user's own as an entry, like ours; and whether it is right for the sizes of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES
from workloads.check.check import check
from workloads.check.follow import named
from workloads.check.memory import At, Wrong
from workloads.collectives.execution import MOST_MESSAGES
from workloads.collectives.schedule import Recv, Shape, connections, program_of, steps
from workloads.collectives.shape import shape_of
from workloads.own import files
from workloads.own.book import written
from workloads.own.mistake import BadAlgorithm
from workloads.own.python import Function
from workloads.own.shipped import alike

MOST_IN_ALL = 1_000_000
_ANY = 1 << 62  # steps


def entry_of(like: Algorithm, name: str) -> Algorithm:
    """The entry of a resolved name, where the collective's first algorithm of hosts is `like`.  Raises BadAlgorithm."""
    own = files.load(name)
    one = alike(like, own.name.short, own.schedule)
    if (its := own.msccl) is None:
        return one
    return replace(
        one, min_ranks=len(its.gpus), max_ranks=len(its.gpus), chunk_bytes=its.protocol.loop_bytes, apart=its.apart
    )


def shapes(entry: Algorithm, ranks: int, told: Mapping[str, Any], seed: int) -> list[Shape]:
    """Of all sizes of a step."""
    width = DTYPES[told["dtype"]]
    return [shape_of(entry, ranks, size, width, told, seed) for size in told["sizes"]]


@dataclass(frozen=True)
class Shipping:
    """What a plan has of an algorithm, for the endpoints that share a file of it.  `told`: of the step."""

    entry: Algorithm
    groups: Sequence[Sequence[int]]
    told: Mapping[str, Any]
    seed: int
    _written: dict[tuple[Shape, int], list[Any]] = field(default_factory=dict, compare=False)

    def __call__(self, own: Collection[int]) -> dict[str, Any]:
        """Their programs, and those of the ranks with which they exchange messages."""
        made: dict[str, dict[str, Any]] = {}
        for members in self.groups:
            wanted = {index for index, rank in enumerate(members) if rank in own}
            for shape in shapes(self.entry, len(members), self.told, self.seed) if wanted else ():
                peers = {peer for k in wanted for peer, _ in connections(program_of(self.entry.own, shape, k))}
                for k in wanted | peers:
                    if (shape, k) not in self._written:
                        self._written[shape, k] = written(program_of(self.entry.own, shape, k), _ANY)
                    made.setdefault(f"{shape.ranks} {shape.count}", {})[str(k)] = self._written[shape, k]
        return {"programs": made, "apart": self.entry.apart}


def prove(name: str, entry: Algorithm, shapes: tuple[Shape, ...]) -> None:
    """Raises BadAlgorithm for what is wrong with an algorithm, for these shapes."""
    own = files.load(name)
    if (its := own.msccl) is not None and its.collective != entry.collective.name:
        what = f"it is of {its.collective}, and the step does {entry.collective.name}"
        raise BadAlgorithm(what, f"collective: {its.collective}", 1)
    if isinstance(own.schedule, Function):
        own.schedule.make(shapes)
    for shape in (_of_one_loop(own, shapes[0]),) if own.msccl else shapes:
        _proved(name, entry, shape)
    for shape in shapes:
        _few_enough(own, shape)


def _of_one_loop(own: files.Own, shape: Shape) -> Shape:
    """Loops are alike, work on memory of their own, and wait for each other within one alone."""
    assert own.msccl is not None
    return replace(shape, count=own.msccl.chunks, chunk=None)


_PROVED: set[tuple[str, str, Shape]] = set()


def _proved(name: str, entry: Algorithm, shape: Shape) -> None:
    if (key := (name, entry.collective.name, shape)) in _PROVED:
        return
    own = files.load(name)

    def called(at: At) -> str:
        if own.msccl is None:
            return named(at)
        place = own.msccl.place(at)
        return f"{place.name} in line {place.line}"

    try:
        check(entry, own.schedule, shape, called, "chunk" if own.msccl else "element")
    except Wrong as wrong:
        hint = "" if own.msccl else f"of {shape.count} elements among {shape.ranks} ranks"
        if wrong.at is None:
            raise BadAlgorithm(wrong.what, hint) from None
        if own.msccl is None:
            raise BadAlgorithm(str(wrong), hint) from None
        place = own.msccl.place(wrong.at)
        raise BadAlgorithm(f"{place.name}: {wrong.what}", hint, place.line) from None
    _PROVED.add(key)


def _few_enough(own: files.Own, shape: Shape) -> None:
    """A queue pair keeps so many receives posted, and loops are written out."""
    if own.msccl and (steps_in_all := own.msccl.in_all(shape)) > MOST_IN_ALL:
        what = f"{steps_in_all:,} steps in all loops of {shape.count} elements"
        raise BadAlgorithm(what, f"at most {MOST_IN_ALL:,}: a larger `chunk` makes fewer")
    for rank in range(shape.ranks):
        counts: dict[tuple[int, int], int] = {}
        for step in steps(own.schedule(shape, rank)):
            if isinstance(step, Recv):
                counts[step.peer, step.channel] = counts.get((step.peer, step.channel), 0) + 1
        if max(counts.values(), default=0) > MOST_MESSAGES:
            what = f"{max(counts.values()):,} messages from rank to rank for {shape.count} elements"
            raise BadAlgorithm(what, f"at most {MOST_MESSAGES:,}: a larger `chunk` makes fewer")
