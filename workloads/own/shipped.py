"""An algorithm of a user's own in a rank's container: an entry like ours, whose programs stand in the plan.

It needs what ranks have: neither the file, nor what reads and checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workloads.base.entry import Algorithm
from workloads.own.book import Book
from workloads.own.name import parse


def shipped(like: Algorithm, name: str, told: Mapping[str, Any]) -> Algorithm:
    """In a rank's container: of what its plan has of it."""
    parsed = parse(name)
    assert parsed is not None
    return replace(alike(like, parsed.short, Book(told["programs"])), apart=told["apart"])


def alike(like: Algorithm, name: str, schedule: Any) -> Algorithm:
    return Algorithm(
        like.collective, name, "of a user's own file", like.code, "", name, like.ops, min_ranks=2,
        extra=tuple(dict.fromkeys(("chunk", *like.extra))), defaults=like.defaults, own=schedule,
    )  # fmt: skip
