"""A span of values, `LOW..HIGH`, from which some are drawn: of whole numbers, numbers, or quantities with a unit.

`10..100`, `0.1..0.9`, `1Mbps..1Gbps`. With ` log` behind it each factor counts the same. What is drawn is written as a
person would write it: whole numbers as such, others with four digits, quantities with their unit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from testbed.base.units import BANDWIDTH, FLOPS, RATE, SIZE, TIME, Kind, UnitError

HINT = "LOW..HIGH, such as 1..64, 0.1..0.9, 1Mbps..1Gbps or '1KB..1MB log'"
_SPAN = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)(\s+log)?\s*")
_DIGITS = 4


@dataclass(frozen=True)
class Span:
    """From `low` to `high`, both included, in base units of `kind` if there is one."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    kind: Kind | None = None

    def at(self, share: float) -> Any:
        """The value below which lies that share (0 to 1) of all."""
        if self.whole and self.kind is None:
            return min(int(self.high), math.floor(self._between(self.low, self.high + 1, share)))
        return self.written(self._between(self.low, self.high, share))

    def _between(self, low: float, high: float, share: float) -> float:
        return math.exp(math.log(low) + share * math.log(high / low)) if self.log else low + share * (high - low)

    def written(self, value: float) -> Any:
        """A value of it as an experiment file has it."""
        if self.whole and self.kind is None:
            return round(value)
        short = Decimal(f"{min(max(value, self.low), self.high):.{_DIGITS}g}")
        if self.kind is None:
            return float(short)
        short = short.to_integral_value() if self.whole else short
        units = {unit: factor for unit, factor in self.kind.units.items() if "i" not in unit}  # of thousands
        unit = next((one for one, factor in reversed(units.items()) if short >= factor), next(iter(units)))
        return f"{(short / units[unit]).normalize():f}{unit}"

    def number(self, value: Any) -> float | None:
        """Where that value, as it stands in a file, lies; None if it is none of the span's."""
        try:
            at = float(self.kind.parse(value)) if self.kind else float(value)
        except (UnitError, TypeError, ValueError):
            return None
        return at if self.low <= at <= self.high else None


def span(text: object) -> Span:
    """Reads one. Raises ValueError, which says what is wrong."""
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r:.60} is no span of values")
    low, high, log = match[1], match[2], bool(match[3])
    made = _of_numbers(low, high, log) or _of_quantities(low, high, log)
    if made is None:
        raise ValueError(f"{text!r:.60}: its ends are not two numbers, nor two quantities of one kind")
    if not made.low < made.high:
        raise ValueError(f"{text!r:.60}: its low end is not below its high one")
    if log and made.low <= 0:
        raise ValueError(f"{text!r:.60}: a logarithm needs a low end above 0")
    return made


def _of_numbers(low: str, high: str, log: bool) -> Span | None:
    whole = all(re.fullmatch(r"[-+]?\d{1,15}", end) for end in (low, high))
    try:
        ends = float(low), float(high)
    except ValueError:
        return None
    return Span(*ends, log, whole) if all(map(math.isfinite, ends)) else None


def _of_quantities(low: str, high: str, log: bool) -> Span | None:
    for kind in (RATE, TIME, SIZE, BANDWIDTH, FLOPS):
        try:
            return Span(float(kind.parse(low)), float(kind.parse(high)), log, kind.whole, kind)
        except UnitError:
            continue
    return None
