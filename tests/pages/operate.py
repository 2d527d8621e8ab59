"""Generates the tables of docs/operate.md from the registry: `python -m tests.pages.operate`."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.operate.registry import GROUPS
from testbed.operate.steps.action import Action
from tests.pages.experiment import DOCS, write

PAGE = DOCS / "operate.md"


def tables() -> str:
    """Markdown: by group, each action with its parameters and what it does."""
    parts = []
    for title, actions in GROUPS.items():
        parts.append(f"\n## {title}")
        for action in actions:
            parts += _section(action)
    return "\n".join(parts).strip()


def _section(action: Action) -> Iterator[str]:
    yield f"\n### {action.words}"
    yield f"{action.about} `testbed config {action.usage}`, such as `{action.words} {action.example}`\n"
    yield "| | |"
    yield "|---|---|"
    for p in action.parameters:
        yield f"| `{p.usage}` | {_cell(p.help)} |"
    for what, text in action.consequences.items():
        yield f"| {what} | {text} |"
    for text, faults in (("configures away", action.configures), ("removes", action.mends)):
        if faults:
            yield f"| {text} | {', '.join(f'[`{name}`](faults.md#{name})' for name in faults)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write(PAGE, "tests.pages.operate", tables())
