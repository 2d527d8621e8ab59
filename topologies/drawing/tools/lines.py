"""A fabric as text, for a terminal: spines over rails over servers, a tree of pods, a loop, planes of a grid.

Where there is more than fits, the middle is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from .draw_any import as_lines
from .draw_common import Row, missing, plural, shown, subtitle, title
from .fabric import OWN_PORTS, Fabric
from .smartnic import without_complexes
from .torus import dimensions

ROWS = 40


def as_text(fabric: Fabric, width: int = 100) -> str:
    """A drawing of at most `width` columns (a little more for a few long names), ending in a newline."""
    bare = without_complexes(fabric)
    about = [title(bare), subtitle(bare)]
    if fabric.complexes:
        about.append("in every NIC an embedded bridge, nic0 .., and a compute complex, arm0 ..")
    several = any(s.role == OWN_PORTS for s in bare.switches)
    layout = as_lines if several else _LAYOUTS.get(bare.kind, as_lines)
    lines = [*about, "", *layout(bare, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rail(fabric: Fabric, width: int) -> Iterator[str]:
    p = fabric.params
    left = len(fabric.hosts[-1].name) + 2
    labels = [f"{nic.name} {nic.ip}" for nic in fabric.nics]
    if p["gpus"] * (max(map(len, labels)) + 4) > width - left:
        labels = [nic.name for nic in fabric.nics]
    cell = max(10, max(map(len, labels)) + 4)
    columns = shown(p["gpus"], max(3, (width - left) // cell))
    if p["spines"]:
        for line in _flow([f"spine{i}" for i in range(p["spines"])], width - left):
            yield " " * left + line
        yield " " * left + "│ every rail to every spine" if p["gpus"] > 1 else " " * left + "│"
    yield " " * left + _cells([_gap(p["gpus"], columns) if r is None else f"rail{r}" for r in columns], cell)
    rows = shown(p["servers"], ROWS)
    for s in rows:
        if s is None:
            yield " " * left + _cells(["┊" if r is None else "│" for r in columns], cell)
            yield _gap(p["servers"], rows) + " servers"
            continue
        elbow = "└" if s == p["servers"] - 1 else "├"
        texts = ["…" if r is None else f"{elbow} {labels[s * p['gpus'] + r]}" for r in columns]
        yield f"h{s}".ljust(left) + _cells(texts, cell)
    if labels[0] == fabric.nics[0].name:
        yield ""
        yield _addresses(fabric)


def _clos(fabric: Fabric, width: int) -> Iterator[str]:
    p = fabric.params
    pods = shown(p["pods"], 12)
    if p["cores"]:
        yield from _flow([f"core{i}" for i in range(p["cores"])], width)
        yield "│ every spine to every core"
    for pod in pods:
        if pod is None:
            yield f"┊ {_gap(p['pods'], pods)} pods"
            continue
        last = pod == p["pods"] - 1
        several = p["pods"] > 1
        indent = ("  " if last else "│ ") if several else ""
        spines = [f"spine{pod * p['spines'] + i}" for i in range(p["spines"])]
        for i, line in enumerate(_flow(spines, width - 12)):
            head = f"{'└' if last else '├'} pod {pod}: " if several and i == 0 else indent
            yield head + line
        yield f"{indent}│ every leaf to every spine" + (" of the pod" if several else "")
        yield from (indent + line for line in _leaves(fabric, pod, width - len(indent)))


def _leaves(fabric: Fabric, pod: int, width: int) -> Iterator[str]:
    p = fabric.params
    leaves = shown(p["leaves"], ROWS if p["pods"] == 1 else 8)
    label = len(f"leaf{p['pods'] * p['leaves'] - 1}")
    cell = max(len(f"{n.name} {n.ip}") for n in fabric.nics)
    for i in leaves:
        if i is None:
            yield f"┊ {_gap(p['leaves'], leaves)} leaves"
            continue
        leaf = pod * p["leaves"] + i
        hosts = fabric.nics[leaf * p["hosts_per_leaf"] : (leaf + 1) * p["hosts_per_leaf"]]
        last = i == p["leaves"] - 1
        for k, line in enumerate(_flow([f"{n.name} {n.ip}".ljust(cell) for n in hosts], width - label - 5, most=3)):
            head = f"{'└' if last else '├'} {f'leaf{leaf}'.ljust(label)} ─ " if k == 0 else f"{' ' if last else '│'}"
            yield head.ljust(label + 5) + line


def _loop(fabric: Fabric, width: int) -> Iterator[str]:
    """A ring, folded in two rows; with two nodes there is one cable and nothing to fold."""
    count = len(fabric.nics)
    names = [f"{s.name} {n.name}" for s, n in zip(fabric.switches, fabric.nics, strict=True)]
    if count == 2:
        yield " ── ".join(names)
    else:
        row = shown(count, max(4, 2 * ((width - 6) // (max(map(len, names)) + 4))))
        texts = [f"… {missing(count, row)} more" if i is None else names[i] for i in row]
        upper, lower = texts[: (len(texts) + 1) // 2], texts[(len(texts) + 1) // 2 :][::-1]
        cell = max(map(len, texts))
        over, under = _wired(upper, cell), _wired(lower, cell)
        length = max(len(over), len(under))
        # An odd ring's lower row is one short: its last cable is that much longer.
        yield f"┌─ {over} ".ljust(length + 4, "─") + "─┐"
        yield f"└─ {under} ".ljust(length + 4, "─") + "─┘"
    yield ""
    yield _addresses(fabric)


def _star(fabric: Fabric, width: int) -> Iterator[str]:
    yield fabric.switches[0].name
    lines = list(_flow([f"{n.name} {n.ip}" for n in fabric.nics], width - 2))
    for i, line in enumerate(lines):
        yield f"{'└' if i == len(lines) - 1 else '├'} {line}"


def _torus(fabric: Fabric, width: int) -> Iterator[str]:
    dims = dimensions(fabric)
    if len(dims) == 1:
        yield from _loop(fabric, width)
        return
    planes = list(product(*map(range, dims[:-2])))
    picked = shown(len(planes), 8)
    for i in picked:
        if i is None:
            yield f"{_gap(len(planes), picked)} planes"
        else:
            yield from _plane(fabric, dims, planes[i], width)
        yield ""
    wraps = ", ".join(str(axis) for axis, size in enumerate(dims) if size > 2)
    yield "the last dimension runs right, the one before it down" + (
        ", and each place in the others is a plane" if dims[2:] else ""
    )
    if wraps:
        yield f"the last node is cabled to the first along dimensions {wraps} (the first is 0)"
    yield _addresses(fabric)


def _plane(fabric: Fabric, dims: tuple[int, ...], at: tuple[int, ...], width: int) -> Iterator[str]:
    host = {s.name: n.name for s, n in zip(fabric.switches, fabric.nics, strict=True)}
    switches = {s.place: s.name for s in fabric.switches}
    cell = max(len(f"{switch} {nic}") for switch, nic in host.items())
    columns, rows = shown(dims[-1], max(4, width // (cell + 4))), shown(dims[-2], 16)
    stems = " " * (cell // 2)
    for y in rows:
        if y is None:
            yield stems + _gap(dims[-2], rows)
            continue
        if y:
            yield "    ".join((stems + ("┊" if x is None else "│")).ljust(cell) for x in columns)
        names = ["…" if x is None else switches[*at, y, x] for x in columns]
        yield _wired([f"{n} {host[n]}" if n in host else n for n in names], cell)


def _addresses(fabric: Fabric) -> str:
    first, last = fabric.nics[0], fabric.nics[-1]
    return f"{plural(len(fabric.nics), 'address')}: {first.name} {first.ip} to {last.name} {last.ip}"


def _wired(texts: Sequence[str], width: int) -> str:
    """The texts in columns of this width, joined by cables."""
    return "".join(f"{text} ".ljust(width + 3, "─") + " " for text in texts[:-1]) + texts[-1]


def _cells(texts: Sequence[str], width: int) -> str:
    return "".join(text.ljust(width) for text in texts)


def _gap(count: int, row: Row) -> str:
    return f"… {missing(count, row)} more"


def _flow(texts: Sequence[str], width: int, most: int = ROWS) -> Iterator[str]:
    """The texts in columns, as many as fit, in at most `most` lines."""
    cell = max(map(len, texts)) + 2
    across = max(1, width // cell)
    row = shown(len(texts), max(3, across * most))
    picked = [_gap(len(texts), row) if i is None else texts[i] for i in row]
    for i in range(0, len(picked), across):
        yield _cells(picked[i : i + across], cell)


_LAYOUTS = {"rail": _rail, "clos": _clos, "ring": _loop, "torus": _torus, "star": _star}  # any other: as_lines
