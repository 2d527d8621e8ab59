"""Field types of the experiment file: quantities, the strict base model, and errors for validators to raise."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look for them in every installed package

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from testbed.base import units
from testbed.base.this_process import undisturbed


class Model(BaseModel):
    """A mapping of the file.  Unknown keys are errors; nothing is converted silently ("3" is no number)."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_by_name=True, validate_by_alias=True, defer_build=True
    )

    def model_dump(self, **how: Any) -> dict[str, Any]:
        """As pydantic's, with a Ctrl-C or SIGTERM after it: pydantic would take it for an error of a serializer."""
        with undisturbed():
            return super().model_dump(**how)


def folder_of(info: ValidationInfo) -> Path | None:
    """Where paths of files begin that a value names; None: it may name none of a user's own."""
    context = info.context or {}
    return Path(context.get("directory", ".")) if context.get("own", True) else None


def mistake(what: str, hint: str = "", path: Sequence[str | int] = ()) -> PydanticCustomError:
    """An error to raise in a validator; `path` leads from the value that is validated to the one that is wrong."""
    return mistakes([(tuple(path), what, hint)])


def mistakes(found: Sequence[tuple[tuple[str | int, ...], str, str]]) -> PydanticCustomError:
    """As `mistake`, of several (path, what, hint) at once."""
    return PydanticCustomError("railbed", "{what}", {"what": found[0][1], "hint": found[0][2], "mistakes": list(found)})


MANY = 30
"""Names that nobody reads if the one that was meant stands before them."""


def unknown(kind: str, name: object, known: Sequence[str], there: str = "") -> tuple[str, str]:
    """What and hint for a name that is not among the known ones; names the one that was probably meant.

    `there`: what to say instead of listing all of them.
    """
    meant = f"did you mean {close!r}?" if (close := closest(name, known)) else ""
    listed = there or ("" if meant and len(known) > MANY else f"known: {', '.join(known) or 'none'}")
    return f"unknown {kind} {str(name)[:60]!r}", " ".join(filter(None, [meant, listed]))


def closest(name: object, known: Sequence[str]) -> str:
    """The one that was probably meant, or ""."""
    close = get_close_matches(str(name), known, n=1) or _with_a_part_of(str(name), known)
    return close[0] if close else ""


def _with_a_part_of(name: str, known: Sequence[str]) -> list[str]:
    """The shortest that has a word of the name, or nearly: `packet_los` may be `loss`."""
    words = [word for word in name.split("_") if len(word) > 2]
    alike = [k for k in known if any(get_close_matches(word, k.split("_"), n=1, cutoff=0.8) for word in words)]
    return sorted(alike, key=len)[:1]


def _quantity(parse: Callable[[object], Any]) -> BeforeValidator:
    def validate(value: object) -> Any:
        try:
            return parse(value)
        except units.UnitError as error:
            raise mistake(error.what, error.hint) from None

    return BeforeValidator(validate)


def _schema(kind: units.Kind) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "x-quantity": kind.name, "pattern": kind.pattern})


def _written(format: Callable[[Any], str]) -> PlainSerializer:
    return PlainSerializer(format, when_used="json")


Rate = Annotated[int, _quantity(units.parse_rate), _written(units.format_rate), _schema(units.RATE)]
Time = Annotated[float, _quantity(units.parse_time), _written(units.format_time), _schema(units.TIME)]
Size = Annotated[int, _quantity(units.parse_size), _written(units.format_size), _schema(units.SIZE)]
Flops = Annotated[int, _quantity(units.parse_flops), _written(units.format_flops), _schema(units.FLOPS)]
Bandwidth = Annotated[int, _quantity(units.parse_bandwidth), _written(units.format_bandwidth), _schema(units.BANDWIDTH)]


def _share(value: Any) -> Any:
    """`50%`."""
    number = value[:-1].strip() if isinstance(value, str) and value.strip().endswith("%") else ""
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise mistake(f"{value!r:.40} is no share", "write a percentage, above 0% to 100%, such as 50%")
    return share


Share = Annotated[
    float,
    BeforeValidator(_share),
    _written(lambda share: f"{share * 100:.12g}%"),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9.]+%$"}),
]


def names(known: Callable[[], Sequence[str | None]]) -> Callable[[dict[str, Any]], None]:
    """For `json_schema_extra`: the names that a field knows, looked up when the schema is made."""

    def extend(schema: dict[str, Any]) -> None:
        schema["enum"] = list(known())

    return extend


def default(text: str, description: str, **bounds: Any) -> Any:
    """A field whose default is written as in the file (`400Gbps`)."""
    return Field(text, description=description, validate_default=True, **bounds)


Dscp = Annotated[int, Field(ge=0, le=63)]
