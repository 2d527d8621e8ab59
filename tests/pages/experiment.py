"""Generates the reference of the experiment file from its models: `python -m tests.pages.experiment`.

Writes docs/experiment.schema.json, for editors, and the tables in docs/experiment.md between its two markers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.experiment.model import Experiment
from testbed.experiment.steps.steps import KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
_END = "<!-- end of the tables -->"


def write(page: Path, module: str, text: str) -> None:
    """Writes what stands between a page's markers, which name the module that makes it."""
    begin = f"<!-- tables: python -m {module} -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n\n{_END}{rest.partition(_END)[2]}")


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the experiment file."""
    made = Experiment.model_json_schema()
    made["description"] = "A Railbed experiment."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(made)}


def _without_titles(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if isinstance(node, dict):
        return {k: _without_titles(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
    return node


def tables() -> str:
    """Markdown: a table of the keys, then one for each kind of topology and of workload step."""
    whole = schema()
    defs = whole["$defs"]
    parts = ["### Keys", *table(rows(whole, defs))]
    for kind, described in defs["Topology"]["properties"].items():
        parts += [f"### Topology `{kind}`: {described['description']}", *table(rows(described, defs))]
    for step in KINDS:
        for title, name in {f"Step of a workload: {step.title}": step.__name__, **step.tables}.items():
            parts += [f"### {title}", *table(rows(defs[name], defs))]
    return "\n".join(parts).replace("\n###", "\n\n###")


def table(lines: Iterator[tuple[str, str, str, str]]) -> list[str]:
    """The lines of a Markdown table, from rows()."""
    return [
        "",
        "| key | what it takes | default | meaning |",
        "|---|---|---|---|",
        *(re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", f"| {' | '.join(row)} |") for row in lines),
    ]


def rows(model: dict[str, Any], defs: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, what it takes, default and meaning of each key of a JSON schema, those of inner mappings too."""
    model = next(m for m in (model, *model.get("anyOf", ())) if "properties" in m)
    for key, described in model["properties"].items():
        inner = _mapping_behind(described, defs)
        default = "required" if key in model.get("required", ()) else "its keys' own"
        if "default" in described:
            written = described["default"]
            default = f"`{written if isinstance(written, str) else json.dumps(written)}`"
        elif not inner and default != "required":
            default = "none" if described.get("type") in ("array", "object") else "depends"
        yield f"`{prefix}{key}`", "mapping" if inner else _takes(described), default, described.get("description", "")
        if inner:
            yield from rows(inner, defs, f"{prefix}{key}.")


def _mapping_behind(described: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any] | None:
    """The model that a key refers to, if its keys are to be listed with it."""
    for choice in [described, *described.get("anyOf", described.get("oneOf", ()))]:
        name = choice.get("$ref", "").rpartition("/")[2]
        if name and name not in _UNLISTED:
            model: dict[str, Any] = defs[name]
            return model
    return None


def _takes(described: dict[str, Any]) -> str:
    if "enum" in described:
        return ", ".join(f"`{'null' if name is None else name}`" for name in described["enum"])
    if "const" in described:
        return f"`{described['const']}`"
    if choices := described.get("anyOf", described.get("oneOf")):
        return " or ".join(_takes(choice) for choice in choices)
    if "$ref" in described:
        return _UNLISTED[described["$ref"].rpartition("/")[2]]
    if described.get("type") == "array":
        return f"list of {_plural(described.get('items', {}))}"
    name = described.get("x-quantity", _TYPE_WORDS[described["type"]])
    bounds = [f"{word} {described[key]}" for key, word in _BOUND_WORDS if key in described]
    return " ".join([name, *bounds])


_UNLISTED = {
    "Topology": "`{KIND: {PARAMETERS}}`",
    "Clock": "see below",
    "PoolOf": "`[RANKS]`, or a pool as below",
    "Interleaved": "`{interleaved: CHUNKS}`",
    "Own": "keys of `transport`",
    "CongestionControl": "`NAME` or `{NAME: {PARAMETERS}}`",
    "PickPolicy": "`NAME` or `{file: FILE.c, PARAMETERS}`",
}
_TYPE_WORDS = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`", "null": "`null`",
    "object": "mapping",
}  # fmt: skip
_BOUND_WORDS = (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "below"))


def _plural(items: dict[str, Any]) -> str:
    if "oneOf" in items:
        return "steps"
    if "$ref" in items and items["$ref"].endswith("/Own"):
        return f"mappings with {_takes(items)}"
    if "$ref" in items:
        return f"{items['$ref'].rpartition('/')[2].lower()}s"
    if not items:
        return "mappings"
    if items.get("type") == "array":
        return f"lists of {_plural(items.get('items', {}))}"
    return (
        _takes(items)
        .replace("integer", "integers")
        .replace("text", "texts")
        .replace("size", "sizes")
        .replace("number", "numbers")
    )


def main() -> None:
    (DOCS / "experiment.schema.json").write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n")
    write(DOCS / "experiment.md", "tests.pages.experiment", tables())


if __name__ == "__main__":
    main()
