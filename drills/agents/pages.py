"""Long answers in pages: an answer's line has LIMIT characters at most, and a cursor if there is more.

A page of text ends behind a line. A page of JSON is an object with a part of the rows of the tables; to join pages,
merge their objects key by key, and concatenate lists.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from testbed.base.errors import InputError
from testbed.base.text import fit, printable

LIMIT = 4000
KEPT = 16
"""Long answers whose further pages can be read."""
_LONGEST_CURSOR = "999999999:999999999"
_LONGEST_ID = 400
"""Characters of an id as JSON has it, at most."""
Read = Callable[[int, int], tuple[str, int | None]]
"""The page from a place on that fits so many characters, and where the next one begins (None: it is the last)."""


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Pages:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[dict[str, Any], Read]] = OrderedDict()
        self._number = 0

    def first(self, head: Mapping[str, Any], text: str) -> dict[str, Any]:
        """`head` with as much of the text as fits, and with `next` if there is more."""
        whole = fit(text)
        return self._begin(head, lambda start, room: _of_text(whole, start, room))

    def first_of(self, head: Mapping[str, Any], data: Any) -> dict[str, Any]:
        """The same of data, as JSON. Raises InputError for a part that no page has room for."""
        room = _room(head)  # of the longest head that its pages will have
        parts = _parts(data, room)
        return self._begin(head, lambda start, _: (parts[start], start + 1 if start + 1 < len(parts) else None))

    def _begin(self, head: Mapping[str, Any], read: Read) -> dict[str, Any]:
        self._number += 1
        number = str(self._number)
        page = _page(head, number, read, 0)
        if "next" in page:
            self._kept[number] = ({key: value for key, value in head.items() if key != "id"}, read)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return page

    def further(self, cursor: str, also: Mapping[str, Any]) -> dict[str, Any]:
        """From a `next` on, with what the head has besides. Raises InputError."""
        number, colon, offset = cursor.partition(":")
        known = number in self._kept and colon and offset.isascii() and offset.isdecimal() and len(offset) < 10
        try:
            if known:
                head, read = self._kept[number]
                return _page({**also, **head}, number, read, int(offset))
        except IndexError:
            pass
        hint = f"the next of one of the last {KEPT} long answers"
        raise InputError(f"there is no cursor {printable(cursor[:40])!r}", "cursor", hint)


def _room(head: Mapping[str, Any]) -> int:
    return LIMIT - len(dumped({**head, "text": "", "next": _LONGEST_CURSOR}))


def _page(head: Mapping[str, Any], number: str, read: Read, start: int) -> dict[str, Any]:
    page, more = read(start, _room(head))
    return {**head, "text": page} if more is None else {**head, "text": page, "next": f"{number}:{more}"}


def _of_text(text: str, start: int, room: int) -> tuple[str, int | None]:
    page = text[start : start + room]
    while (over := _written(page) - room) > 0:
        page = page[: -((over + 1) // 2)]
    end = start + len(page)
    if end >= len(text):
        return page, None
    line_end = page.rfind("\n") + 1
    if line_end > len(page) // 2:  # rows of tables stay whole
        page, end = page[:line_end], start + line_end
    return page, end


def _parts(data: Any, room: int) -> list[str]:
    """Of an object, whole objects whose texts fit."""
    room -= _LONGEST_ID  # a further page may be asked for with an id of its own
    if _written(whole := dumped(data)) <= room:
        return [whole]
    parts: list[str] = []
    part: Any = {}
    for path, value in _leaves(data):
        if part and _written(dumped(part)) + _written(dumped([*path, value])) + 8 * len(path) > room:
            parts.append(dumped(part))
            part = {}
        part = _with(part, path, value)
        if _written(dumped(part)) > room:
            raise InputError(f"a part of it has no room in {LIMIT} characters", "form", 'ask for it as "form": "text"')
    return [*parts, dumped(part)]


def _leaves(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values with their paths; each entry of a list by itself, as a list of one."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(data, list | tuple) and data and path:
        yield from ((path, [one]) for one in data)
    else:
        yield path, data


def _with(part: Any, path: Sequence[str], value: Any) -> Any:
    """The part with a value put in at a path, or appended to the list there."""
    if not path:
        return value
    *above, last = path
    at = part
    for key in above:
        at = at.setdefault(key, {})
    at[last] = [*at[last], *value] if isinstance(value, list) and last in at else value
    return part


def _written(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False)) - 2
