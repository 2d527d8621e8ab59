"""The axes of a sweep: what `sweep:` names, as points are made of it.

An axis is what changes together: a key's values; variants, `WORD: {NAME: {KEY: VALUE, ..}, ..}`; keys that go in step,
`zip: {KEY: [..], KEY: [..]}`; or points drawn from a space, `sample: {latin: N, over: {KEY: LOW..HIGH, KEY: [..]}}`. A
sweep has every combination of its axes' entries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.base.types import mistake
from testbed.experiment.spans import HINT, Span, span

ZIP, SAMPLE = "zip", "sample"
LATIN, RANDOM = "latin", "random"
MOST_SAMPLES = 100_000
_AXES = "KEY: [VALUES], or WORD: {NAME: {KEY: VALUE, ..}, ..}"
_SAMPLES = f"{SAMPLE}: {{{LATIN}: N, over: {{KEY: LOW..HIGH, KEY: [VALUES]}}}}, or {RANDOM}: N; seed: S"


@dataclass(frozen=True)
class Entry:
    """`values`: of the axis's columns. `settings`: what it sets: key, value, its place in the file."""

    values: dict[str, Any]
    settings: list[tuple[str, Any, str]]


@dataclass(frozen=True)
class Axis:
    """`word`: its key in `sweep:`. `columns`: of the table."""

    word: str
    columns: list[str]
    entries: list[Entry]

    @property
    def keys(self) -> set[str]:
        """That it sets."""
        return {key for entry in self.entries for key, _, _ in entry.settings}


Place = Callable[..., str]
"""`FILE:LINE: KEY` of what stands at a path in the file."""


def axes_of(sweep: Mapping[str, Any], seed: int, place: Place) -> list[Axis]:
    """Of an experiment's sweep, the last one running fastest. `seed`: the experiment's, for samples."""
    return [_axis(word, axis, seed, place) for word, axis in sweep.items()]


def checked(word: str, axis: Any) -> None:
    """Raises a mistake for what is no axis."""
    if not isinstance(axis, list | dict):
        raise mistake(f"{axis!r} is neither a list of values nor variants by name", _AXES, [word])
    if not axis:
        raise mistake("there is nothing to sweep over", "name at least one value", [word])
    if isinstance(axis, list):
        return
    if word == ZIP:
        _check_zip(axis)
    elif word == SAMPLE:
        _check_sample(axis)
    elif "." in word or "," in word:
        raise mistake(f"{word} is a key: its values are a list", _AXES, [word])
    else:
        for name, keys in axis.items():
            if not isinstance(keys, dict):
                raise mistake(f"{keys!r} is no variant", _AXES, [word, name])


def _check_zip(axis: Mapping[str, Any]) -> None:
    first = next(iter(axis))
    for key, values in axis.items():
        if not isinstance(values, list) or not values:
            raise mistake(f"{values!r} is no list of values", f"{ZIP}: {{KEY: [VALUES], KEY: [VALUES]}}", [ZIP, key])
        if len(values) != len(axis[first]):
            what = f"{len(values)} values, and {first} has {len(axis[first])}"
            raise mistake(what, "keys that go in step have as many values each", [ZIP, key])


def _check_sample(axis: Mapping[str, Any]) -> None:
    ways = [way for way in (LATIN, RANDOM) if way in axis]
    over, extra = axis.get("over"), axis.keys() - {LATIN, RANDOM, "over", "seed"}
    if extra:
        raise mistake(f"{min(map(str, extra))!r} is not known here", _SAMPLES, [SAMPLE, min(map(str, extra))])
    if len(ways) != 1 or not isinstance(over, dict) or not over:
        raise mistake("a sample says how many points it has, and over what", _SAMPLES, [SAMPLE])
    number = axis[ways[0]]
    if type(number) is not int or not 1 <= number <= MOST_SAMPLES:
        raise mistake(f"{number!r} is not a number of points", f"1 to {MOST_SAMPLES}", [SAMPLE, ways[0]])
    if type(axis.get("seed", 0)) is not int:
        raise mistake(f"{axis['seed']!r} is not a seed", "a whole number", [SAMPLE, "seed"])
    for key, values in over.items():
        if isinstance(values, list) and values:
            continue
        try:
            span(values)
        except ValueError as error:
            raise mistake(str(error), f"a list of values, or {HINT}", [SAMPLE, "over", key]) from None


def _axis(word: str, axis: list[Any] | dict[str, Any], seed: int, place: Place) -> Axis:
    if isinstance(axis, list):
        places = [place("sweep", word, n) for n in range(len(axis))]
        entries = [Entry({word: v}, [(key, v, at) for key in _keys(word)]) for v, at in zip(axis, places, strict=True)]
        return Axis(word, [word], entries)
    if word == ZIP:
        count = len(next(iter(axis.values())))
        in_step = [[(key, axis[key][n], place("sweep", ZIP, key, n)) for key in axis] for n in range(count)]
        return _together(word, in_step)
    if word == SAMPLE:
        where = {key: place("sweep", SAMPLE, "over", key) for key in axis["over"]}
        drawn = _drawn(axis, seed)
        return _together(word, [[(key, row[key], where[key]) for key in row] for row in drawn])
    variants = []
    for name, keys in axis.items():
        settings = [(key, value, place("sweep", word, name, key)) for key, value in keys.items()]
        variants.append(Entry({word: name}, settings))
    return Axis(word, [word], variants)


def _together(word: str, rows: list[list[tuple[str, Any, str]]]) -> Axis:
    """Of rows whose keys are columns: key, value, place."""
    entries = []
    for row in rows:
        settings = [(one, value, place) for key, value, place in row for one in _keys(key)]
        entries.append(Entry({key: value for key, value, _ in row}, settings))
    return Axis(word, [key for key, _, _ in rows[0]], entries)


def _keys(key: str) -> list[str]:
    """`KEY, KEY`: both have the same value."""
    return [one.strip() for one in key.split(",")]


def _drawn(sample: Mapping[str, Any], seed: int) -> Iterator[dict[str, Any]]:
    """Points of a sample. Latin: of each key every N-th part of its span has one (McKay, Beckman, Conover 1979)."""
    number = sample[LATIN] if LATIN in sample else sample[RANDOM]
    shares = []
    for key in sample["over"]:
        draw = random.Random(f"{sample.get('seed', seed)} {key}")
        if LATIN in sample:
            parts = list(range(number))
            draw.shuffle(parts)
            shares.append([(part + draw.random()) / number for part in parts])
        else:
            shares.append([draw.random() for _ in range(number)])
    spaces = {key: values if isinstance(values, list) else span(values) for key, values in sample["over"].items()}
    for row in zip(*shares, strict=True):
        yield {key: _at(space, share) for (key, space), share in zip(spaces.items(), row, strict=True)}


def _at(space: list[Any] | Span, share: float) -> Any:
    return space.at(share) if isinstance(space, Span) else space[int(share * len(space))]
