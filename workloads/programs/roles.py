"""Whose compute complexes take part in a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def first(ranks: Sequence[int], step: Mapping[str, Any]) -> Sequence[int]:
    return ranks[:1]


def feeders(ranks: Sequence[int], step: Mapping[str, Any]) -> Sequence[int]:
    return ranks[: -len(step["feed"]["compute"])]


def everybody(ranks: Sequence[int], step: Mapping[str, Any]) -> Sequence[int]:
    return ranks
