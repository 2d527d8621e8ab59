"""Values of an experiment as pictures and tables show them: short, but never two different ones alike."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµμ]+)\s*")
_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_PREFIXES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
LONGEST = 60


def amount(value: Any) -> tuple[float, str] | None:
    """`400Gbps` as 4e11 and `bps`: a number in base units, and their kind ("" of a plain number). None of all else.

    What is allowed in a file, testbed.base.units says; this only places it on an axis.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return (float(value), "") if value == value else None
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    if unit != "k" and unit in _PREFIXES:  # 400G, as switches show a port's speed
        unit += "bps"
    if unit in _TIMES:
        return number * _TIMES[unit], "ns"
    for kind in ("bps", "B"):
        prefix = unit.removesuffix(kind)
        if prefix == unit:
            continue
        if prefix in _PREFIXES:
            return number * _PREFIXES[prefix], kind
        if prefix[1:] == "i" and kind == "B" and prefix[0] in _PREFIXES:
            return number * 1024 ** "KMGTP".index(prefix[0].upper()) * 1024, kind
    return None


def amounts(values: Sequence[Any]) -> list[float] | None:
    """Where the values stand on one axis; None if they are not all amounts of the same thing."""
    every = [amount(v) for v in values]
    known = [one for one in every if one is not None]
    return [number for number, _ in known] if len({kind for _, kind in known}) == 1 and None not in every else None


def full(value: Any) -> str:
    """`star hosts=8`, `dcqcn set=paper`, `loss on=all rate=0.01`, `none`: all of a value, for a table."""
    name, params = _parts(value)
    return " ".join(filter(None, (name, *(f"{k}={v}" for k, v in params.items())))) or "{}"


def distinct(values: Sequence[Any]) -> list[str]:
    """A label for each of the values: its name, and those parameters in which others of that name differ."""
    parts = [_parts(v) for v in values]
    by_name: dict[str, list[dict[str, str]]] = defaultdict(list)
    for name, params in parts:
        by_name[name].append(params)
    made = []
    for name, params in parts:
        alike = by_name[name]
        only = not name and len(params) == 1  # says itself what it is: interleaved=2
        telling = [k for k in params if only or any(other.get(k) != params[k] for other in alike)]
        text = " ".join(filter(None, (name, *(f"{k.rpartition('.')[2]}={params[k]}" for k in telling))))
        made.append(cut(text or "set"))
    return [text if made.count(text) == 1 else full(v) for text, v in zip(made, values, strict=True)]


def cut(text: str) -> str:
    """At most LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.."


def _parts(value: Any) -> tuple[str, dict[str, str]]:
    """The name of a value, and its parameters as texts."""
    if value is None or value == [] or value == {}:
        return "none", {}
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return _parts(value[0])
    if isinstance(value, list) and all(isinstance(v, dict) for v in value):
        each = [_parts(v) for v in value]
        return ", ".join(name for name, _ in each), {
            f"{n}.{k}": v for n, (_, p) in enumerate(each) for k, v in p.items()
        }
    if isinstance(value, dict) and "fault" in value:
        return str(value["fault"]), dict(_flat({k: v for k, v in value.items() if k != "fault"}))
    if isinstance(value, dict) and "file" in value:  # a control of one's own, as written or as resolved
        return str(value["file"]).partition("#")[0], dict(_flat({k: v for k, v in value.items() if k != "file"}))
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        if inner is None or isinstance(inner, dict):
            return str(name), dict(_flat(inner or {}))
    if isinstance(value, dict):
        return "", dict(_flat(value))
    return _plain(value), {}


def _flat(params: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in params.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        return "x".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def number(value: float) -> str:
    """`0.001`, `65536`, `1.5`, `1e+09`: without a power of ten where it need not be."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:g}"


def size_label(size: float) -> str:
    """`64 KiB`, `1.5 MiB`, `1000 B`: the largest binary unit of which it is at least one."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}" if size % (unit / 4) == 0 else f"{size / unit:.2f} {name}"
    return f"{size:g} B"


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks; nan of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def jain(rates: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything (Jain, Chiu, Hawe 1984)."""
    squares = sum(r * r for r in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else math.nan
