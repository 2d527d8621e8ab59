"""A congestion control as it is written, in an experiment or a fault: `NAME`, or `{NAME: {PARAMETERS}}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.base import units
from testbed.base.types import mistake, unknown

_KINDS = {kind.name: kind for kind in (units.RATE, units.TIME, units.SIZE)}


def read(value: Any) -> dict[str, Any]:
    """The written value as the fields of CongestionControl; raises what a validator raises."""
    from hardware.cc import CONTROLS

    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        hint = f"write NAME or {{NAME: {{..}}}}: {', '.join(CONTROLS)}"
        raise mistake(f"{value!r:.40} is not a congestion control", hint)
    ((name, given),) = value.items()
    if name not in CONTROLS:
        raise mistake(*unknown("congestion control", name, list(CONTROLS)), path=[] if given == {} else [name])
    if not isinstance(given or {}, dict):
        raise mistake(f"the parameters of {name} are a mapping", path=[name])
    control, values = CONTROLS[name], {}
    named = (given or {}).get("set")
    if named is not None and named not in control.sets:
        raise mistake(*unknown(f"set of parameters of {name}", named, list(control.sets)), path=[name, "set"])
    for key, written in (given or {}).items():
        if key == "set":
            continue
        parameter = control.by_name.get(key)
        if parameter is None:
            raise mistake(*unknown(f"parameter of {name}", key, [*control.by_name, *(["set"] if control.sets else [])]),
                        path=[name, key])  # fmt: skip
        if parameter.choices:
            if written not in parameter.choices:
                raise mistake(*unknown(f"value of {key}", str(written), list(parameter.choices)), path=[name, key])
            values[key] = float(parameter.choices.index(written))
            continue
        number = _quantity(parameter.kind, written, [name, key])
        if not parameter.least <= number <= parameter.most:
            raise mistake(f"{key} is from {parameter.least:g} to {parameter.most:g}", path=[name, key])
        values[key] = number
    return {"name": name, "set": named or (next(iter(control.sets)) if control.sets else None), "values": values}


def _quantity(kind: str, written: object, path: list[str | int]) -> float:
    if kind == "number":
        if isinstance(written, bool) or not isinstance(written, int | float):
            raise mistake(f"{written!r:.40} is not a number", path=path)
        return float(written)
    try:
        return float(_KINDS[kind].parse(written))
    except units.UnitError as error:
        raise mistake(error.what, error.hint, path) from None


def written(name: str, named_set: str | None, values: Mapping[str, float]) -> dict[str, Any]:
    """The control as a file has it, with units."""
    from hardware.cc import CONTROLS

    form: dict[str, Callable[[float], Any]] = {"rate": lambda x: units.format_rate(int(x)), "time": units.format_time,
            "size": lambda x: units.format_size(int(x)), "number": lambda x: x}  # fmt: skip
    kinds = CONTROLS[name].by_name
    texts = {k: kinds[k].choices[int(v)] if kinds[k].choices else form[kinds[k].kind](v) for k, v in values.items()}
    return {name: ({"set": named_set} if named_set else {}) | texts}


def schema() -> dict[str, Any]:
    from hardware.cc import CONTROLS

    kinds: dict[str, Any] = {k.name: {"type": "string", "x-quantity": k.name, "pattern": k.pattern} for k in
                             _KINDS.values()} | {"number": {"type": "number"}}  # fmt: skip
    properties = {}
    for name, control in CONTROLS.items():
        inner = {
            p.name: {**({"enum": list(p.choices)} if p.choices else kinds[p.kind]), "description": p.about}
            for p in control.parameters
        }
        if control.sets:
            inner["set"] = {"enum": list(control.sets), "description": "a named set of parameters"}
        properties[name] = {
            "type": "object", "properties": inner, "additionalProperties": False, "description": control.summary
        }  # fmt: skip
    parametrized = {"type": "object", "properties": properties, "minProperties": 1, "maxProperties": 1,
               "additionalProperties": False}  # fmt: skip
    return {"anyOf": [{"enum": list(CONTROLS)}, parametrized]}
