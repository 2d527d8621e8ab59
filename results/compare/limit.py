"""Limits for `--fail-if`: `busbw < 0.98` holds where a side's bus bandwidth is below 0.98 times that of the first."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from results.compare.comparison import Comparison, Figure, ratio
from results.compare.counters import every_name, names
from results.compare.interval import FEWEST
from results.figures.values import full, size_label
from topologies.graph.mistake import Mistake

_FORM = re.compile(r"\s*(?P<figure>[^\s<>=!]+)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<bound>[^\s<>=!]+)\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class LimitError(Mistake):
    """A limit that cannot be read, or that names a figure that no side has: `what`, and a `hint`."""


@dataclass(frozen=True)
class Limit:
    """`figure` is a figure, the beginning of several up to an underscore, or a counter; `bound` is of the ratio.

    `significant`: only a difference counts that stands out of the spread over seeds.
    """

    text: str
    figure: str
    sign: str
    bound: float
    significant: bool = False

    @classmethod
    def parse(cls, text: str, *, significant: bool = False) -> Limit:
        """Raises LimitError."""
        found = _FORM.fullmatch(text)
        try:
            bound = float(found["bound"]) if found else float("nan")
        except ValueError:
            bound = float("nan")
        if found is None or bound != bound:
            how = f"FIGURE, one of {' '.join(_SIGNS)}, and a ratio to the first run, such as: busbw < 0.98"
            raise LimitError(f"{text!r} is no limit", how)
        if significant and "." in found["figure"]:
            raise LimitError(f"{found['figure']!r} is a counter, and counters have no interval", "a figure: busbw < 1")
        return cls(text.strip(), found["figure"], found["sign"], bound, significant)

    def met(self, comparison: Comparison) -> list[str]:
        """Where the limit is met, in words. Raises LimitError.

        A side that failed meets every limit, and so does a sweep that lacks points of the first, and a side that lacks
        the figure: nobody can tell.
        """
        found = [f"{side.name}: {error}" for side in comparison.sides for error in side.states]
        if any(side.swept for side in comparison.sides[1:]):
            found += [f"only {comparison.sides[0].name} has {_at(at)}" for n, at in comparison.left_out if n == 0]
        if "." in self.figure:
            return [*found, *self._counter(comparison)]
        for name, sizes in comparison.unlike.items():
            if self._means(name):
                raise LimitError(f"{name} is a mean over sizes, and the sizes are not the same", _told_sizes(sizes))
        mine = [f for f in comparison.figures if self._means(f.name)]
        if not mine and not found:
            known = list(dict.fromkeys(f.name for f in comparison.figures))
            hint = f"{_meant(self.figure, known)}there are {', '.join(known) or 'none'}"
            raise LimitError(f"no run has a figure called {self.figure!r}", hint)
        for figure in mine:
            where = f"{figure.name}{f' at {_at(figure.at)}' if figure.at else ''}"
            found += self._told(comparison, where, [figure.ratio(n) for n in range(1, len(comparison.sides))], figure)
        return found

    def _means(self, name: str) -> bool:
        return name == self.figure or name.startswith(f"{self.figure}_")

    def _counter(self, comparison: Comparison) -> Iterator[str]:
        """Of a counter that did not move the ratio is 1."""
        frame, _, name = self.figure.partition(".")
        values = next((c.values for c in comparison.counters if (c.frame, c.name) == (frame, name)), None)
        if values is None and name not in (known := names(frame)):
            there = f"{frame} has {', '.join(known)}" if known else "a counter is FRAME.NAME, as nics.retransmitted"
            hint = f"{_meant(self.figure, every_name())}{there}"
            raise LimitError(f"there is no counter called {self.figure!r}", hint)
        if not comparison.same_numbers:
            yield f"{self.text}: the sides have different numbers of runs, so counters are not compared"
            return
        values = values or (0,) * len(comparison.sides)
        yield from self._told(comparison, self.figure, [ratio(values[0], value) for value in values[1:]])

    def _told(
        self, comparison: Comparison, where: str, ratios: Sequence[float | None], figure: Figure | None = None
    ) -> Iterator[str]:
        for n, (side, found) in enumerate(zip(comparison.sides[1:], ratios, strict=True), 1):
            if found is None:
                yield f"{self.text}: {where} is not there on both sides ({side.name})"
            elif _SIGNS[self.sign](found, self.bound):
                interval = figure.interval(n) if figure is not None and self.significant else None
                if interval is not None and not interval.stands_out:
                    continue
                told = f"{self.text}: {where} of {side.name} is {found:.4g} times that of the first"
                few = f"; whether that stands out nobody can tell from fewer than {FEWEST} seeds a side"
                yield told + few * (self.significant and interval is None)


def _meant(text: str, known: Sequence[str]) -> str:
    alike = get_close_matches(text, known, 1)
    return f"did you mean {alike[0]}? " if alike else ""


def _told_sizes(sizes: Sequence[Sequence[int]]) -> str:
    common = sorted(set.intersection(*map(set, sizes)))
    told = " against ".join(", ".join(map(size_label, of)) or "none" for of in sizes)
    instead = f"; a figure of one size is time_us_{common[-1]}" if common else "; run both with the same sizes"
    return f"{told}{instead}"


def _at(at: dict[str, object]) -> str:
    return ", ".join(f"{key} = {full(value)}" for key, value in at.items()) or "its run"
