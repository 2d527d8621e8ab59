"""A sketch: what a seed draws of a drill, before anything is measured. Pure: the same seed, the same sketch.

`level` sets how much is drawn; how hard the drill is is measured (measure.py), and the file has that level.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from drills.make.stock import FAMILIES, HINTS, RECIPES, SETTINGS, Recipe, Scenario
from drills.sheet.drill import LEVELS, Level
from testbed.base.errors import InputError
from testbed.base.types import unknown
from testbed.base.units import format_time, parse_time

VERSION = 2
"""Of what seeds draw: grows with each change of stock or sketch."""
CHECKED = "7Q4"
PULSES_SEEN = 1_300_000.0
"""How long an intermittent fault is there before the player gets the world."""
OLD = ("crc", "tail")
BUDGET = {"easy": ("20ms", 2), "medium": ("50ms", 2), "hard": ("100ms", 1)}
_NAME = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Sketch:
    """A drill without its title, its level and its evidence, which follow from what is measured."""

    seed: str
    aim: Level
    setting: Scenario
    recipes: tuple[Recipe, ...]
    keys: Mapping[str, Any]
    """Of the drill file."""
    twists: tuple[str, ...]
    """What makes it harder: another fault, one that comes and goes, each old counter, a golden configuration."""
    dice: int
    options: tuple[tuple[str, str], ...] = ()

    def without_mending(self) -> Sketch:
        """The same, with a fault that need not be mended."""
        asked = [one for one in self.keys["question"] if one != "fix"]
        return replace(self, keys={**self.keys, "question": asked})

    def text(self, title: str, ticket: str, level: str, evidence: Sequence[str]) -> str:
        """As a drill file."""
        options = "".join(f" --{option} {value}" for option, value in self.options)
        comment = f"# testbed drill new --seed {self.seed}{options}: version {VERSION} of what seeds draw\n"
        head = {"title": title, **({"ticket": ticket} if ticket else {}), "level": level}
        keys = {**head, **self.keys, **({"evidence": list(evidence)} if evidence else {})}
        text: str = yaml.safe_dump(keys, sort_keys=False, width=120, default_flow_style=None, allow_unicode=True)
        return comment + text


def sketch(seed: str, level: str | None = None, family: str | None = None) -> Sketch:
    """What this seed draws. Raises InputError."""
    for given, known, option in ((level, LEVELS, "--level"), (family, FAMILIES, "--family")):
        if given is not None and given not in known:
            what, hint = unknown(option[2:], given, known)
            raise InputError(what, option, hint)
    dice = random.Random(f"drill {VERSION} {seed} {level} {family}")
    aim: Level = next(one for one in LEVELS if one == level) if level else dice.choice(LEVELS)
    harder = 0 if aim == "easy" else dice.randint(1, 2)
    possible = [r for r in RECIPES.values() if family in (None, r.family) and not (aim == "easy" and r.pulses)]
    if not possible:
        hint = "another level, or another family"
        raise InputError(f"all that can go wrong of {family} comes and goes, which is not easy", "--level", hint)
    with_others = [r for r in possible if any(_others(r, name) for name in r.settings)]
    several = aim == "hard" and harder == 2 and bool(with_others)
    first = dice.choice(with_others if several else possible)
    setting = SETTINGS[dice.choice([name for name in first.settings if not several or _others(first, name)])]
    recipes = (first, dice.choice(_others(first, setting.name))) if several else (first,)
    twists = ["another fault"] * several + ["comes and goes"] * sum(r.pulses for r in recipes)
    keys = _world(setting, dice, recipes)
    if harder and dice.random() < 0.7:
        twists.append("old counters")
    if all(r.configured for r in recipes) and aim != "easy":
        twists.append("golden configuration")
    counters = aim == "hard" or (aim == "medium" and dice.random() < 0.5)
    keys |= _drawn(recipes, dice, herring="old counters" in twists)
    keys |= _asked(aim, recipes, golden="golden configuration" in twists, counters=counters)
    if any(r.pulses for r in recipes):
        keys["begins"] = format_time(parse_time(setting.warmup) + PULSES_SEEN)
    return Sketch(seed, aim, setting, recipes, keys, tuple(twists), dice.randrange(1 << 16),
                  tuple((o, v) for o, v in (("level", level), ("family", family)) if v))  # fmt: skip


def plain(setting: Scenario, recipe: Recipe | None) -> Sketch:
    """The setting's first variant, with the recipe's first amounts or nothing wrong: for signatures."""
    first = _First()
    recipes = (recipe,) if recipe else ()
    keys = _world(setting, first, recipes) | _drawn(recipes, first, herring=False)
    keys |= _asked("easy", recipes, golden=False, counters=False)
    if recipe and recipe.pulses:
        keys["begins"] = format_time(parse_time(setting.warmup) + PULSES_SEEN)
    return Sketch(CHECKED, "easy", setting, recipes, keys, (), 0)


class _First(random.Random):
    """Always the first."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


def _others(first: Recipe, setting: str) -> list[Recipe]:
    """What can go wrong beside it, so that both are seen."""
    if first.stops:
        return []
    return [r for r in RECIPES.values() if setting in r.settings and not r.stops and r.fault != first.fault
            and not (r.needs and first.needs)]  # fmt: skip


def _world(setting: Scenario, dice: random.Random, recipes: Sequence[Recipe]) -> dict[str, Any]:
    needs = {key: value for r in recipes for key, value in r.needs.items()}
    compute = dice.choice(setting.computes)
    job = {**setting.job, "size": dice.choice(setting.sizes), **({"compute": compute} if compute else {})}
    topology = dice.choice(setting.topologies)
    return {
        "fabric": {"topology": dict(topology), **setting.fabric},
        **({"control": dict(setting.control)} if setting.control else {}),
        "transport": {"cc": setting.cc, **needs},
        "job": job,
        "warmup": setting.warmup,
    }


def _drawn(recipes: Sequence[Recipe], dice: random.Random, *, herring: bool) -> dict[str, Any]:
    draw: dict[str, Any] = {}
    faults = []
    for k, recipe in enumerate(recipes):
        rename = {name: f"{name}{k + 1}" if k else name for name in recipe.draw}
        for name, asked in recipe.draw.items():
            one = {key: _renamed(value, rename) for key, value in asked.items()}
            if k and name == "bad":
                one["not"] = "$bad"
            draw[rename[name]] = one
        entry = {"fault": recipe.fault, "on": f"${rename['bad']}"}
        pick = dice.randrange(8)  # parameters that belong together are chosen together
        entry |= {key: values[pick % len(values)] for key, values in recipe.amounts.items()}
        faults.append({**entry, **{key: _renamed(value, rename) for key, value in recipe.more.items()}})
    benign = []
    if herring:
        draw["old"] = {"any": "port", "not": "$bad"}
        benign.append({"counter": dice.choice(OLD), "on": "$old", "value": dice.randrange(100, 5000)})
    return {"draw": draw, "faults": faults, **({"benign": benign} if benign else {})}


def _renamed(value: Any, rename: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(one, rename) for one in value]
    return _NAME.sub(lambda m: f"${rename.get(m[1], m[1])}", value) if isinstance(value, str) else value


def _asked(aim: str, recipes: Sequence[Recipe], *, golden: bool, counters: bool) -> dict[str, Any]:
    emulated, answers = BUDGET[aim]
    fix = bool(recipes) and all(r.mends for r in recipes)
    hints = [hint for r in recipes[:1] for hint in HINTS[r.family]]
    if len(recipes) > 1:
        hints = ["There is more than one thing.", *hints[:2]]
    views = {"drops": "counters" if counters else "wjh", "config": "golden" if golden else "true"}
    return {
        "question": ["healthy", "where", "what", *(["fix"] if fix else [])],
        "views": views,
        "budget": {"emulated": emulated, "answers": answers},
        **({"hints": hints} if hints else {}),
    }
