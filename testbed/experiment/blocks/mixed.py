"""Keys of `transport.nics` and `transport.classes`: ranks, ranges of ranks, and traffic classes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from testbed.base.types import mistake, mistakes

_RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@lru_cache(1024)
def ranks_of(written: str) -> range:
    """The ranks that `RANK` or `FIRST-LAST` names; an empty range for anything else."""
    match = _RANKS.fullmatch(written)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)


def keyed(value: Any, which: str) -> Any:
    """The mapping with keys of the kind that it has. Raises what a validator raises."""
    if not isinstance(value, dict):
        raise mistake(f"{value!r:.40} is no mapping", _HINT[which])
    return {"nics": _nics, "classes": _classes}[which](value)


_HINT = {
    "nics": "write {RANK: {cc: dcqcn}}, or {FIRST-LAST: ..}",
    "classes": "write {CLASS: {cc: dcqcn}}, with a class from 0 to 7",
}


def _nics(value: dict[Any, Any]) -> dict[str, Any]:
    found, seen = [], dict[int, str]()
    for written in value:
        ranks = ranks_of(str(written)) if isinstance(written, int | str) and written is not True else range(0)
        if not ranks:
            found.append(((written,), f"{written!r:.40} names no NIC", _HINT["nics"]))
        elif (twice := next((rank for rank in ranks if rank in seen), None)) is not None:
            found.append(((written,), f"rank {twice} is in {seen[twice]!r} already", "name each rank once"))
        seen |= dict.fromkeys(ranks, str(written))
    if found:
        raise mistakes(found)
    return {str(written): own for written, own in value.items()}


def _classes(value: dict[Any, Any]) -> dict[int, Any]:
    made = {int(key) if isinstance(key, str) and re.fullmatch("[0-7]", key) else key: own for key, own in value.items()}
    for key in made:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key <= 7:
            raise mistake(f"{key!r:.40} is no traffic class", _HINT["classes"], [key])
        if isinstance(made[key], dict) and "dscp" in made[key]:
            raise mistake("what is sent in a class has its DSCP", "leave dscp out", [key, "dscp"])
    return made
