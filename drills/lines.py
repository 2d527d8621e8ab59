"""What lines of players and of instructors share: how they are read, completed and printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.words import kinds
from testbed.words.entry import Entry, Parameter, offers
from topologies.graph.fabric import Fabric

Output = tuple[str, Any]  # text, data
CONFIG = "config"


def last_word(line: str) -> tuple[list[str], str]:
    """The whole words of a line that is being typed, and the one that is not whole yet."""
    words = line.split()
    return words, "" if not line or line[-1].isspace() else words.pop()


def completions(entries: Iterable[Entry], words: Sequence[str], begun: str, fabric: Fabric) -> list[str]:
    """What `begun` may become behind these words."""
    return sorted({word for word, _ in offers(entries, words, fabric) if word.startswith(begun)})


def table_text(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    from testbed.tables.results import counters, lines

    return "\n".join(lines(counters(name, rows, whole=True)))


def parameter(name: str, metavar: str, about: str, *, required: bool = False, rest: bool = False) -> Parameter:
    """A word (or the rest of a line) that the command reads by itself."""
    return Parameter(name, kinds.Kind("text", metavar), about, required=required, rest=rest)
