"""The keys in which experiments differ, each down to a plain value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from results.figures.keys import hashable, within

_LABELS = ("name", "sweep")
"""A name changes nothing; a sweep's keys have their values at its points."""
ABSENT = "(not there)"


def differences(experiments: Sequence[Mapping[str, Any]], swept: Iterable[str] = ()) -> dict[str, list[Any]]:
    """By path: the value in each of the experiments. `swept` keys are left out.

    Goes into mappings that share a key, and into lists of mappings that are as long as each other.
    """
    known = [one.strip() for key in swept for one in key.split(",")]
    plain = [{k: v for k, v in experiment.items() if k not in _LABELS} for experiment in experiments]
    found = dict(_walk(plain, ""))
    return {key: values for key, values in found.items() if not any(within(key, one) for one in known)}


def _walk(values: Sequence[Any], path: str) -> Iterator[tuple[str, list[Any]]]:
    if all(hashable(v) == hashable(values[0]) for v in values):
        return
    parts = _parts(values, path)
    if not parts:
        yield path, list(values)
    for key, inner in parts:
        yield from _walk(inner, f"{path}.{key}" if path else key)


def _parts(values: Sequence[Any], path: str) -> list[tuple[str, list[Any]]]:
    """Names and values one level further down; none if this is as far as it goes."""
    if all(isinstance(v, dict) for v in values):
        shared = set.intersection(*(set(v) for v in values))
        keys = dict.fromkeys(k for v in values for k in v)
        return [(str(k), [v.get(k, ABSENT) for v in values]) for k in keys] if shared or not path else []
    if all(isinstance(v, list) and len(v) == len(values[0]) for v in values) and all(
        isinstance(one, dict) for v in values for one in v
    ):
        return [(str(n), [v[n] for v in values]) for n in range(len(values[0]))]
    return []
