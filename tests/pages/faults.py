"""Generates the tables of docs/faults.md from the catalogue: `python -m tests.pages.faults`."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.faults import CATALOGUE, GROUPS, Fault
from testbed.faults.base import FrameFault
from tests.pages.experiment import DOCS, rows, table, write

PAGE = DOCS / "faults.md"


def tables() -> str:
    """Markdown: a list of all faults, then each with its parameters."""
    parts = ["| fault | strikes | what it is |", "|---|---|---|"]
    parts += [f"| [`{c.name}`](#{c.name}) | {', '.join(c.on)} | {c.summary} |" for c in CATALOGUE.values()]
    for title, faults in GROUPS.items():
        parts.append(f"\n## {title}")
        if any(issubclass(cls, FrameFault) for cls in faults):
            parts += ["Each of them also takes:", *_parameters(FrameFault, set(FrameFault.model_fields))]
        for cls in faults:
            parts += _section(cls)
    return "\n".join(parts)


def _section(cls: type[Fault]) -> Iterator[str]:
    yield f"\n### {cls.name}"
    yield f"{cls.summary[0].upper()}{cls.summary[1:]}. Strikes: {', '.join(f'`{kind}`' for kind in cls.on)}."
    if cls.only_real_clock:
        yield "\nFor the real clock only."
    if cls.only_on:
        yield f"\nOnly on these topologies: {', '.join(f'`{kind}`' for kind in sorted(cls.only_on))}."
    if cls.trims:
        yield "\nOnly where switches [trim](trimming.md) (`fabric.switch.trimming`)."
    if cls.adaptive is not None:
        yield f"\nOnly where switches {'choose among equal ports' if cls.adaptive else 'hash'} (`control.routing`)."
    if cls.cable_credits is not None:
        kept = "under credits" if cls.cable_credits else "with pauses"
        yield f"\nOnly on cables {kept} (`fabric.cable.flow_control`)."
    if cls.grants:
        yield "\nOnly where the congestion control goes by [credit](credits.md)."
    yield f"\nSeen by: {cls.shows}."
    if cls.mended_by:
        links = [f"[`{words}`](operate.md#{words.replace(' ', '-')})" for words in cls.mended_by]
        yield f"\nRemoved by: {', '.join(links)}."
    written = ", ".join(f"{key}: {_written(value)}" for key, value in {"fault": cls.name, **cls.example}.items())
    yield f"\nSuch as: `{{{written}}}`"
    shared = set(FrameFault.model_fields) - set(cls.__annotations__) if issubclass(cls, FrameFault) else set()
    if own := set(cls.model_fields) - shared:
        yield from _parameters(cls, own)


def _written(value: object) -> str:
    """As YAML within braces."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_written(of)}' for key, of in value.items())}}}"
    return f'"{value}"' if isinstance(value, str) and ":" in value else str(value)


def _parameters(cls: type[Fault], chosen: set[str]) -> list[str]:
    schema = cls.model_json_schema()
    properties = {key: what for key, what in schema["properties"].items() if key in chosen}
    return table(rows({**schema, "properties": properties}, schema.get("$defs", {})))


if __name__ == "__main__":
    write(PAGE, "tests.pages.faults", tables())
