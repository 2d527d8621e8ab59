"""The table of signatures: each setting struck by each recipe that can be drawn there, and what shows of it.

`python -m drills.make.signatures [SETTING [RECIPE ..]]` measures it (a world for each) and writes it; without it
nothing says which faults look alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from drills.check.looked import playing
from drills.check.marks import Signature
from drills.check.probes import Probed, of_probes, probed
from drills.check.symptom import steps, symptom
from drills.make import signs
from drills.make.sketch import CHECKED, Sketch, plain
from drills.make.stock import RECIPES, SETTINGS
from drills.sheet.case import Case
from drills.sheet.drill import Drill
from drills.sheet.families import sight_name
from drills.sheet.file import CATALOGUE, loads
from testbed.base.errors import InputError, MachineError, UserError

FILE = CATALOGUE / "signatures.json"
_NONE = "nobody knows what looks alike here"

Table = Mapping[str, Mapping[str, Signature]]
"""Of a setting: by sight (sight_name), by recipe."""


@dataclass(frozen=True)
class Look:
    """A world as it was looked at."""

    seen: Mapping[str, Any]  # by sight
    steps: list[tuple[float, float, int]]
    probes: Probed


def drill_of(sketch: Sketch) -> Drill:
    return loads(sketch.text("Signatures", "", "easy", ()), "signatures", id="drill")


def looked(drill: Drill, seed: str, *, healthy: bool) -> Look:
    with playing(drill, seed, healthy=healthy) as game:
        seen = {sight_name(sight): signs.seen(game, sight) for sight in signs.SIGHTS}
        return Look(seen, steps(game), probed(game))


def compared(ill: Look, well: Look, from_ns: float) -> dict[str, Signature]:
    """The signature, by sight."""
    job = symptom(ill.steps, well.steps, from_ns)
    probes = of_probes(ill.probes, well.probes)
    return {sight: signs.signed(ill.seen[sight], well.seen[sight], job, probes) for sight in ill.seen}


@cache
def table(setting: str, path: Path = FILE) -> Table:
    """Raises MachineError if nothing has been measured."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        its, columns = told["settings"][setting], told["columns"]
    except (OSError, ValueError, KeyError):
        hint = f"python -m drills.make.signatures {setting}"
        raise MachineError(f"{_NONE}: {path.name} has no {setting}", hint=hint) from None
    return {
        sight: {key: frozenset(columns[n] for n in numbers) for key, numbers in rows.items()}
        for sight, rows in its.items()
    }


def struck(name: str) -> list[str]:
    """The recipes that strike a setting, if they can be drawn there."""
    near = {name, *SETTINGS[name].rivals}
    return [key for key, recipe in RECIPES.items() if near & set(recipe.settings)]


def measured(name: str, keys: Iterable[str], report: Any = lambda text: None) -> dict[str, dict[str, Signature]]:
    """Of a setting: strikes it with each of these recipes that can be drawn there."""
    setting = SETTINGS[name]
    healthy: dict[str, Look] = {}
    found: dict[str, dict[str, Signature]] = {sight_name(sight): {} for sight in signs.SIGHTS}
    for key in keys:
        its = plain(setting, RECIPES[key])
        drill = drill_of(its)
        try:
            Case.of(drill, CHECKED, False)
        except InputError:
            continue
        world = json.dumps([its.told.get(k) for k in ("transport", "begins")])
        try:
            if world not in healthy:
                healthy[world] = looked(drill, CHECKED, healthy=True)
            ill = looked(drill, CHECKED, healthy=False)
        except UserError as error:
            report(f"{name} {key}: {error.what}")
            continue
        for sight, one in compared(ill, healthy[world], drill.warmup).items():
            found[sight][key] = one
        report(f"{name} {key}: {len(found['wjh true'][key])} columns")
    return found


def write(new: Mapping[str, Mapping[str, Mapping[str, Signature]]], path: Path = FILE) -> None:
    """Beside what is there."""
    every: dict[str, Mapping[str, Mapping[str, Signature]]] = {}
    if path.exists():
        for name in json.loads(path.read_text(encoding="utf-8"))["settings"]:
            every[name] = table(name, path)
    for name, its in new.items():
        old = every.get(name, {})
        every[name] = {sight: {**old.get(sight, {}), **rows} for sight, rows in its.items()}
    columns = sorted({c for its in every.values() for rows in its.values() for one in rows.values() for c in one})
    number = {column: k for k, column in enumerate(columns)}
    settings = {
        name: {sight: {key: sorted(number[c] for c in one) for key, one in sorted(rows.items())}
               for sight, rows in sorted(its.items())}
        for name, its in sorted(every.items())
    }  # fmt: skip
    lines = ['{"columns": [', ",\n".join(json.dumps(c) for c in columns), '], "settings": {']
    parts = []
    for name, numbered in settings.items():
        sights = []
        for sight, found in numbered.items():
            each = ",\n".join(
                f"{json.dumps(key)}: {json.dumps(one, separators=(',', ':'))}" for key, one in found.items()
            )
            sights.append(f"{json.dumps(sight)}: {{\n{each}}}")
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(sights) + "}")
    lines += [",\n".join(parts), "}}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    table.cache_clear()


def main() -> None:
    named, *keys = sys.argv[1:] or [""]
    for name in [named] if named else SETTINGS:
        write({name: measured(name, keys or struck(name), lambda text: print(text, flush=True))})


if __name__ == "__main__":
    main()
