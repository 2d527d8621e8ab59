"""What `auto` takes for each size of a step: an algorithm, and into which pieces it cuts its messages.

Sizes are looked at in the order in which the run goes through them, since what an earlier one has connected says which
queue pairs are left for the next, and so which spines ECMP's hash takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from testbed.base.units import format_size
from testbed.plan.offloads import offload_ns
from workloads.base.entry import Algorithm, NoModel, named
from workloads.base.vocabulary import DTYPES, MOST_PIECES
from workloads.registry import find
from workloads.times.case import Case
from workloads.times.expected import expected_ns
from workloads.times.queue_pairs import Numbers, QueuePairs, connected
from workloads.times.ways import Routed

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep
    from testbed.plan.routes import Routes

MOST_NUMBERED = 20_000
"""Queue pairs of a candidate that are numbered, a tenth of a second of ours; of more, spines are drawn."""

PIECES = tuple(kib << 10 for kib in (16, 32, 64, 128, 256, 512, 1024))
"""Bytes of a piece that are tried, where the step leaves `chunk` out."""
MOST_CUT = 3
"""Ways to cut messages that are followed for a size: those of which the formulas promise most."""
GAIN = 0.98
"""Pieces are looked at where their formula is below this times that of the algorithm as it is by itself."""


@dataclass(frozen=True)
class Candidate:
    """An algorithm that these ranks can carry out.  `told`: their order and grid, and keys that the algorithm heeds."""

    entry: Algorithm
    told: Mapping[str, Any]
    ways: Routed
    chunk: int | None = None  # bytes of a piece, where `auto` has set it

    @property
    def label(self) -> str:
        """As `testbed bench` takes it."""
        return self.entry.name + (f"[chunk={format_size(self.chunk)}]" if self.chunk else "")

    @property
    def options(self) -> dict[str, Any]:
        return {**self.told, **({"chunk": self.chunk} if self.chunk else {})}


class Choice:
    """Of one step.  `numbered`: as if the fabric's first queue pairs were its own; else spines are drawn."""

    def __init__(
        self,
        chooser: Routes,
        step: CollectiveStep,
        candidates: Sequence[Candidate],
        left_out: Mapping[str, str],
        *,
        numbered: bool,
        cut: bool,
    ) -> None:
        self._chooser, self._step, self._candidates, self._left_out = chooser, step, candidates, left_out
        self._numbered, self._cut = numbered, cut and step.chunk is None
        self._made = QueuePairs()
        self._parts: dict[str, tuple[Numbers, ...]] = {}  # by algorithm, as the run connects them: at its first size
        self._tried: dict[tuple[str, int], tuple[Numbers, ...]] = {}  # and how many parts are before it
        self._routed: dict[tuple[str, int], Routed] = {}  # an algorithm's ways with such numbers

    def of(self, size_bytes: int) -> dict[str, Any]:
        """The fastest, and what each was expected to take or why it was left out.  Of equals the first one wins."""
        expected: dict[str, float] = {}
        left_out, able = dict(self._left_out), list[Candidate]()
        for candidate in self._candidates:
            try:
                expected[candidate.label] = round(self.expected_ns(candidate, size_bytes), 3)
                able.append(candidate)
            except NoModel as none:
                left_out[candidate.entry.name] = none.what
        if self._cut:
            for candidate in self._pieces(able, expected, size_bytes):
                expected[candidate.label] = round(self.expected_ns(candidate, size_bytes), 3)
                able.append(candidate)
            self._refine(able, expected, size_bytes)
        best = min(able, key=lambda c: expected[c.label])  # as `taken` of planned.py has it
        self._connect(best.entry)
        more = {"left_out": left_out} if left_out else {}
        return {"algorithm": best.entry.name, **best.options, "expected_ns": expected, **more}

    def _pieces(self, able: Sequence[Candidate], expected: Mapping[str, float], size_bytes: int) -> Iterator[Candidate]:
        """Of each algorithm the pieces for which its formula is least, if that may make it the fastest of all."""
        found = []
        for candidate in able:
            entry = candidate.entry
            if "chunk" not in entry.extra or not entry.time:
                continue
            alone = self._formula_ns(candidate, size_bytes)
            cut = [replace(candidate, chunk=b) for b in PIECES if size_bytes // MOST_PIECES <= b < size_bytes]
            gains = [(self._formula_ns(one, size_bytes) / alone, one) for one in cut]
            gain, best = min(gains, key=lambda its: its[0], default=(1.0, candidate))
            if gain < GAIN:
                found.append((gain * expected[candidate.label], best))
        fastest = min(expected[c.label] for c in able)
        found.sort(key=lambda its: its[0])
        yield from (one for estimate, one in found[:MOST_CUT] if estimate < fastest)

    def _refine(self, able: list[Candidate], expected: dict[str, float], size_bytes: int) -> None:
        """Half and twice the pieces of the fastest, as long as that helps: formulas of pieces are rough."""
        best = min(able, key=lambda c: expected[c.label])
        nearest = best.chunk or best.entry.chunk_bytes
        while "chunk" in best.entry.extra and nearest:
            beside = [replace(best, chunk=b) for b in (nearest // 2, nearest * 2) if b in PIECES and b < size_bytes]
            beside = [c for c in beside if c.label not in expected and size_bytes // MOST_PIECES <= (c.chunk or 0)]
            for candidate in beside:
                expected[candidate.label] = round(self.expected_ns(candidate, size_bytes), 3)
                able.append(candidate)
            fastest = min([best, *beside], key=lambda c: expected[c.label])
            if fastest is best:
                return
            best, nearest = fastest, fastest.chunk

    def expected_ns(self, candidate: Candidate, size_bytes: int) -> float:
        """What a candidate should take.  Raises NoModel."""
        entry, numbers = candidate.entry, self._numbers(candidate)
        if entry.schedule:
            return expected_ns(entry, self._case(candidate, size_bytes))
        way = {**self._told(candidate), "dtype": self._step.dtype, "op": self._step.op}
        before = takewhile(lambda name: name != entry.name, self._parts)  # each offload is a job of the fabric
        chooser, job = self._chooser, 1 + sum(find(entry.collective.name, name).offloaded for name in before)
        return offload_ns(chooser, chooser.basis, entry, candidate.ways.ranks, size_bytes, way, numbers, job)

    def _formula_ns(self, candidate: Candidate, size_bytes: int) -> float:
        if candidate.entry.offloaded:
            return self.expected_ns(candidate, size_bytes)
        return float(named(candidate.entry.time)(self._case(candidate, size_bytes)))

    def _case(self, candidate: Candidate, size_bytes: int) -> Case:
        (numbers,) = self._numbers(candidate)
        key = candidate.entry.name, id(numbers)
        ways = self._routed.setdefault(key, replace(candidate.ways, numbers=numbers) if numbers else candidate.ways)
        chooser, step, told = self._chooser, self._step, self._told(candidate)
        return Case.of(
            candidate.entry, len(ways.ranks), size_bytes, DTYPES[step.dtype], told, chooser.seed, chooser.costs, ways
        )

    def _told(self, candidate: Candidate) -> dict[str, Any]:
        return {key: getattr(self._step, key) for key in candidate.entry.extra} | candidate.options

    def _numbers(self, candidate: Candidate) -> tuple[Numbers, ...]:
        """Of the queue pairs that it uses, or would connect next."""
        name = candidate.entry.name
        if not self._numbered:
            return ({},)
        if name in self._parts:
            return self._parts[name]
        key = name, len(self._parts)
        if key not in self._tried:
            self._tried[key] = self._connected(self._made.copy(), candidate) or ({},)
        return self._tried[key]

    def _connect(self, entry: Algorithm) -> None:
        """It is chosen: from now on it has its queue pairs."""
        if entry.name in self._parts:
            return
        candidate = next(c for c in self._candidates if c.entry.name == entry.name)
        numbers = self._connected(self._made, candidate) if self._numbered else None
        self._parts[entry.name] = numbers or ({},)
        self._numbered = numbers is not None  # else what comes behind it is not known, either

    def _connected(self, pairs: QueuePairs, candidate: Candidate) -> tuple[Numbers, ...] | None:
        """What a candidate connects next, for the step's largest size; None: too much."""
        told = {**self._told(candidate), "sizes": self._step.sizes, "dtype": self._step.dtype}
        return connected(pairs, candidate.entry, candidate.ways.ranks, told, self._chooser.seed, MOST_NUMBERED)
