"""The names that an experiment may use, from the packages that own them (imported only when needed)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.base.types import mistake, unknown
from topologies.graph.fabric import Fabric

if TYPE_CHECKING:
    from topologies.graph.kind import Kind
    from workloads.base.entry import Algorithm


def topologies() -> list[str]:
    from topologies import KINDS

    return list(KINDS)


def build(kind: str, params: Mapping[str, Any]) -> Fabric:
    """Raises TopologyError."""
    from topologies import build

    return build(kind, params)


def with_scale_up(topology: object) -> bool:
    """Whether servers of `{KIND: {PARAMETERS}}`, as a user has written it, have a scale-up domain."""
    from topologies.kinds import KINDS

    if not isinstance(topology, dict) or len(topology) != 1:
        return False
    ((kind, params),) = topology.items()
    return kind in KINDS and isinstance(params, dict | None) and KINDS[kind].scale_up(params or {})


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
        from testbed.experiment.blocks.custom import schema as custom_schema

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


def routings() -> list[str]:
    from controllers.routing.routes import ROUTINGS

    return list(ROUTINGS)


def kinds_of_routing(name: str) -> tuple[frozenset[str] | None, str]:
    """The kinds of topology that a known routing works on (None: any), and why on no others."""
    from controllers.routing.routes import ROUTINGS

    return ROUTINGS[name].kinds, ROUTINGS[name].why


def collectives() -> list[str]:
    from workloads.registry import COLLECTIVES

    return list(COLLECTIVES)


def algorithms(collective: str) -> list[str]:
    """The algorithms of a known collective, its default first."""
    from workloads.registry import algorithms

    return [entry.name for entry in algorithms(collective)]


def choices(collective: str) -> list[str]:
    """Allowed algorithms of a known collective; with `auto` if there are several."""
    from workloads.base.vocabulary import AUTO, LIBRARY
    from workloads.registry import by_library, choices

    chosen = [*([AUTO] if choices(collective) else []), *([LIBRARY] if collective in by_library() else [])]
    return [*algorithms(collective), *chosen]


def entry(collective: str, algorithm: str) -> Algorithm:
    """The registry's entry of a collective and algorithm; for `auto` what its candidates have in common."""
    from workloads.registry import any_of

    return any_of(collective, algorithm)


def own(algorithm: object) -> bool:
    """Whether an algorithm is called as one of a user's file is."""
    from workloads.own.name import parse

    return isinstance(algorithm, str) and parse(algorithm) is not None


def extra(name: str, algorithm: str) -> tuple[str, ...]:
    """The optional keys of a step that this collective uses."""
    from workloads.registry import extra

    return extra(name, algorithm)


def misshapen(entry: Algorithm, ranks: list[int] | None, fabric: Fabric) -> tuple[str, str] | None:
    """Why these ranks (None: all) cannot carry out an algorithm that needs a grid, and a hint."""
    from testbed.experiment.blocks.layout import group
    from topologies.ranks.grid import NoGrid

    try:
        group(entry, ranks, fabric)
    except NoGrid as error:
        return error.what, error.hint
    return None


def extras() -> list[str]:
    """The keys of a collective step that only some algorithms use."""
    from workloads.registry import ALGORITHMS

    return list(dict.fromkeys(key for entry in ALGORITHMS.values() for key in entry.extra))


def heeding(key: str) -> str:
    """Who heeds a key of a collective step, in words."""
    from workloads.registry import heeding

    return heeding(key)


def heeded(key: str) -> Callable[[dict[str, Any]], None]:
    """For `json_schema_extra`: what is said of a key begins with who heeds it."""

    def extend(schema: dict[str, Any]) -> None:
        schema["description"] = f"{heeding(key)}: {schema['description']}"

    return extend


def every_algorithm() -> list[str]:
    from workloads.base.vocabulary import AUTO

    return [*dict.fromkeys(a for c in collectives() for a in algorithms(c)), AUTO]


def algorithm_or_file(schema: dict[str, Any]) -> None:
    """For `json_schema_extra` of an algorithm that may be in a file."""
    from workloads.own.name import FORM, PATTERN

    schema.pop("type", None)
    schema["anyOf"] = [
        {"enum": every_algorithm()},
        {"type": "string", "x-quantity": f"`{FORM}`", "pattern": f"^{PATTERN}$"},
    ]


def ops() -> list[str]:
    from workloads.base.vocabulary import OPS

    return list(OPS)


def combines(op: str | None, dtype: str) -> bool:
    """Whether there is such a reduction of such elements."""
    from workloads.base.vocabulary import combines

    return combines(op, dtype)


def dtypes() -> list[str]:
    from workloads.base.vocabulary import DTYPES

    return list(DTYPES)


def most_pieces() -> int:
    """Into how many pieces a vector may be cut."""
    from workloads.base.vocabulary import MOST_PIECES

    return MOST_PIECES


def width(dtype: str) -> int:
    """Bytes of an element."""
    from workloads.base.vocabulary import DTYPES

    return DTYPES[dtype]


def float_types() -> list[str]:
    """Element types that something can be trained in."""
    from workloads.base.vocabulary import DTYPES

    return [name for name in DTYPES if "float" in name]


def model_presets() -> list[str | None]:
    from workloads.steps.plan.model import PRESETS

    return [*PRESETS, None]


def gpu_presets() -> list[str | None]:
    from workloads.steps.plan.gpu import PRESETS

    return [*PRESETS, None]


def schedules() -> list[str]:
    """Schedules of pipelines that have a name alone."""
    from workloads.steps.plan.schedules import SCHEDULES

    return [name for name in SCHEDULES if name != "interleaved"]


def smartnic_profiles() -> list[str | None]:
    from hardware.smartnic import PROFILES

    return [*PROFILES, None]


def smartnic(value: dict[str, Any]) -> dict[str, Any]:
    """A NIC's mapping, filled up from its profile; raises what a validator raises."""
    from hardware.smartnic import KINDS, PROFILES, of_kind

    kind, part = value.get("kind", "plain"), {"on_path": "engine", "off_path": "complex"}
    for other, key in part.items():
        if kind != other and value.get(key) is not None:
            raise mistake(f"a NIC of kind {str(kind)[:40]} has no {key}", f"kind: {other}", [key])
    if not isinstance(kind, str) or kind not in KINDS:
        if value.get("profile") is not None and kind == "plain":
            raise mistake("a plain NIC has no profile", f"kind: {' or '.join(KINDS)}", ["profile"])
        return value
    name = value.get("profile") or KINDS[kind]
    if not isinstance(name, str) or name not in PROFILES:
        raise mistake(*unknown("SmartNIC profile", name, list(PROFILES)), path=["profile"])
    if PROFILES[name].kind != kind:
        raise mistake(
            f"{name} is an {PROFILES[name].kind} SmartNIC", f"{kind}: {', '.join(of_kind(kind))}", ["profile"]
        )
    given = value.get(part[kind]) or {}
    if not isinstance(given, dict):
        return value
    filled = {**value, "profile": name, part[kind]: {**PROFILES[name].values, **given}}
    own, pcie = PROFILES[name].pcie, value.get("pcie", {})
    return {**filled, "pcie": {"rate": own.value, **pcie}} if own and isinstance(pcie, dict) else filled
