"""Typed and bounded parameters of a topology: a kind declares them as dataclass fields, users give plain values.

And how large a fabric may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from typing import Any

from topologies.graph.fabric import OutOfBounds, TopologyError

MAX_NICS = 4096
MAX_SWITCHES = 1024
MAX_PORTS = 254  # of one switch


@dataclass(frozen=True)
class Parameter:
    """A parameter's bounds.  `type` is "integer", "list of integers" or "boolean"; bounds hold for each integer.

    The kind itself checks everything else.
    """

    name: str
    type: str
    least: int
    most: int
    required: bool
    default: Any
    doc: str

    def parse(self, value: Any) -> Any:
        """The value itself if it is allowed, else TopologyError."""
        if self.type == "integer":
            self._check(value, "")
            return value
        if self.type == "boolean":
            if not isinstance(value, bool):
                raise TopologyError(self.name, f"{value!r} is neither true nor false", "true or false")
            return value
        if self.type != "list of integers":
            return value
        if not isinstance(value, (list, tuple)) or not value:
            raise TopologyError(self.name, f"{value!r} is not a list of integers", "for example [4, 4]")
        for i, item in enumerate(value):
            self._check(item, f"[{i}]")
        return tuple(value)

    def _check(self, value: Any, where: str) -> None:
        # bool is an int to Python, but `servers: true` is a mistake.
        if not isinstance(value, int) or isinstance(value, bool):
            what = "there is nothing here" if value is None else f"{value!r} is not an integer"
            raise TopologyError(self.name + where, what, self.range)
        if not self.least <= value <= self.most:
            raise OutOfBounds(self.name + where, f"{value} is out of range", self.range)

    @property
    def range(self) -> str:
        return f"an integer from {self.least} to {self.most}"


def integer(doc: str, *, least: int = 1, most: int, default: int | None = None) -> Any:
    """A dataclass field for an integer parameter; without a default it is required."""
    return _field("integer", doc, least, most, default)


def integers(doc: str, *, least: int = 1, most: int) -> Any:
    """A dataclass field for a required, non-empty list of integers."""
    return _field("list of integers", doc, least, most, None)


def boolean(doc: str, *, default: bool = False) -> Any:
    """A dataclass field for a parameter that is true or false."""
    return _field("boolean", doc, 0, 1, default)


def other(kind: str, doc: str, *, default: Any = None) -> Any:
    """A dataclass field for a parameter that the topology checks itself; without a default it is required."""
    return _field(kind, doc, 0, 0, default)


def _field(kind: str, doc: str, least: int, most: int, default: Any) -> Any:
    metadata = {"type": kind, "doc": doc, "least": least, "most": most}
    return field(metadata=metadata, default=MISSING if default is None else default)


def unknown(key: str, what: str, name: str, known: list[str]) -> TopologyError:
    """The error for a name that is not among `known`."""
    return TopologyError(key, what, near(name, known))


def near(name: str, known: list[str]) -> str:
    """A hint: the nearest known name, and all of them."""
    close = get_close_matches(name, known, n=1)
    return (f"did you mean {close[0]}? " if close else "") + "known: " + ", ".join(known)


def limit(key: str, *, nics: int, switches: int, ports: Mapping[str, int]) -> None:
    """Refuse a fabric that is too large before it is built.  `ports`: role of a switch -> its ports."""
    if nics > MAX_NICS:
        raise OutOfBounds(key, f"{nics} NICs are too many", f"at most {MAX_NICS} in a fabric")
    if switches > MAX_SWITCHES:
        raise OutOfBounds(key, f"{switches} switches are too many", f"at most {MAX_SWITCHES} in a fabric")
    for role, count in ports.items():
        if count > MAX_PORTS:
            raise OutOfBounds(key, f"a {role} switch would need {count} ports", f"at most {MAX_PORTS}")
