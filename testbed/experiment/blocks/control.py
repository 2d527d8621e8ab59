"""`control:` of the experiment file: the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from testbed.base.types import Model, Time, default, mistake
from testbed.experiment.blocks.cables import MAX_TIME
from testbed.experiment.blocks.routing import Routing, in_words
from workloads.base import named_file

MOST_BYTES = 16 << 20


def _application(directory: str | Path, name: str) -> str:
    """The absolute path of a controller application; raises what a validator raises."""
    path = Path(directory, name).absolute()
    try:
        named_file.check(path)
        compile(named_file.read(path, MOST_BYTES), str(path), "exec", dont_inherit=True)
    except named_file.Missing:
        raise mistake(f"there is no application {name!r}", "a path relative to the experiment file") from None
    except named_file.Unreadable as error:
        raise mistake(f"application {name!r} cannot be read: {error.what}", "a file of Python") from None
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise mistake(f"{name}{line} is not Python: {getattr(error, 'msg', error)}") from None
    return str(path)


class FastPath(Model):
    sample: int = Field(
        default=1024,
        ge=1,
        le=10**9,
        description="one frame in so many of a flow goes through Open vSwitch all the same",
    )


def _or_off(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [*schema["anyOf"], {"const": "off"}]


class Control(Model):
    routing: Routing = Field(
        default_factory=lambda: Routing.model_validate("ecmp"),
        description="how the controller finds paths: `ecmp`, `dimension_order`, `adaptive`, or `{ecmp: {..}}`, "
        "`{adaptive: {..}}`",
        json_schema_extra=in_words,
    )
    reaction: Time = default("1ms", "emulated time from a port's change to the new rules", le=MAX_TIME)

    dateline: bool = Field(
        default=True,
        description="torus, ring: a second lossless class for what wraps around, so that nothing deadlocks",
    )
    library: Literal["os-ken", "ryu"] = Field(
        default="os-ken", description="the OpenFlow library that the controller runs on (`./setup.sh ryu` builds ryu's)"
    )
    apps: list[str] = Field(
        default=[], description="files with applications of your own, written to Ryu's API (docs/controller-apps.md)"
    )

    fast_path: FastPath | None = Field(
        default_factory=FastPath,
        description="what Open vSwitch has decided for a flow is not asked again (null, off: it is, for every frame)",
        json_schema_extra=_or_off,
    )

    @field_validator("fast_path", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        if isinstance(value, str) and value != "off":
            raise mistake(f"{value!r:.60} is neither off nor how often is checked", "off, or {sample: 1024}")
        return None if value in ("off", False) else value

    @field_validator("apps")
    @classmethod
    def _python(cls, value: list[str], info: ValidationInfo) -> list[str]:
        directory = (info.context or {}).get("directory", ".")
        return [_application(directory, path) for path in value]
