"""What the text and the SVG drawing share: the heading, and leaving out the middle of long rows."""

from __future__ import annotations

from .fabric import EMBEDDED, Fabric

Row = list[int | None]  # indices, and None where some are left out


def shown(count: int, most: int) -> Row:
    """The indices to draw out of `count`: all, or the first ones, a gap, and the last."""
    if count <= most:
        return list(range(count))
    return [*range(most - 2), None, count - 1]


def missing(count: int, row: Row) -> int:
    """How many of `count` the row leaves out."""
    return count - sum(i is not None for i in row)


def title(fabric: Fabric) -> str:
    p = fabric.params
    match fabric.kind:
        case "rail":
            spines = f", {plural(p['spines'], 'spine')}" if p["spines"] else ""
            return f"rail: {plural(p['servers'], 'server')} × {plural(p['gpus'], 'GPU')}{spines}"
        case "clos":
            tiers = f"{plural(p['leaves'], 'leaf')}, {plural(p['spines'], 'spine')}"
            pods = f"{p['pods']} pods of {tiers}, {plural(p['cores'], 'core')}" if p["pods"] > 1 else tiers
            several = f", {p['links']} ports each" if p["links"] > 1 else ""
            return f"clos: {pods}, {plural(p['hosts_per_leaf'], 'host')} per leaf{several}"
        case "torus":
            return "torus: " + " × ".join(map(str, p["dims"])) + (", direct" if p["direct"] else "")
        case "ring":
            return f"ring: {p['nodes']} nodes" + (", direct" if p["direct"] else "")
        case _:
            several = f", {p['links']} ports each" if p.get("links", 1) > 1 else ""
            return f"{fabric.kind}: {plural(len(fabric.hosts), 'host')}{several}"


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
