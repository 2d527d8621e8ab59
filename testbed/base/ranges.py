"""click's parameter types for numbers within limits; errors have the same words as those of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class Whole(click.IntRange):
    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(_wrong(self, value, int, "a whole number"), param, ctx)


class Number(click.FloatRange):
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(_wrong(self, value, float, "a number"), param, ctx)


def _wrong(within: click.IntRange | click.FloatRange, value: Any, number: Callable[[str], float], called: str) -> str:
    """What is wrong, what is allowed, and what was meant where a percentage stands for a share."""
    text = str(value)
    wrong = f"{text!r} is not {called}" if _read(number, text) is None else f"{text} is out of bounds"
    low = "" if within.min is None else f"{'more than' if within.min_open else 'at least'} {within.min:g}"
    high = "" if within.max is None else f"{'less than' if within.max_open else 'at most'} {within.max:g}"
    percent = _read(number, text[:-1]) if text.endswith("%") else None
    such_as = "" if percent is None else f", such as {percent / 100:g}"
    return f"{wrong}; must be {' and '.join(filter(None, (low, high)))}{such_as}" if low or high else wrong


def _read(number: Callable[[str], float], text: str) -> float | None:
    try:
        return number(text)
    except ValueError:
        return None
