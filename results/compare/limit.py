"""Limits for `--fail-if`: `busbw < 0.98` holds where a side's bus bandwidth is below 0.98 times that of the first."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from results.compare.comparison import Comparison
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
    """`figure` is the name of a figure, or the beginning of several up to an underscore; `bound` is of the ratio."""

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
        """Where the limit is met, in words; also where it cannot be told. Raises LimitError."""
        counters = {f"{c.frame}.{c.name}": c.values for c in comparison.counters}
        if self.figure in counters:
            first, *others = counters[self.figure]
            ratios = [(v / first if first else float("inf")) for v in others]
            return list(self._told(comparison, "", [(n + 1, r) for n, r in enumerate(ratios)]))
        mine = [f for f in comparison.figures if f.name == self.figure or f.name.startswith(f"{self.figure}_")]
        if not mine:
            if failed := _failed(comparison):
                return failed
            if "." in self.figure and self.figure.partition(".")[0] in ("ports", "priorities", "nics", "drops"):
                return []  # a counter that did not move
            known = dict.fromkeys(f.name for f in comparison.figures)
            raise LimitError(f"no run has a figure called {self.figure!r}", f"there are {', '.join(known) or 'none'}")
        found = _failed(comparison)
        for figure in mine:
            at = ", ".join(f"{key} = {full(value)}" for key, value in figure.at.items())
            where = f"{figure.name}{f' at {at}' if at else ''}"
            found += self._told(comparison, where, [(n, figure.ratio(n)) for n in range(1, len(comparison.sides))])
        return found

    def _told(self, comparison: Comparison, where: str, ratios: list[tuple[int, float | None]]) -> Iterator[str]:
        for side, ratio in ratios:
            name = comparison.sides[side].name
            if ratio is None:
                yield f"{self.text}: {where or self.figure} is not there on both sides ({name})"
            elif _SIGNS[self.sign](ratio, self.bound):
                yield f"{self.text}: {where or self.figure} of {name} is {ratio:.4g} times that of the first"


def _failed(comparison: Comparison) -> list[str]:
    """Runs without figures pass no limit."""
    return [f"{side.name}: {error}" for side in comparison.sides for error in side.states]
