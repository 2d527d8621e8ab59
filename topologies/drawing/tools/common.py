"""What the text and the SVG drawing share: the line below the heading, and leaving out the middle of long rows."""

from __future__ import annotations

from topologies.graph.fabric import EMBEDDED, Fabric

Row = list[int | None]  # indices, and None where some are left out


def shown(count: int, most: int) -> Row:
    """The indices to draw out of `count`: all, or the first ones, a gap, and the last."""
    if count <= most:
        return list(range(count))
    return [*range(most - 2), None, count - 1]


def missing(count: int, row: Row) -> int:
    """How many of `count` the row leaves out."""
    return count - sum(i is not None for i in row)


def subtitle(fabric: Fabric) -> str:
    counts = [
        plural(len(fabric.nics), "NIC"),
        plural(sum(s.role not in EMBEDDED for s in fabric.switches), "switch"),
        plural(len(fabric.cables) - len(fabric.inside), "cable"),
    ]
    if fabric.scale_up:
        counts.append(f"{plural(len(fabric.scale_up), 'scale-up domain')} of {len(fabric.scale_up[0])}")
    return " · ".join(counts)


def plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    ending = {"leaf": "leaves", "switch": "switches", "address": "addresses"}.get(noun, noun + "s")
    return f"{count} {ending}"
