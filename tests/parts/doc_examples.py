"""Finds the examples: commands in help texts and in pages, YAML and Python in pages, links.

How a page marks them: a block `console` has `$ ` before what is typed and below it what comes out; a block `sh` has
only what is typed; a block `yaml` is a whole experiment (it has `name:` and `fabric:`) or a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from testbed.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = re.compile(r"^\s*(\$ )?(testbed|\./setup\.sh) \w")


@dataclass
class Block:
    """A fenced block of a page: its language, its lines, and the line of the page that it begins at."""

    page: Path
    line: int
    language: str
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass
class Example:
    """What is typed, and the lines that should come out (none: not said)."""

    line: str
    expected: list[str]
    place: str


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    inside: Block | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if inside is None:
                inside = Block(page, number, line[3:].strip())
            else:
                found.append(inside)
                inside = None
        elif inside is not None:
            inside.lines.append(line)
    assert inside is None, f"{page}: a block is not closed"
    return found


def prose(page: Path) -> list[tuple[int, str]]:
    """The lines of a page outside of its blocks."""
    fenced, found = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            found.append((number, line))
    return found


def in_block(block: Block) -> list[Example]:
    found: list[Example] = []
    for number, line in enumerate(block.lines, block.line + 1):
        place = f"{block.page.relative_to(ROOT)}:{number}"
        if block.language == "console":
            if line.startswith("$ "):
                found.append(Example(line[2:], [], place))
            else:
                found[-1].expected.append(line)
        elif line.strip() and not line.startswith("#"):
            found.append(Example(line, [], place))
    return found


def commands(group: click.Group = cli, name: str = "testbed") -> Iterator[tuple[str, click.Command]]:
    """Every command with a help text; of the faults, which are all made in the same way, the first."""
    context = click.Context(group)
    below = group.list_commands(context)
    yield name, group
    for verb in below[:1] if name == "testbed inject" else below:
        command = group.get_command(context, verb)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {verb}")
        else:
            yield f"{name} {verb}", command


def in_help(name: str, command: click.Command) -> list[Example]:
    """The lines below `Examples:`."""
    text = f"{command.help or ''}\n\n{command.epilog or ''}"
    found = []
    for part in re.split(r"\n\s*\n", text):
        if "Examples:" in part:
            lines = part.partition("Examples:")[2].strip().splitlines()
            found += [Example(re.split(r"\s{3,}|\s+# ", line.strip())[0], [], f"{name} --help") for line in lines]
    return found


def as_expected(expected: list[str], actual: list[str]) -> str:
    """Empty, or the first expected line that did not come. `...` alone stands for any lines, at an end for any rest."""

    def like(pattern: str, line: str) -> bool:
        want, got = " ".join(pattern.split()), " ".join(line.split())
        return got.startswith(want[:-3]) if want.endswith("...") else got == want

    actual = [line for line in actual if line.strip()]
    place, free = 0, False
    for pattern in (line for line in expected if line.strip()):
        if pattern.strip() == "...":
            free = True
            continue
        ahead = range(place, len(actual) if free else min(place + 1, len(actual)))
        hit = next((i for i in ahead if like(pattern, actual[i])), None)
        if hit is None:
            return pattern
        place, free = hit + 1, False
    return "" if free or not expected or place == len(actual) else f"(the end; there is more: {actual[place]})"


def anchors(page: Path) -> set[str]:
    """What `#` links to the headings of a page are called."""
    found = set()
    for _, line in prose(page):
        if match := re.match(r"#+ (.*)", line):
            words = re.sub(r"[^\w\- ]", "", match[1].replace("`", "").lower())
            found.add(words.replace(" ", "-"))
    return found
