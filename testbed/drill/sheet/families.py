"""Families of classes that no permitted view separates, as `testbed drill check --rivals` has computed them.

What looks the same to those who see more looks the same to those who see less, so a drill has the families of all
sights that are no worse than its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from testbed.drill.sheet.drill import Views
from testbed.drill.sheet.file import CATALOGUE
from testbed.drill.sheet.score import Families

FILE = CATALOGUE / "families.yaml"
_DROPS, _CONFIG = ("wjh", "counters", "asic"), ("true", "golden")
"""From the best to the worst."""


@cache
def load(drops: str = "asic", config: str = "golden", path: Path = FILE) -> Families:
    """Those of a sight. None where nothing has been computed."""
    import yaml

    if not path.exists():
        return ()
    told = yaml.safe_load(path.read_text(encoding="utf-8"))["families"]
    return joined(
        frozenset(one["classes"])
        for one in told
        if _DROPS.index(one["drops"]) <= _DROPS.index(drops) and _CONFIG.index(one["config"]) <= _CONFIG.index(config)
    )


def of(views: Views) -> Families:
    return load(views.drops, views.config)


def joined(families: Iterable[frozenset[str]]) -> Families:
    """One of those that share a class."""
    found: list[frozenset[str]] = []
    for family in families:
        near = [other for other in found if other & family]
        found = [other for other in found if other not in near] + [family.union(*near)]
    return tuple(found)
