"""Algorithms of NICs as they are written, with their parameters.

A congestion control, in an experiment or a fault: `NAME`, `{NAME: {PARAMETERS}}`, or one's own
`{file: FILE.c, PARAMETERS}`; a choice among paths: `{policy: NAME, entropies: N, PARAMETERS}`, or
`{file: FILE.c, entropies: N, PARAMETERS}`; one among a switch's ports: `NAME`, or `{file: FILE.c, PARAMETERS}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base import units
from testbed.base.types import mistake, unknown

if TYPE_CHECKING:
    from hardware.cc import Control, Parametrized
    from hardware.multipath import Policy, PortPolicy

DEFAULT_ENTROPIES = 256
_KINDS = {kind.name: kind for kind in (units.RATE, units.TIME, units.SIZE)}


def control(name: str) -> Control:
    """The entry of a control of ours, or of a file's resolved name."""
    from hardware.cc import CONTROLS

    if name in CONTROLS:
        return CONTROLS[name]
    from testbed.own import control

    return control.control(name)


def of_credit() -> list[str]:
    """Those whose receivers say when their senders may send."""
    from hardware.cc import CONTROLS

    return [name for name, entry in CONTROLS.items() if "credit" in entry.hears]


def gives_credit(name: str) -> bool:
    return "credit" in control(name).hears


def multipath(name: str) -> Policy:
    """Likewise of a choice among paths."""
    from hardware.multipath import POLICIES

    if name in POLICIES:
        return POLICIES[name]
    from testbed.own.multipath import policy

    return policy(name)


def adaptive(name: str) -> PortPolicy:
    """Likewise of a choice among a switch's ports."""
    from hardware.multipath import PORT_POLICIES

    if name in PORT_POLICIES:
        return PORT_POLICIES[name]
    from testbed.own.adaptive import policy

    return policy(name)


def short(name: str) -> str:
    """What it is called in tables."""
    from testbed.own.name import parse

    own = parse(name)
    return own.short if own else name


def read(value: Any, folder: Path | None = None) -> dict[str, Any]:
    """The written value as the fields of CongestionControl; raises what a validator raises.

    Files' paths begin at the folder; None: files have no place there.
    """
    from hardware.cc import CONTROLS
    from testbed.own.name import parse

    if parse(value):
        value = {"file": value}
    if isinstance(value, dict) and "file" in value:
        given = {k: v for k, v in value.items() if k != "file"}
        return {
            "name": (own := _of_file(value["file"], folder, control)),
            "set": None,
            "values": _values(control(own), given, []),
        }
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
    its = CONTROLS[name]
    named = (given or {}).get("set")
    if named is not None and named not in its.sets:
        raise mistake(*unknown(f"set of parameters of {name}", named, list(its.sets)), path=[name, "set"])
    values = _values(its, {k: v for k, v in (given or {}).items() if k != "set"}, [name])
    return {"name": name, "set": named or (next(iter(its.sets)) if its.sets else None), "values": values}


def _of_file(file: Any, folder: Path | None, entry: Callable[[str], Parametrized]) -> str:
    """The resolved name of a file whose entry can be used."""
    from testbed.own.name import BadFile, parse, resolved

    if (name := parse(file)) is None:
        raise mistake(f"{file!r:.60} is no C file", "file: FILE.c (docs/own-controls.md)", ["file"])
    if folder is None:
        raise mistake("an algorithm from a file has no place here", "one of ours", ["file"])
    try:
        found = str(resolved(name, folder))
        entry(found)
    except BadFile as error:
        raise mistake(error.what, error.hint, ["file"]) from None
    return found


def _values(entry: Parametrized, given: Mapping[str, Any], path: list[str | int]) -> dict[str, float]:
    """The parameters that are given, as numbers."""
    values = {}
    for key, written in given.items():
        parameter, there = entry.by_name.get(key), [*path, key]
        if parameter is None:
            known = [*entry.by_name, *(["set"] if entry.sets else [])]
            raise mistake(*unknown(f"parameter of {entry.name}", key, known), path=there)
        if parameter.choices:
            if written not in parameter.choices:
                raise mistake(*unknown(f"value of {key}", str(written), list(parameter.choices)), path=there)
            values[key] = float(parameter.choices.index(written))
            continue
        number = _quantity(parameter.kind, written, there)
        if not parameter.least <= number <= parameter.most:
            raise mistake(f"{key} is from {parameter.least:g} to {parameter.most:g}", path=there)
        values[key] = number
    return values


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

    texts = _texts(control(name), values)
    if name not in CONTROLS:
        return {"file": name, **texts}
    return {name: ({"set": named_set} if named_set else {}) | texts}


def _texts(entry: Parametrized, values: Mapping[str, float]) -> dict[str, Any]:
    form: dict[str, Callable[[float], Any]] = {"rate": lambda x: units.format_rate(int(x)), "time": units.format_time,
            "size": lambda x: units.format_size(int(x)), "number": lambda x: x}  # fmt: skip
    kinds = entry.by_name
    return {k: kinds[k].choices[int(v)] if kinds[k].choices else form[kinds[k].kind](v) for k, v in values.items()}


def _file_schema(about: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """`FILE.c`, and `{file: FILE.c}`."""
    from testbed.own.name import PATTERN

    file = {"type": "string", "x-quantity": "`FILE.c`", "pattern": f"^{PATTERN}$"}
    keyed = {"type": "object", "properties": {"file": {**file, "description": about}}, "required": ["file"]}
    return file, keyed


def schema() -> dict[str, Any]:
    from hardware.cc import CONTROLS

    properties = {}
    for name, control in CONTROLS.items():
        inner = _properties(control)
        if control.sets:
            inner["set"] = {"enum": list(control.sets), "description": "a named set of parameters"}
        properties[name] = {
            "type": "object", "properties": inner, "additionalProperties": False, "description": control.summary
        }  # fmt: skip
    parametrized = {"type": "object", "properties": properties, "minProperties": 1, "maxProperties": 1,
               "additionalProperties": False}  # fmt: skip
    return {"anyOf": [{"enum": list(CONTROLS)}, parametrized, *_file_schema("a control of one's own")]}


def _properties(entry: Parametrized, about: str = "") -> dict[str, Any]:
    kinds: dict[str, Any] = {k.name: {"type": "string", "x-quantity": k.name, "pattern": k.pattern} for k in
                             _KINDS.values()} | {"number": {"type": "number"}}  # fmt: skip
    return {
        p.name: {**({"enum": list(p.choices)} if p.choices else kinds[p.kind]), "description": about + p.about}
        for p in entry.parameters
    }


def read_multipath(value: Any, folder: Path | None = None) -> Any:
    """The written value as the fields of Multipath; raises what a validator raises. The folder: as in read()."""
    from hardware.multipath import ENTROPIES, POLICIES
    from testbed.own.name import parse

    if parse(value):
        value = {"file": value}
    if not isinstance(value, dict) or ("policy" in value) == ("file" in value):
        hint = f"write {{policy: NAME}}: {', '.join(POLICIES)}; or {{file: FILE.c}}"
        raise mistake(f"{value!r:.40} is no choice among paths", hint)
    if "file" in value:
        name = _of_file(value["file"], folder, multipath)
    elif (name := value["policy"]) not in POLICIES:
        raise mistake(*unknown("policy", name, list(POLICIES)), path=["policy"])
    entropies = value.get("entropies", DEFAULT_ENTROPIES)
    if isinstance(entropies, bool) or entropies not in ENTROPIES:
        raise mistake(
            f"entropies are a power of two up to {ENTROPIES[-1]}, not {entropies!r:.40}", "such as 256", ["entropies"]
        )
    given = {k: v for k, v in value.items() if k not in ("policy", "file", "entropies") and v is not None}
    return {"policy": name, "entropies": entropies, "values": _values(multipath(name), given, [])}


def written_multipath(policy: str, entropies: int, values: Mapping[str, float]) -> dict[str, Any]:
    """As a file has it, with units."""
    from hardware.multipath import POLICIES

    key = "policy" if policy in POLICIES else "file"
    return {key: policy, "entropies": entropies, **_texts(multipath(policy), values)}


def multipath_schema() -> dict[str, Any]:
    from hardware.multipath import ENTROPIES, POLICIES

    entropies = {
        "enum": list(ENTROPIES), "default": DEFAULT_ENTROPIES,
        "description": "UDP source ports that a queue pair has, which switches hash",
    }  # fmt: skip
    properties: dict[str, Any] = {
        "policy": {"enum": list(POLICIES), "description": "which path a packet takes (docs/spraying.md)"},
        "entropies": entropies,
    }
    for name, entry in POLICIES.items():
        properties |= _properties(entry, f"`{name}`: ")
    ours = {"type": "object", "properties": properties, "required": ["policy"], "additionalProperties": False}
    file, own = _file_schema("a choice of one's own (docs/own-paths.md)")
    own["properties"]["entropies"] = entropies
    return {"anyOf": [ours, file, own]}


def read_adaptive(value: Any, folder: Path | None = None) -> Any:
    """The written value as the fields of a choice among a switch's ports; raises what a validator raises."""
    from hardware.multipath import PORT_POLICIES
    from testbed.own.name import parse

    if parse(value):
        value = {"file": value}
    if isinstance(value, dict) and "file" in value:
        name, given = _of_file(value["file"], folder, adaptive), {k: v for k, v in value.items() if k != "file"}
        return {"name": name, "values": _values(adaptive(name), given, [])}
    if not isinstance(value, str) or value not in PORT_POLICIES:
        raise mistake(*unknown("policy", f"{value!s:.40}", [*PORT_POLICIES, "{file: FILE.c}"]))
    return {"name": value}


def written_adaptive(name: str, values: Mapping[str, float]) -> Any:
    from hardware.multipath import PORT_POLICIES

    return name if name in PORT_POLICIES else {"file": name, **_texts(adaptive(name), values)}


def adaptive_schema() -> dict[str, Any]:
    from hardware.multipath import PORT_POLICIES

    return {"anyOf": [{"enum": list(PORT_POLICIES)}, *_file_schema("a choice of one's own (docs/own-paths.md)")]}
