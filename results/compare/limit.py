"""Limits for `--fail-if`: `busbw < 0.98` holds where a side's bus bandwidth is below 0.98 times that of the first."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from results.compare.comparison import Comparison, ratio
from results.compare.counters import names
from results.figures.values import full

_FORM = re.compile(r"\s*(?P<figure>[^\s<>=!]+)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<bound>[^\s<>=!]+)\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class LimitError(Exception):
    """A limit that cannot be read, or that names a figure that no side has: `what`, and a `hint`."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what} ({hint})")
        self.what = what
        self.hint = hint


@dataclass(frozen=True)
class Limit:
    """`figure` is a figure, the beginning of several up to an underscore, or a counter; `bound` is of the ratio."""

    text: str
    figure: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Raises LimitError."""
        found = _FORM.fullmatch(text)
        try:
            bound = float(found["bound"]) if found else float("nan")
        except ValueError:
            bound = float("nan")
        if found is None or bound != bound:
            how = f"FIGURE, one of {' '.join(_SIGNS)}, and a ratio to the first run, such as: busbw < 0.98"
            raise LimitError(f"{text!r} is no limit", how)
        return cls(text.strip(), found["figure"], found["sign"], bound)

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
        mine = [f for f in comparison.figures if f.name == self.figure or f.name.startswith(f"{self.figure}_")]
        if not mine and not found:
            known = dict.fromkeys(f.name for f in comparison.figures)
            raise LimitError(f"no run has a figure called {self.figure!r}", f"there are {', '.join(known) or 'none'}")
        for figure in mine:
            where = f"{figure.name}{f' at {_at(figure.at)}' if figure.at else ''}"
            found += self._told(comparison, where, [figure.ratio(n) for n in range(1, len(comparison.sides))])
        return found

    def _counter(self, comparison: Comparison) -> Iterator[str]:
        """Of a counter that did not move the ratio is 1."""
        if not comparison.same_numbers:
            yield f"{self.text}: the sides have different numbers of runs, so counters are not compared"
            return
        frame, _, name = self.figure.partition(".")
        values = next((c.values for c in comparison.counters if (c.frame, c.name) == (frame, name)), None)
        if values is None:
            if name not in (known := names(frame)) and frame != "drops":
                hint = f"{frame} has {', '.join(known)}" if known else "a counter is FRAME.NAME, as nics.retransmitted"
                raise LimitError(f"there is no counter called {self.figure!r}", hint)
            values = (0,) * len(comparison.sides)
        yield from self._told(comparison, self.figure, [ratio(values[0], value) for value in values[1:]])

    def _told(self, comparison: Comparison, where: str, ratios: Sequence[float | None]) -> Iterator[str]:
        for side, found in zip(comparison.sides[1:], ratios, strict=True):
            if found is None:
                yield f"{self.text}: {where} is not there on both sides ({side.name})"
            elif _SIGNS[self.sign](found, self.bound):
                yield f"{self.text}: {where} of {side.name} is {found:.4g} times that of the first"


def _at(at: dict[str, object]) -> str:
    return ", ".join(f"{key} = {full(value)}" for key, value in at.items()) or "its run"
