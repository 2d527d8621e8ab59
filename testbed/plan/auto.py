"""What `auto` takes for each size of a step: an algorithm, and into which pieces it cuts its messages.

Sizes are looked at in the order in which the run goes through them, since what an earlier one has connected says which
queue pairs are left for the next, and so which spines ECMP's hash takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any

from testbed.base.units import format_size
from testbed.plan.offloads import offload_ns
from workloads.base.entry import Algorithm, NoModel, named
from workloads.base.vocabulary import DTYPES, MOST_PIECES
from workloads.times.buffers import Buffers
from workloads.times.case import Case
from workloads.times.expected import estimates, expected_ns
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
    trees: int | None = None  # likewise

    @property
    def label(self) -> str:
        """As `testbed bench` takes it."""
        return self.part + (f"[chunk={format_size(self.chunk)}]" if self.chunk else "")

    @property
    def part(self) -> str:
        """Candidates that ranks connect for once have the same."""
        return self.entry.name + (f"[trees={self.trees}]" if self.trees else "")

    @property
    def options(self) -> dict[str, Any]:
        return {**self.told, **({"chunk": self.chunk} if self.chunk else {})}


class _Race:
    """Of candidates for a size: whoever may be the fastest is looked at more closely, until it is known to be."""

    def __init__(self, choice: Choice, size_bytes: int, buffers: Buffers) -> None:
        self._choice, self._size_bytes, self._buffers = choice, size_bytes, buffers
        self.able: list[Candidate] = []
        self.ns: dict[str, float] = {}  # by label: what it takes, or of those that are `open` takes at least
        self._open: dict[str, Iterator[tuple[float, bool]]] = {}
        self.left_out: dict[str, str] = {}

    def enter(self, candidate: Candidate) -> None:
        if candidate.label not in self.ns:
            self.able.append(candidate)
            self.ns[candidate.label] = 0.0
            self._open[candidate.label] = self._choice.estimates(candidate, self._size_bytes, self._buffers)
            self._nearer(candidate)

    def stay_if_faster(self, candidate: Candidate) -> None:
        """Several trees, than one."""
        if self.ns.get(candidate.label, 0.0) >= GAIN * self.ns.get(candidate.entry.name, inf):
            self.able.remove(candidate)
            del self.ns[candidate.label]

    def run(self) -> None:
        while self.able and self.first.label in self._open:
            self._nearer(self.first)

    @property
    def first(self) -> Candidate:
        """Of equals the one that entered first."""
        return min(self.able, key=lambda c: self.ns[c.label])  # as `taken` of planned.py has it

    def knows(self, candidate: Candidate) -> bool:
        return candidate.label not in self._open

    @property
    def expected(self) -> dict[str, float]:
        return {label: ns for label, ns in self.ns.items() if label not in self._open}

    @property
    def at_least(self) -> dict[str, float]:
        """Of those that cannot be the fastest, and were looked at no further."""
        return {label: self.ns[label] for label in self._open}

    def _nearer(self, candidate: Candidate) -> None:
        label = candidate.label
        try:
            ns, known = next(self._open[label])
        except NoModel as none:
            self.able.remove(candidate)
            del self._open[label], self.ns[label]
            self.left_out[candidate.entry.name] = none.what
            return
        self.ns[label] = round(max(ns, self.ns[label]) if not known else ns, 3)
        if known:
            del self._open[label]


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
        self._rooms = chooser.rooms(chooser.data_class)
        self._made = QueuePairs(chooser.costs.queue_pairs)
        self._parts: dict[str, tuple[Numbers, ...]] = {}  # as the run connects them: at their first size
        self._jobs: dict[str, int] = {}  # groups that they ask of the fabric
        self._tried: dict[tuple[str, int], tuple[Numbers, ...]] = {}  # and how many parts are before it
        self._routed: dict[tuple[str, int], Routed] = {}  # a part's ways with such numbers

    def of(self, size_bytes: int, *, pauses: bool = True) -> dict[str, Any]:
        """The fastest; what each was expected to take, or to take at least; or why it was left out.

        Of equals the first one wins.  `pauses`: with those of PFC, where they hold something up.
        """
        race = self._race(size_bytes, pauses=pauses)
        if not race.able:
            race = self._race(size_bytes, pauses=False)  # with them nothing would ever end
        best = race.first
        self._connect(best.part)
        left_out = {**self._left_out, **race.left_out}
        more = {"at_least_ns": race.at_least, "left_out": left_out}
        found = {"algorithm": best.entry.name, **best.options, "expected_ns": race.expected}
        return found | {key: value for key, value in more.items() if value}

    def _race(self, size_bytes: int, *, pauses: bool) -> _Race:
        race = _Race(self, size_bytes, Buffers(self._rooms if pauses else {}))
        for candidate in self._candidates:
            race.enter(candidate)
            if candidate.trees:
                race.stay_if_faster(candidate)
        for candidate in self._pieces(race, size_bytes) if self._cut else ():
            race.enter(candidate)
        race.run()
        if self._cut and race.able:
            self._likewise(race, size_bytes)
            self._refine(race, size_bytes)
        return race

    def _likewise(self, race: _Race, size_bytes: int) -> None:
        """The pieces of the fastest, and half of them, for all that are faster than it in whole messages.

        Formulas of pieces are rough, and who cuts the vector in parts of its own wants smaller ones.
        """
        best = race.first
        if best.chunk:
            whole = race.ns.get(best.entry.name, inf)
            both = [b for b in (best.chunk, best.chunk // 2) if b in PIECES and size_bytes // MOST_PIECES <= b]
            for candidate in list(race.able):
                if "chunk" in candidate.entry.extra and not candidate.chunk and race.ns[candidate.label] < whole:
                    for b in both:
                        race.enter(replace(candidate, chunk=b))
            race.run()

    def _pieces(self, race: _Race, size_bytes: int) -> list[Candidate]:
        """Of each algorithm the pieces for which its formula is least, if that may make it the fastest of all."""
        guesses, found = [], []
        for candidate in race.able:
            entry = candidate.entry
            cuts, guess = "chunk" in entry.extra and bool(entry.time), race.ns[candidate.label]
            asked = cuts or (entry.time and not race.knows(candidate))
            alone = self._formula_ns(candidate, size_bytes) if asked else guess
            guesses.append(guess if race.knows(candidate) else max(guess, alone))
            if not cuts:
                continue
            cut = [replace(candidate, chunk=b) for b in PIECES if size_bytes // MOST_PIECES <= b < size_bytes]
            gains = [(self._formula_ns(one, size_bytes) / alone, one) for one in cut]
            gain, best = min(gains, key=lambda its: its[0], default=(1.0, candidate))
            if gain < GAIN:
                found.append((gain * guesses[-1], best))
        found.sort(key=lambda its: its[0])
        return [one for estimate, one in found[:MOST_CUT] if estimate < min(guesses)]

    def _refine(self, race: _Race, size_bytes: int) -> None:
        """Half and twice the pieces of the fastest, as long as that helps."""
        best = race.first
        nearest = best.chunk or best.entry.chunk_bytes
        while "chunk" in best.entry.extra and nearest:
            for b in (nearest // 2, nearest * 2):
                if b in PIECES and b < size_bytes and size_bytes // MOST_PIECES <= b:
                    race.enter(replace(best, chunk=b))
            race.run()
            if race.first is best:
                return
            best, nearest = race.first, race.first.chunk

    def expected_ns(self, candidate: Candidate, size_bytes: int) -> float:
        """What a candidate should take.  Raises NoModel."""
        if candidate.entry.schedule:
            return expected_ns(candidate.entry, self._case(candidate, size_bytes), Buffers(self._rooms))
        ((time_ns, _),) = self.estimates(candidate, size_bytes, Buffers({}))
        return time_ns

    def estimates(self, candidate: Candidate, size_bytes: int, buffers: Buffers) -> Iterator[tuple[float, bool]]:
        """What it takes at least, rough and then finer; at last what it takes, and True.  Raises NoModel."""
        entry, numbers = candidate.entry, self._numbers(candidate)
        if entry.schedule:
            yield from estimates(entry, self._case(candidate, size_bytes), buffers)
            return
        way = {**self._told(candidate), "dtype": self._step.dtype, "op": self._step.op}
        before = takewhile(lambda part: part != candidate.part, self._jobs)  # each offload is a job of the fabric
        chooser, job = self._chooser, 1 + sum(self._jobs[part] for part in before)
        yield offload_ns(chooser, chooser.basis, entry, candidate.ways.ranks, size_bytes, way, numbers, job), True

    def _formula_ns(self, candidate: Candidate, size_bytes: int) -> float:
        if candidate.entry.offloaded:
            return self.expected_ns(candidate, size_bytes)
        return float(named(candidate.entry.time)(self._case(candidate, size_bytes)))

    def _case(self, candidate: Candidate, size_bytes: int) -> Case:
        (numbers,) = self._numbers(candidate)
        key = candidate.part, id(numbers)
        ways = self._routed.setdefault(key, replace(candidate.ways, numbers=numbers) if numbers else candidate.ways)
        chooser, step, told = self._chooser, self._step, self._told(candidate)
        return Case.of(
            candidate.entry, len(ways.ranks), size_bytes, DTYPES[step.dtype], told, chooser.seed, chooser.costs, ways
        )

    def _told(self, candidate: Candidate) -> dict[str, Any]:
        return {key: getattr(self._step, key) for key in candidate.entry.extra} | candidate.options

    def _numbers(self, candidate: Candidate) -> tuple[Numbers, ...]:
        """Of the queue pairs that it uses, or would connect next."""
        name = candidate.part
        if not self._numbered:
            return ({},)
        if name in self._parts:
            return self._parts[name]
        key = name, len(self._parts)
        if key not in self._tried:
            self._tried[key] = self._connected(self._made.copy(), candidate) or ({},)
        return self._tried[key]

    def _connect(self, part: str) -> None:
        """It is chosen: from now on it has its queue pairs."""
        if part in self._parts:
            return
        candidate = next(c for c in self._candidates if c.part == part)
        self._jobs[part] = candidate.entry.jobs(candidate.told)
        numbers = self._connected(self._made, candidate) if self._numbered else None
        self._parts[part] = numbers or ({},)
        self._numbered = numbers is not None  # else what comes behind it is not known, either

    def _connected(self, pairs: QueuePairs, candidate: Candidate) -> tuple[Numbers, ...] | None:
        """What a candidate connects next, for the step's largest size; None: too much."""
        told = {**self._told(candidate), "sizes": self._step.sizes, "dtype": self._step.dtype}
        return connected(pairs, candidate.entry, candidate.ways.ranks, told, self._chooser.seed, MOST_NUMBERED)
