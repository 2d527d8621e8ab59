"""Long answers in pages: an answer's line has LIMIT characters at most, and a cursor if there is more."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from testbed.base.errors import InputError
from testbed.base.text import printable

LIMIT = 4000
KEPT = 16
"""So many long answers can be read on."""
_LONGEST_CURSOR = "999999999:999999999"


def dumped(told: Mapping[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def safe(text: str) -> str:
    """Without control characters but line ends: of what JSON then escapes, two characters come of one."""
    return "\n".join(printable(line) for line in text.split("\n"))


class Pages:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[dict[str, Any], str]] = OrderedDict()
        self._number = 0

    def first(self, head: Mapping[str, Any], text: str) -> dict[str, Any]:
        """`head` with as much of the text as fits, and with `next` if there is more."""
        self._number += 1
        number = str(self._number)
        page = _page(head, number, safe(text), 0)
        if "next" in page:
            self._kept[number] = ({key: value for key, value in head.items() if key != "id"}, safe(text))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return page

    def further(self, cursor: str, also: Mapping[str, Any]) -> dict[str, Any]:
        """From a `next` on, with what the head has besides. Raises InputError."""
        number, colon, offset = cursor.partition(":")
        if number not in self._kept or not colon or not (offset.isascii() and offset.isdecimal() and len(offset) < 10):
            hint = f"the next of one of the last {KEPT} long answers"
            raise InputError(f"there is no cursor {printable(cursor[:40])!r}", "cursor", hint)
        head, text = self._kept[number]
        return _page({**also, **head}, number, text, int(offset))


def _page(head: Mapping[str, Any], number: str, text: str, start: int) -> dict[str, Any]:
    room = LIMIT - len(dumped({**head, "text": "", "next": _LONGEST_CURSOR}))
    page = text[start : start + room]
    while (over := _written(page) - room) > 0:
        page = page[: -((over + 1) // 2)]
    end = start + len(page)
    if end >= len(text):
        return {**head, "text": page}
    line_end = page.rfind("\n") + 1
    if line_end > len(page) // 2:  # rows of tables stay whole
        page, end = page[:line_end], start + line_end
    return {**head, "text": page, "next": f"{number}:{end}"}


def _written(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False)) - 2
