"""Generates the tables of docs/drill-authors.md from the models: `python -m tests.pages.drills`."""

from __future__ import annotations

from drills.sheet.draw import Draw
from drills.sheet.drill import Drill, OldCounter, Tenant
from tests.pages.experiment import DOCS, rows, table, write

PAGE = DOCS / "drill-authors.md"
MODELS = (("A drill", Drill), ("A place", Draw), ("A tenant", Tenant), ("An old counter", OldCounter))


def tables() -> str:
    """Markdown: the keys of each model."""
    parts = []
    for title, model in MODELS:
        schema = model.model_json_schema()
        parts += [f"\n### {title}", *table(rows(schema, schema.get("$defs", {})))]
    return "\n".join(parts).strip()


if __name__ == "__main__":
    write(PAGE, "tests.pages.drills", tables())
