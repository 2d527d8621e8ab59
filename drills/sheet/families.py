"""Families: classes at one kind of place that no permitted view separates, as `testbed drill check --rivals` has found.

The file has, of each world that was struck, the classes that showed something there, in groups that showed the same,
at each sight (what drops tell, whether the configuration is the true one). Groups may overlap: two classes showed the
same if any group has both. They are a family, at such a place and sight, if they showed the same somewhere, and were
told apart nowhere: where one shows nothing, nothing is said of both.
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
    """Those of a sight. None where nothing has been computed."""
    return families((kind_of(one["place"]), one["alike"][sight]) for one in _read(path))


def of(views: Views) -> Families:
    return load(sight_name(views))


def families(worlds: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> Families:
    """By the kind of place and a class, all that are like it; `worlds`: that kind, and the groups found there."""
    together: dict[str, set[frozenset[str]]] = defaultdict(set)
    apart: dict[str, set[frozenset[str]]] = defaultdict(set)
    for at, groups in worlds:
        same = {frozenset(pair) for group in groups for pair in combinations(group, 2)}
        shown = sorted({kind for group in groups for kind in group})
        together[at] |= same
        apart[at] |= {frozenset(pair) for pair in combinations(shown, 2)} - same
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for at, pairs in together.items():
        for pair in pairs - apart[at]:
            for kind in pair:
                found[at, kind] |= pair
    return {key: frozenset(kinds) for key, kinds in found.items()}


def write(drill: str, place: str, alike: Mapping[str, Sequence[Sequence[str]]], path: Path = FILE) -> None:
    """Beside what is there of other worlds."""
    import yaml

    kept = [one for one in _read(path) if (one["drill"], one["place"]) != (drill, place)]
    worlds = [*kept, {"drill": drill, "place": place, "alike": {sight: [*groups] for sight, groups in alike.items()}}]
    worlds.sort(key=lambda one: (kind_of(one["place"]), one["drill"], one["place"]))
    text = yaml.safe_dump({"worlds": worlds}, sort_keys=False, default_flow_style=None, width=118)
    path.write_text(_HEAD + text, encoding="utf-8")
    load.cache_clear()


def _read(path: Path) -> list[dict[str, Any]]:
    import yaml

    if not path.exists():
        return []
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["worlds"]
    return found
