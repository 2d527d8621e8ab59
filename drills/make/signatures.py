"""The table of signatures: what each recipe shows in each setting where it can be drawn.

`python -m drills.make.signatures [SETTING [RECIPE ..]]` measures it (a world for each) and writes it. From it follows
which faults look alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from drills.check.looked import playing
from drills.check.marks import Signature
from drills.check.probes import Snapshot, of_probes, probed
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


def drill_of(sketch: Sketch) -> Drill:
    return loads(sketch.text("Signatures", "", "easy", ()), "signatures", id="drill")


def snapshot(drill: Drill, seed: str, *, healthy: bool) -> Snapshot:
    with playing(drill, seed, healthy=healthy) as game:
        seen = {sight_name(sight): signs.seen(game, sight) for sight in signs.SIGHTS}
        return Snapshot(seen, steps(game), probed(game))


def compared(ill: Snapshot, well: Snapshot, from_ns: float) -> dict[str, Signature]:
    """The signature, by sight."""
    job = symptom(ill.steps, well.steps, from_ns)
    probes = of_probes(ill.probes, well.probes)
    return {sight: signs.signed(ill.seen[sight], well.seen[sight], job, probes) for sight in ill.seen}


@cache
def table(setting: str, path: Path = FILE) -> Table:
    """Raises MachineError if nothing has been measured."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        sights, columns = data["settings"][setting], data["columns"]
    except (OSError, ValueError, KeyError):
        hint = f"python -m drills.make.signatures {setting}"
        raise MachineError(f"{_NONE}: {path.name} has no {setting}", hint=hint) from None
    return {
        sight: {key: frozenset(columns[n] for n in numbers) for key, numbers in rows.items()}
        for sight, rows in sights.items()
    }


def struck(name: str) -> list[str]:
    """The recipes of a setting, and of its rivals."""
    near = {name, *SETTINGS[name].rivals}
    return [key for key, recipe in RECIPES.items() if near & set(recipe.settings)]


def measured(name: str, keys: Iterable[str], report: Any = lambda text: None) -> dict[str, dict[str, Signature]]:
    """Of a setting: plays it with each of these recipes that can be drawn there."""
    healthy: dict[str, Snapshot] = {}
    signatures: dict[str, dict[str, Signature]] = {sight_name(sight): {} for sight in signs.SIGHTS}
    for key in keys:
        sketch = plain(SETTINGS[name], RECIPES[key])
        drill = drill_of(sketch)
        try:
            Case.of(drill, CHECKED, False)
        except InputError:
            continue
        world = json.dumps([sketch.keys.get(k) for k in ("transport", "begins")])
        try:
            if world not in healthy:
                healthy[world] = snapshot(drill, CHECKED, healthy=True)
            ill = snapshot(drill, CHECKED, healthy=False)
        except UserError as error:
            report(f"{name} {key}: {error.what}")
            continue
        for sight, signature in compared(ill, healthy[world], drill.warmup).items():
            signatures[sight][key] = signature
        report(f"{name} {key}: {len(signatures['wjh true'][key])} columns")
    return signatures


def write(new: Mapping[str, Mapping[str, Mapping[str, Signature]]], path: Path = FILE) -> None:
    """Keeps what is there of other settings and recipes. A line for each column and each signature."""
    every: dict[str, Mapping[str, Mapping[str, Signature]]] = {}
    if path.exists():
        for name in json.loads(path.read_text(encoding="utf-8"))["settings"]:
            every[name] = table(name, path)
    for name, sights in new.items():
        old = every.get(name, {})
        every[name] = {sight: {**old.get(sight, {}), **rows} for sight, rows in sights.items()}
    columns = sorted({c for sights in every.values() for rows in sights.values() for one in rows.values() for c in one})
    number = {column: k for k, column in enumerate(columns)}

    def lines_of(parts: Mapping[str, Any], text: Callable[[Any], str], opening: str = "{\n") -> str:
        return opening + ",\n".join(f"{json.dumps(key)}: {text(part)}" for key, part in sorted(parts.items())) + "}"

    def numbers(signature: Signature) -> str:
        return json.dumps(sorted(number[c] for c in signature), separators=(",", ":"))

    settings = lines_of(every, lambda sights: lines_of(sights, lambda rows: lines_of(rows, numbers)))
    text = '{"columns": [\n' + ",\n".join(map(json.dumps, columns)) + f'\n], "settings": {settings[:-1]}\n}}}}\n'
    path.write_text(text, encoding="utf-8")
    table.cache_clear()


def main() -> None:
    named, *keys = sys.argv[1:] or [""]
    for name in [named] if named else SETTINGS:
        write({name: measured(name, keys or struck(name), lambda text: print(text, flush=True))})


if __name__ == "__main__":
    main()
