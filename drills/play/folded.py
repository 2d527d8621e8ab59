"""Text for a terminal that is narrower: wide tables in parts below each other, long lines between words.

A table is recognized by its look: successive lines with two blanks at the same places.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

Span = tuple[int, int]


def folded(text: str, width: int) -> str:
    """The same, in lines of at most `width` as far as that is possible."""
    blocks = re.split(r"(\n\s*\n)", text)
    return "".join(block if k % 2 else "\n".join(_block(block.split("\n"), width)) for k, block in enumerate(blocks))


def _block(lines: Sequence[str], width: int) -> Iterator[str]:
    if max(map(len, lines)) <= width:
        yield from lines
        return
    for first in (0, 1):  # a title may stand above the table
        spans = _columns(lines[first:])
        parts = _parts(spans, width) if len(spans) > 2 and len(lines) > first + 1 else []
        if parts:
            yield from lines[:first]
            for k, part in enumerate(parts):
                if k:
                    yield ""
                yield from (_cut(line, part) for line in lines[first:])
            return
    for line in lines:
        yield from _wrapped(line, width)


def _columns(lines: Sequence[str]) -> list[Span]:
    """Where columns begin and end."""
    longest = max(map(len, lines), default=0)
    used = "".join("x" if any(line[k : k + 1].strip() for line in lines) else " " for k in range(longest))
    return [(column.start(), column.end()) for column in re.finditer(r"x(?:x| x)*", used)]


def _parts(spans: Sequence[Span], width: int) -> list[list[Span]]:
    """The columns of each part, the first one in all; none if a column alone is too wide."""
    key = spans[0]
    parts: list[list[Span]] = []
    left = 0
    for span in spans[1:]:
        wide = span[1] - span[0] + 2
        if wide + key[1] > width:
            return []
        if not parts or wide > left:
            parts.append([key])
            left = width - key[1]
        parts[-1].append(span)
        left -= wide
    return parts


def _cut(line: str, part: Sequence[Span]) -> str:
    return "  ".join(line[begin:end].ljust(end - begin) for begin, end in part).rstrip()


def _wrapped(line: str, width: int) -> list[str]:
    """Further lines are indented as far as what is behind the line's last gap in its left half."""
    if len(line) <= width:
        return [line]
    gaps = [gap.end() for gap in re.finditer(r"^ +|(?<=\S) {2,}", line) if gap.end() <= width // 2]
    indent = " " * (gaps[-1] if gaps else 0)
    body = textwrap.wrap(
        line[len(indent) :], width - len(indent), break_on_hyphens=False
    )  # fmt: skip
    return [line[: len(indent)] + body[0], *(indent + more for more in body[1:])] if body else [line]
