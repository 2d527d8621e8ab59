"""Families of classes that no permitted view separates, as `testbed drill check --rivals` has computed them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from testbed.drill.sheet.file import CATALOGUE
from testbed.drill.sheet.score import Families

FILE = CATALOGUE / "families.yaml"


@cache
def load(path: Path = FILE) -> Families:
    """None where nothing has been computed."""
    import yaml

    if not path.exists():
        return ()
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple(frozenset(one["classes"]) for one in told["families"])
