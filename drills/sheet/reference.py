"""Generates the tables of docs/drill-authors.md from the models: `python -m drills.sheet.reference`."""

from __future__ import annotations

from drills.sheet.draw import Draw
from drills.sheet.drill import Drill, OldCounter, Tenant
from testbed.experiment.reference import DOCS, rows, table

PAGE = DOCS / "drill-authors.md"
BEGIN = "<!-- tables: python -m drills.sheet.reference -->"
END = "<!-- end of the tables -->"
MODELS = (("A drill", Drill), ("A place", Draw), ("A tenant", Tenant), ("An old counter", OldCounter))


def tables() -> str:
    """Markdown: the keys of each model."""
    parts = []
    for title, model in MODELS:
        schema = model.model_json_schema()
        parts += [f"\n### {title}", *table(rows(schema, schema.get("$defs", {})))]
    return "\n".join(parts).strip()


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
