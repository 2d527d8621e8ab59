"""Keys of experiments by their path, `fabric.cable.rate`: their values, and where experiments differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def within(key: str, other: str) -> bool:
    """Whether the path `key` is `other`, or lies in it."""
    return f"{key}.".startswith(f"{other}.")


def differ(values: Sequence[Any], path: str = "") -> Iterator[str]:
    """Down to where they differ: into mappings with the same keys, and no further."""
    if all(hashable(v) == hashable(values[0]) for v in values):
        return
    first = values[0]
    alike = all(isinstance(v, dict) for v in values) and (not path or all(v.keys() == first.keys() for v in values))
    if not alike:
        yield path
        return
    for key in dict.fromkeys(k for v in values for k in v):
        yield from differ([v.get(key) for v in values], f"{path}.{key}" if path else str(key))


def value_at(experiment: Mapping[str, Any], key: str) -> Any:
    """The value at a path of the experiment (of several paths the first); None if there is none."""
    value: Any = experiment
    for step in key.partition(",")[0].strip().split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def hashable(value: Any) -> Any:
    """Plain values as they are, others as JSON."""
    return json.dumps(value, sort_keys=True, default=str) if isinstance(value, dict | list) else value


def raw(value: Any) -> Any:
    """The inverse of `hashable`."""
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
