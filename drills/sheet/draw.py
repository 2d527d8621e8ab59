"""`draw:` of a drill file: conditions for the places that a seed chooses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from testbed.base.types import Model, mistake

_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_KEYS = {  # which conditions a kind of place knows
    "cable": ("between", "at", "away", "carries", "not"),
    "switch": ("role", "at", "away", "carries", "not"),
    "port": ("role", "facing", "at", "carries", "not"),
    "nic": ("at", "away", "carries", "not"),
    "flow": ("at", "carries", "not"),
    "value": ("of",),
}


class Draw(Model):
    """One place (or value) to be drawn."""

    any: Literal["cable", "switch", "port", "nic", "flow", "value"] = Field(description="what is drawn")
    between: list[str] | None = Field(
        default=None, min_length=2, max_length=2,
        description="cable: the roles of its ends, such as `[leaf, spine]`; `nic` is one, too",
    )  # fmt: skip
    role: str | None = Field(default=None, description="switch, port: of this role (`leaf`, `spine`, `core`, `rail`)")
    facing: str | None = Field(default=None, description="port: the role of what is plugged in, or `nic`")
    at: str | None = Field(
        default=None,
        description="`$NAME`: next to it; a NIC, port or cable of a switch, a switch of a cable, a flow to a NIC",
    )
    away: str | None = Field(default=None, description="`$NAME`: not next to it")
    carries: Literal["job"] | None = Field(default=None, description="data of the job pass it")
    not_: str | list[str] | None = Field(default=None, alias="not", description="`$NAME`, or several: another place")
    of: list[Any] | None = Field(default=None, min_length=1, max_length=1000, description="value: one of these")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Draw:
        given = {
            field.alias or name for name, field in type(self).model_fields.items() if getattr(self, name) is not None
        }
        for key in sorted(given - {"any"}):
            if key not in _KEYS[self.any]:
                raise mistake(f"`{key}` says nothing of a {self.any}", f"known: {', '.join(_KEYS[self.any])}", [key])
        if self.any == "value" and self.of is None:
            raise mistake("a value is one of a list", "{any: value, of: [0.01, 0.02]}")
        for key, text in self._written():
            if not _NAME.fullmatch(text):
                raise mistake(f"{text!r} is no drawn place", "write $NAME", [key])
        return self

    @property
    def others(self) -> list[str]:
        """The names that it must differ from."""
        return [name for key, name in self.refers() if key == "not"]

    def _written(self) -> Iterator[tuple[str, str]]:
        for key in ("at", "away"):
            if (text := getattr(self, key)) is not None:
                yield key, text
        for text in [self.not_] if isinstance(self.not_, str) else self.not_ or []:
            yield "not", text

    def refers(self) -> Iterator[tuple[str, str]]:
        """Keys, and the names that they refer to."""
        yield from ((key, text.removeprefix("$")) for key, text in self._written())


def references(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys of an entry, and the drawn names that their values use."""
    for key, value in entry.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                for name in _NAME.findall(text):
                    yield key, name


def filled(value: Any, drawn: Mapping[str, str], key: str) -> Any:
    """A value with every `$NAME` replaced: the whole target for `on`, elsewhere what a parameter takes.

    `to: $victim` gets a rank, `neighbour: $spine` a switch's name, `other: $cable` a cable's, `port: $port` a number.
    """
    if isinstance(value, list):
        return [filled(one, drawn, key) for one in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    whole = _NAME.fullmatch(value)
    if whole is None:
        return _NAME.sub(lambda m: str(_parameter(drawn[m[1]])), value)
    place = drawn[whole[1]]
    return place if key == "on" else _parameter(place)


def _parameter(place: Any) -> Any:
    if not isinstance(place, str):
        return place
    kind, _, name = place.partition(":")
    if kind == "nic":
        return int(name)
    return int(name.rpartition(":")[2]) if kind == "port" else name or place
