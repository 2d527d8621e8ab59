"""Numbers within limits, as click's parameters: in messages of its own they would be an `integer range`."""

from __future__ import annotations

import click


class Whole(click.IntRange):
    """Whole numbers."""

    name = "integer"


class Number(click.FloatRange):
    """Numbers."""

    name = "number"
