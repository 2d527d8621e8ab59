"""Families: classes at one kind of place that no permitted view separates, as `testbed drill check --rivals` measures.

The file has, for each place at which all classes were tried and each sight (what drops tell, whether the configuration
is the true one), the classes with symptoms, in groups with the same symptoms. Groups may overlap. Two classes are a
family, at such a place and sight, if some group has both, and in no other world both had symptoms that differed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from drills.sheet.drill import Views
from drills.sheet.file import CATALOGUE
from drills.sheet.score import Families
from drills.sheet.truth import kind_of

FILE = CATALOGUE / "families.yaml"
_HEAD = "# Classes that show the same: written by `testbed drill check DRILL --rivals PLACE -o FILE`\n"


def sight_name(views: Views) -> str:
    return f"{views.drops} {views.config}"


@cache
def load(sight: str, path: Path = FILE) -> Families:
    """Those of a sight."""
    return families((kind_of(one["place"]), one["alike"][sight]) for one in _read(path))


def of(views: Views) -> Families:
    return load(sight_name(views))


def families(worlds: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> Families:
    """The family of a class at a kind of place; `worlds`: that kind, and the groups there."""
    together: dict[str, set[frozenset[str]]] = defaultdict(set)
    apart: dict[str, set[frozenset[str]]] = defaultdict(set)
    for at, groups in worlds:
        same = {frozenset(pair) for group in groups for pair in combinations(group, 2)}
        shown = sorted({kind for group in groups for kind in group})
        together[at] |= same
        apart[at] |= {frozenset(pair) for pair in combinations(shown, 2)} - same
    of: dict[tuple[str, str], set[str]] = defaultdict(set)
    for at, pairs in together.items():
        for pair in pairs - apart[at]:
            for kind in pair:
                of[at, kind] |= pair
    return {key: frozenset(kinds) for key, kinds in of.items()}


def write(drill: str, place: str, alike: Mapping[str, Sequence[Sequence[str]]], path: Path = FILE) -> None:
    """Keeps those of other worlds."""
    import yaml

    worlds = [one for one in _read(path) if (one["drill"], one["place"]) != (drill, place)]
    worlds.append({"drill": drill, "place": place, "alike": {sight: [*groups] for sight, groups in alike.items()}})
    worlds.sort(key=lambda one: (kind_of(one["place"]), one["drill"], one["place"]))
    text = yaml.safe_dump({"worlds": worlds}, sort_keys=False, default_flow_style=None, width=118)
    path.write_text(_HEAD + text, encoding="utf-8")
    load.cache_clear()


def _read(path: Path) -> list[dict[str, Any]]:
    import yaml

    return list(yaml.safe_load(path.read_text(encoding="utf-8"))["worlds"]) if path.exists() else []
