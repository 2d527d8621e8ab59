"""The names an experiment may use, asked of the layers that own them (and imported only then)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from testbed import units
from testbed.spec.types import fault, unknown
from topologies.fabric import Fabric

if TYPE_CHECKING:
    from topologies.params import Kind
    from workloads.registry import Collective


def topologies() -> list[str]:
    from topologies import KINDS

    return list(KINDS)


def build(kind: str, params: Mapping[str, Any]) -> Fabric:
    """Raises TopologyError."""
    from topologies import build

    return build(kind, params)


def topology_schema() -> dict[str, Any]:
    """JSON schema of `{KIND: {PARAMETERS}}`."""
    from topologies import KINDS

    return {
        "type": "object",
        "properties": {name: _kind_schema(kind) for name, kind in KINDS.items()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _kind_schema(kind: type[Kind]) -> dict[str, Any]:
    if kind.name == "custom":
        from testbed.spec.custom import schema as custom_schema

        return {**custom_schema(), "description": kind.summary}
    properties = {}
    for p in kind.parameters():
        schema: dict[str, Any] = {"type": "integer", "minimum": p.least, "maximum": p.most}
        if p.type == "boolean":
            schema = {"type": "boolean"}
        elif p.type == "list of integers":
            schema = {"type": "array", "items": schema, "minItems": 1}
        if not p.required:
            schema["default"] = p.default
        properties[p.name] = {**schema, "description": p.doc}
    required = [p.name for p in kind.parameters() if p.required]
    schema = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
    return {**schema, "description": kind.summary}


def asks_for(value: Any, what: Literal["accelerators", "engines"]) -> bool:
    """Whether an experiment's workload, as written, has an algorithm that adds up in switches, or in NICs."""
    steps = value.get("workload") if isinstance(value, dict) else None
    if not isinstance(steps, list):
        return False
    named = [(s.get("collective"), s.get("algorithm")) for s in steps if isinstance(s, dict)]
    return any(
        isinstance(c, str)
        and isinstance(a, str)
        and c in collectives()
        and a in algorithms(c)
        and getattr(collective(c, a), what)
        for c, a in named
    )


def routings() -> list[str]:
    from controllers.routes import ROUTINGS

    return list(ROUTINGS)


def kinds_of_routing(name: str) -> frozenset[str] | None:
    """The kinds of topology that a known routing works on; None: any."""
    from controllers.routes import ROUTINGS

    return ROUTINGS[name].kinds


def collectives() -> list[str]:
    from workloads.registry import names

    return list(names())


def algorithms(collective: str) -> list[str]:
    """The algorithms of a known collective, its default first."""
    from workloads.registry import algorithms

    return list(algorithms(collective))


def choices(collective: str) -> list[str]:
    """What may stand as the algorithm of a known collective: `auto`, too, where there is something to choose from."""
    from workloads.registry import AUTO, COLLECTIVES

    open_to_choice = any(e.schedule for (name, _), e in COLLECTIVES.items() if name == collective)
    return [*algorithms(collective), *([AUTO] if open_to_choice else [])]


def collective(name: str, algorithm: str) -> Collective:
    """What is known of a known collective and algorithm, or of what all have in common that `auto` chooses from."""
    from workloads.registry import any_of

    return any_of(name, algorithm)


def extra(name: str, algorithm: str) -> tuple[str, ...]:
    """The keys of a step that not every collective heeds, and this one does."""
    from workloads.registry import extra

    return extra(name, algorithm)


def misshapen(entry: Collective, ranks: list[int] | None, fabric: Fabric) -> tuple[str, str] | None:
    """What keeps these ranks (None: all) from carrying out an algorithm that needs a grid, and what would not."""
    from testbed.layout import group
    from topologies.grid import NoGrid

    try:
        group(entry, ranks, fabric)
    except NoGrid as error:
        return error.what, error.hint
    return None


def extras() -> list[str]:
    """The keys of a collective step that only some algorithms heed."""
    from workloads.registry import COLLECTIVES

    return list(dict.fromkeys(key for entry in COLLECTIVES.values() for key in entry.extra))


def every_algorithm() -> list[str]:
    from workloads.registry import AUTO

    return [*dict.fromkeys(a for c in collectives() for a in algorithms(c)), AUTO]


def ops() -> list[str]:
    from workloads.registry import OPS

    return list(OPS)


def dtypes() -> list[str]:
    from workloads.registry import DTYPES

    return list(DTYPES)


def most_pieces() -> int:
    """That a vector may be cut into."""
    from workloads.registry import MOST_PIECES

    return MOST_PIECES


def width(dtype: str) -> int:
    """Bytes of an element."""
    from workloads.registry import DTYPES

    return DTYPES[dtype]


def smartnic_profiles() -> list[str | None]:
    from hardware.smartnic import PROFILES

    return [*PROFILES, None]


def smartnic(value: dict[str, Any]) -> dict[str, Any]:
    """A NIC's mapping with what its kind's profile has; raises what a validator raises."""
    from hardware.smartnic import KINDS, PROFILES, of_kind

    kind, part = value.get("kind", "plain"), {"on_path": "engine", "off_path": "complex"}
    for other, key in part.items():
        if kind != other and value.get(key) is not None:
            raise fault(f"a NIC of kind {str(kind)[:40]} has no {key}", f"kind: {other}", [key])
    if not isinstance(kind, str) or kind not in KINDS:
        if value.get("profile") is not None and kind == "plain":
            raise fault("a plain NIC has no profile", f"kind: {' or '.join(KINDS)}", ["profile"])
        return value
    name = value.get("profile") or KINDS[kind]
    if not isinstance(name, str) or name not in PROFILES:
        raise fault(*unknown("SmartNIC profile", name, list(PROFILES)), path=["profile"])
    if PROFILES[name].kind != kind:
        raise fault(f"{name} is an {PROFILES[name].kind} SmartNIC", f"{kind}: {', '.join(of_kind(kind))}", ["profile"])
    given = value.get(part[kind]) or {}
    if not isinstance(given, dict):
        return value
    filled = {**value, "profile": name, part[kind]: {**PROFILES[name].values, **given}}
    own, pcie = PROFILES[name].pcie, value.get("pcie", {})
    return {**filled, "pcie": {"rate": own.value, **pcie}} if own and isinstance(pcie, dict) else filled


def congestion_control(value: Any) -> dict[str, Any]:
    """`NAME`, or `{NAME: {PARAMETERS}}`, as fields of CongestionControl; raises what a validator raises."""
    from hardware.cc import CONTROLS

    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        raise fault(
            f"{value!r:.40} is not a congestion control", f"write NAME or {{NAME: {{..}}}}: {', '.join(CONTROLS)}"
        )
    ((name, given),) = value.items()
    if name not in CONTROLS:
        raise fault(*unknown("congestion control", name, list(CONTROLS)), path=[] if given == {} else [name])
    if not isinstance(given or {}, dict):
        raise fault(f"the parameters of {name} are a mapping", path=[name])
    control, values = CONTROLS[name], {}
    named = (given or {}).get("set")
    if named is not None and named not in control.sets:
        raise fault(*unknown(f"set of parameters of {name}", named, list(control.sets)), path=[name, "set"])
    for key, written in (given or {}).items():
        if key == "set":
            continue
        parameter = control.by_name.get(key)
        if parameter is None:
            raise fault(*unknown(f"parameter of {name}", key, [*control.by_name, *(["set"] if control.sets else [])]),
                        path=[name, key])  # fmt: skip
        if parameter.choices:
            if written not in parameter.choices:
                raise fault(*unknown(f"value of {key}", str(written), list(parameter.choices)), path=[name, key])
            values[key] = float(parameter.choices.index(written))
            continue
        number = _quantity(parameter.kind, written, [name, key])
        if not parameter.least <= number <= parameter.most:
            raise fault(f"{key} is from {parameter.least:g} to {parameter.most:g}", path=[name, key])
        values[key] = number
    return {"name": name, "set": named or (next(iter(control.sets)) if control.sets else None), "values": values}


def _quantity(kind: str, written: object, path: list[str | int]) -> float:
    parse: dict[str, Callable[[object], float]] = {
        "rate": units.parse_rate,
        "time": units.parse_time,
        "size": units.parse_size,
    }
    if kind == "number":
        if isinstance(written, bool) or not isinstance(written, int | float):
            raise fault(f"{written!r:.40} is not a number", path=path)
        return float(written)
    try:
        return float(parse[kind](written))
    except units.UnitError as error:
        raise fault(error.what, error.hint, path) from None


def congestion_control_written(name: str, named_set: str | None, values: Mapping[str, float]) -> dict[str, Any]:
    """As it stands in the file, with units."""
    from hardware.cc import CONTROLS

    form: dict[str, Callable[[float], Any]] = {"rate": lambda x: units.format_rate(int(x)), "time": units.format_time,
            "size": lambda x: units.format_size(int(x)), "number": lambda x: x}  # fmt: skip
    kinds = CONTROLS[name].by_name
    written = {k: kinds[k].choices[int(v)] if kinds[k].choices else form[kinds[k].kind](v) for k, v in values.items()}
    return {name: ({"set": named_set} if named_set else {}) | written}


def congestion_control_schema() -> dict[str, Any]:
    from hardware.cc import CONTROLS

    kinds: dict[str, Any] = {
        "rate": {"type": "string", "x-quantity": "rate", "pattern": units.RATE.pattern},
        "time": {"type": "string", "x-quantity": "time", "pattern": units.TIME.pattern},
        "size": {"type": "string", "x-quantity": "size", "pattern": units.SIZE.pattern},
        "number": {"type": "number"},
    }
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
    written = {"type": "object", "properties": properties, "minProperties": 1, "maxProperties": 1,
               "additionalProperties": False}  # fmt: skip
    return {"anyOf": [{"enum": list(CONTROLS)}, written]}
