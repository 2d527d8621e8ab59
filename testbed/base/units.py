"""Quantities as people write them (`400Gbps`, `500ns`, `16MiB`) and the plain numbers the code counts in.

Rates are int bits per second, times float nanoseconds, sizes int bytes.  Arithmetic is decimal, so that a value
comes back unchanged: `parse_x(format_x(v)) == v` for every value that `parse_x` can return.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from topologies.graph.mistake import Mistake

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-zµμ]+)")


class UnitError(Mistake, ValueError):
    """A text that is no quantity of the kind asked for: `what` is wrong, `hint` says what is allowed."""


@dataclass(frozen=True)
class Kind:
    """A kind of quantity: its name, its units as multiples of the base unit, and whether fractions of that exist."""

    name: str
    example: str
    units: Mapping[str, Decimal]
    whole: bool  # no fractions of the base unit
    spellings: Mapping[str, str]  # other spellings of a unit that mean only one thing

    @property
    def hint(self) -> str:
        return f"write a number and one of {', '.join(self.units)}, such as {self.example}"

    @property
    def pattern(self) -> str:
        """A regular expression for editors; the parser is the judge."""
        return rf"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*({'|'.join([*self.units, *self.spellings])})\s*$"

    def parse(self, text: object) -> Decimal:
        """The value in base units.  Raises UnitError for anything but a number and a unit of this kind."""
        if not isinstance(text, str):
            shown = text if isinstance(text, int | float) and not isinstance(text, bool) else repr(text)[:40]
            missing = "has no unit" if shown is text else f"is not a {self.name}"
            raise UnitError(f"{shown} {missing}"[:80], self.hint)
        stripped = text.strip()
        if stripped.startswith("-"):
            raise UnitError(f"a {self.name} cannot be negative: {stripped[:40]!r}", self.hint)
        match = _QUANTITY.fullmatch(stripped)
        if match is None:
            bare = re.fullmatch(r"[0-9.]+", stripped)
            raise UnitError(f"{stripped[:40]!r} {'has no unit' if bare else f'is not a {self.name}'}", self.hint)
        number, unit = match.groups()
        unit = self.spellings.get(unit, unit)
        if unit not in self.units:
            raise UnitError(f"{unit!r} is not a unit of {self.name}", self.hint)
        value = Decimal(number) * self.units[unit]
        if self.whole and value != value.to_integral_value():
            raise UnitError(f"{stripped!r} is not a whole number of {next(iter(self.units))}", self.hint)
        return value

    def format(self, value: Decimal) -> str:
        """The shortest exact text, without a fraction where a unit allows it; among equals the largest unit."""
        texts: list[tuple[bool, bool, int, Decimal, str]] = []
        for unit, factor in self.units.items():
            mantissa = value / factor
            if mantissa * factor == value:
                number = f"{mantissa.normalize():f}"
                texts.append((mantissa < 1 and bool(texts), "." in number, len(number), -factor, number + unit))
        return min(texts)[-1]

    def parse_whole(self, text: object) -> int:
        """As `parse`, without a fraction."""
        return int(self.parse(text))

    def format_number(self, value: float) -> str:
        return self.format(Decimal(value))


_THOUSANDS = ("", "K", "M", "G", "T", "P")
RATE = Kind(
    "rate",
    "400Gbps",
    {f"{p}bps": Decimal(1000) ** i for i, p in enumerate(_THOUSANDS)},
    whole=True,
    spellings={"kbps": "Kbps"} | {p: f"{p}bps" for p in _THOUSANDS[1:]},  # 400G, as switches show a port's speed
)
TIME = Kind(
    "time",
    "500ns",
    {"ns": Decimal(1), "us": Decimal(10) ** 3, "ms": Decimal(10) ** 6, "s": Decimal(10) ** 9},
    whole=False,
    spellings={"µs": "us", "μs": "us"},
)
SIZE = Kind(
    "size",
    "16MiB",
    {f"{p}B": Decimal(1000) ** i for i, p in enumerate(_THOUSANDS[:5])}
    | {f"{p}iB": Decimal(1024) ** (i + 1) for i, p in enumerate(_THOUSANDS[1:5])},
    whole=True,
    spellings={"kB": "KB"},
)


FLOPS = Kind(
    "FLOP/s",
    "989TFLOPS",
    {f"{p}FLOPS": Decimal(1000) ** i for i, p in enumerate((*_THOUSANDS, "E"))},
    whole=True,
    spellings={p: f"{p}FLOPS" for p in (*_THOUSANDS[1:], "E")},
)
BANDWIDTH = Kind(
    "bandwidth",
    "3.35TBps",
    {f"{p}Bps": Decimal(1000) ** i for i, p in enumerate(_THOUSANDS)},
    whole=True,
    spellings={},
)


parse_flops, format_flops = FLOPS.parse_whole, FLOPS.format_number
"""`989T`, `989TFLOPS` <-> 989000000000000 (operations per second).  Parsers raise UnitError."""
parse_bandwidth, format_bandwidth = BANDWIDTH.parse_whole, BANDWIDTH.format_number
"""`3.35TBps` <-> 3350000000000 (bytes per second)."""
parse_rate, format_rate = RATE.parse_whole, RATE.format_number
"""`400Gbps` <-> 400000000000 (bits per second)."""
parse_size, format_size = SIZE.parse_whole, SIZE.format_number
"""`16MiB` <-> 16777216, `16MB` <-> 16000000 (bytes)."""


def parse_time(text: object) -> float:
    """`1.5us` -> 1500.0 (nanoseconds).  Raises UnitError."""
    return float(TIME.parse(text))


def format_time(ns: float) -> str:
    return TIME.format(Decimal(repr(float(ns))))
