"""Drawings show every node and cable, in place and legibly."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pkgutil import iter_modules
from typing import Any
from xml.etree import ElementTree

import pytest

from topologies import KINDS, Fabric, build, drawing, kinds
from topologies.drawing import as_svg, as_text

SVG = "{http://www.w3.org/2000/svg}"
WHOLE: list[tuple[str, dict[str, Any]]] = [
    ("rail", {"servers": 1, "gpus": 1, "spines": 0}),
    ("rail", {"servers": 4, "gpus": 2}),
    ("rail", {"servers": 9, "gpus": 1, "spines": 3}),
    ("rail", {"servers": 64, "gpus": 8, "spines": 4}),
    ("clos", {"leaves": 1, "spines": 1, "hosts_per_leaf": 1}),
    ("clos", {"leaves": 4, "spines": 2, "hosts_per_leaf": 4}),
    ("clos", {"leaves": 16, "spines": 8, "hosts_per_leaf": 16}),
    ("clos", {"leaves": 2, "spines": 3, "hosts_per_leaf": 2, "pods": 3, "cores": 4}),
    ("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2, "gpus": 3}),
    ("ring", {"nodes": 2}),
    ("ring", {"nodes": 3}),
    ("ring", {"nodes": 40}),
    ("torus", {"dims": [5]}),
    ("torus", {"dims": [2, 2]}),
    ("torus", {"dims": [4, 4]}),
    ("torus", {"dims": [4, 3, 5]}),
    ("torus", {"dims": [2, 3, 2, 4]}),
    ("torus", {"dims": [2] * 7}),
    ("star", {"hosts": 1}),
    ("star", {"hosts": 2}),
    ("star", {"hosts": 40}),
    ("torus", {"dims": [3, 4], "direct": True}),
    ("ring", {"nodes": 5, "direct": True}),
]
ANY: list[tuple[str, dict[str, Any]]] = [
    ("star", {"hosts": 5, "links": 3}),
    ("clos", {"leaves": 4, "spines": 2, "hosts_per_leaf": 2, "links": 2}),
    ("custom", {"nodes": {"a": "host", "b": "host", "s": "switch"}, "cables": ["a-s", "b-s"]}),
    (
        "custom",
        {
            "nodes": {f"n{i}": {"kind": "host", "forwards": True} for i in range(6)},
            "cables": [f"n{i}-n{(i + 1) % 6}" for i in range(6)],
        },
    ),
]
LONG: list[tuple[str, dict[str, Any], str]] = [
    ("rail", {"servers": 100, "gpus": 30, "spines": 60}, "29 more servers"),
    ("clos", {"leaves": 60, "spines": 60, "hosts_per_leaf": 30}, "29 more"),
    ("clos", {"leaves": 9, "spines": 9, "hosts_per_leaf": 2, "pods": 12, "cores": 60}, "5 more pods"),
    ("ring", {"nodes": 1024}, "985 more nodes"),
    ("star", {"hosts": 254}, "215 more"),
]


def modules(path: Iterable[str]) -> set[str]:
    return {file.name for file in iter_modules(path) if not file.ispkg}


def test_a_drawing_is_found_by_the_name_of_its_kind() -> None:
    assert set(KINDS) == modules(kinds.__path__)
    assert modules(drawing.__path__) - {"network"} <= set(KINDS)


def case(value: object) -> str | None:
    return "-".join(str(v) for v in value.values()) if isinstance(value, dict) else None


def boxes(svg: ElementTree.Element) -> dict[str, tuple[float, float, float, float]]:
    """Label -> (left, top, right, bottom) of every node."""
    found = {}
    for group in svg.iter(f"{SVG}g"):
        if group.get("class") == "node":
            rect, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
            assert rect is not None
            assert label is not None
            x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
            assert label.text is not None
            assert label.text not in found
            found[label.text] = (x, y, x + w, y + h)
    return found


def cable_names(svg: ElementTree.Element) -> list[str]:
    tips = [p.findtext(f"{SVG}title", "") for p in svg.iter(f"{SVG}path") if p.get("class") == "cable"]
    return [tip.partition(":")[0] for tip in tips]


def parse(fabric: Fabric) -> ElementTree.Element:
    return ElementTree.fromstring(as_svg(fabric))


def check_layout(svg: ElementTree.Element) -> None:
    """Nothing lies on or off: boxes apart and inside the picture, paths inside too."""
    left, top, width, height = map(float, svg.attrib["viewBox"].split())
    placed = sorted(boxes(svg).values())
    for i, one in enumerate(placed):
        assert left <= one[0] < one[2] <= left + width
        assert top <= one[1] < one[3] <= top + height
        for other in placed[i + 1 :]:
            if other[0] >= one[2]:
                break
            assert other[1] >= one[3] or other[3] <= one[1], f"{one} lies on {other}"
    for path in svg.iter(f"{SVG}path"):
        start = re.match(r"M([-\d.]+),([-\d.]+)", path.attrib["d"])
        assert start
        assert left <= float(start[1]) <= left + width
        assert top <= float(start[2]) <= top + height


@pytest.mark.parametrize(("kind", "params"), WHOLE, ids=case)
def test_svg_shows_every_node_and_cable_once(kind: str, params: dict[str, Any]) -> None:
    fabric = build(kind, params)
    svg = parse(fabric)
    assert set(boxes(svg)) == {n.name for n in fabric.nics} | {s.name for s in fabric.switches}
    assert sorted(cable_names(svg)) == sorted(c.name for c in fabric.cables)
    check_layout(svg)
    assert as_svg(fabric) == as_svg(fabric)


@pytest.mark.parametrize(("kind", "params"), ANY)
def test_a_network_of_any_shape_is_drawn_without_the_inside_of_its_nics(kind: str, params: dict[str, Any]) -> None:
    fabric = build(kind, params)
    svg = parse(fabric)
    bridges = {b.name for n in fabric.nics if (b := fabric.bridge_of(n.name))}
    assert set(boxes(svg)) == ({n.name for n in fabric.nics} | {s.name for s in fabric.switches}) - bridges
    assert sorted(cable_names(svg)) == sorted(c.name for c in fabric.cables if c.name not in fabric.inside)
    check_layout(svg)
    text = as_text(fabric)
    for node in boxes(svg):
        assert node in text


@pytest.mark.parametrize(("kind", "params", "says"), LONG, ids=case)
def test_svg_of_a_long_fabric_says_what_it_leaves_out(kind: str, params: dict[str, Any], says: str) -> None:
    fabric = build(kind, params)
    svg = parse(fabric)
    assert says in " ".join(t.text or "" for t in svg.iter(f"{SVG}text"))
    drawn = boxes(svg)
    assert {fabric.nics[0].name, fabric.nics[-1].name, fabric.switches[0].name, fabric.switches[-1].name} <= set(drawn)
    assert set(cable_names(svg)) <= {c.name for c in fabric.cables}
    # Of what is drawn, every cable is.
    ends = {c.name for c in fabric.cables if {c.a.node, c.b.node} <= set(drawn)}
    assert sorted(cable_names(svg)) == sorted(ends)
    check_layout(svg)


@pytest.mark.parametrize("dims", [[4, 4], [4, 3, 5], [2, 2, 2], [2, 3, 2, 4]], ids=str)
def test_straight_cables_of_a_torus_run_beside_other_nodes(dims: list[int]) -> None:
    svg = parse(build("torus", {"dims": dims}))
    nodes = boxes(svg)
    straight = 0
    for path in svg.iter(f"{SVG}path"):
        line = re.fullmatch(r"M([-\d.]+),([-\d.]+)L([-\d.]+),([-\d.]+)", path.attrib["d"])
        if not line:
            continue
        straight += 1
        x0, y0, x1, y1 = map(float, line.groups())
        for share in (i / 50 for i in range(51)):
            x, y = x0 + (x1 - x0) * share, y0 + (y1 - y0) * share
            hit = [name for name, (a, b, c, d) in nodes.items() if a < x < c and b < y < d]
            tip = path.findtext(f"{SVG}title", "").partition(":")[0]
            assert all(tip.startswith(f"{name}-") or tip.endswith(f"-{name}") for name in hit), f"{tip} hits {hit}"
    assert straight > 0


def test_rails_have_colours_of_their_own() -> None:
    fabric = build("rail", {"servers": 2, "gpus": 12})
    colours: dict[str, set[str]] = {}
    for path in parse(fabric).iter(f"{SVG}path"):
        tip = path.findtext(f"{SVG}title", "")
        if tip.startswith("h"):
            colours.setdefault(tip.partition(":")[0].partition("-")[2], set()).add(path.attrib["stroke"])
    assert len(colours) == 12
    assert len(set.union(*colours.values())) == 12


def test_svg_tells_addresses_and_ports_on_hover() -> None:
    text = as_svg(build("rail", {"servers": 2, "gpus": 2}))
    assert "h1.1: rank 3, 10.1.0.2, 02:00:0a:01:00:02" in text
    assert "h1.1-rail1: port 1 to port 2" in text


@pytest.mark.parametrize(("kind", "params"), WHOLE, ids=case)
def test_text_names_every_node_that_it_has_room_for(kind: str, params: dict[str, Any]) -> None:
    fabric = build(kind, params)
    words = set(re.findall(r"[\w.-]+", as_text(fabric, width=10_000)))
    if "more" in words:
        assert len(fabric.hosts) > 40
    else:
        assert {n.name for n in fabric.nics} | {s.name for s in fabric.switches} <= words


@pytest.mark.parametrize(("kind", "params"), [*WHOLE, *(item[:2] for item in LONG)], ids=case)
def test_text_fits_a_terminal(kind: str, params: dict[str, Any]) -> None:
    text = as_text(build(kind, params), width=100)
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= 100


def test_text_by_example() -> None:
    lines = as_text(build("rail", {"servers": 2, "gpus": 2})).splitlines()
    assert lines == [
        "rail: 2 servers × 2 GPUs, 1 spine",
        "4 NICs · 3 switches · 6 cables · 2 scale-up domains of 2",
        "",
        "    spine0",
        "    │ every rail to every spine",
        "    rail0            rail1",
        "h0  ├ h0.0 10.0.0.1  ├ h0.1 10.1.0.1",
        "h1  └ h1.0 10.0.0.2  └ h1.1 10.1.0.2",
    ]
    assert as_text(build("ring", {"nodes": 5})).splitlines()[3:5] == [
        "┌─ sw0 h0 ── sw1 h1 ── sw2 h2 ─┐",
        "└─ sw4 h4 ── sw3 h3 ───────────┘",
    ]
