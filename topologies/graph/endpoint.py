"""Ends of messages: ranks, by number, and the compute complexes of their off-path SmartNICs, `nic:RANK.complex`.

A complex is an int, so that it may stand wherever a rank does, but one that is no rank of any fabric: whoever has not
asked for its number refuses it, by its name.
"""

from __future__ import annotations

import re
from typing import Self

from topologies.graph.fabric import Fabric

FORM = "nic:RANK.complex"

_WRITTEN = re.compile(r"nic:(0|[1-9][0-9]{0,8})\.complex")


class OfNic(int):
    """The compute complex of the SmartNIC of rank `rank`."""

    @classmethod
    def of(cls, rank: int) -> Self:
        return cls(~rank)

    @property
    def rank(self) -> int:
        return ~int(self)

    def __str__(self) -> str:
        return f"nic:{self.rank}.complex"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def parse(text: str) -> OfNic | None:
    """The complex that is written there, if any."""
    match = _WRITTEN.fullmatch(text)
    return OfNic.of(int(match[1])) if match else None


def number(end: int, fabric: Fabric) -> int:
    """The number of an end among all of the fabric: that of its NIC in `fabric.nics`."""
    return fabric.ranks + end.rank if isinstance(end, OfNic) else end


def name(number: int, ranks: int) -> str:
    """How an end of that number is written, where there are so many ranks."""
    return str(number) if number < ranks else str(OfNic.of(number - ranks))


def missing(end: int, fabric: Fabric) -> tuple[str, str] | None:
    """Why the fabric has no such end, and what it has."""
    ranks = f"this fabric has ranks 0 to {fabric.ranks - 1}"
    if not isinstance(end, OfNic):
        return None if 0 <= end < fabric.ranks else (f"there is no rank {end}", ranks)
    if not fabric.complexes:
        return f"there is no {end}: these NICs have no compute complex", "fabric.nic.kind: off_path"
    return None if end.rank < fabric.ranks else (f"there is no rank {end.rank}, and no {end}", ranks)
