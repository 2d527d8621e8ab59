"""MSCCL's XML: what stands in the file, each part with its line.  Nothing of it is expanded or fetched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pyexpat import ExpatError, ParserCreate
from typing import Any, NoReturn

from workloads.own.mistake import BadAlgorithm

_CHILD = {"": "algo", "algo": "gpu", "gpu": "tb", "tb": "step"}
_INTEGER = re.compile(r"-?[0-9]{1,9}")


@dataclass
class Element:
    """`line`: where it begins."""

    name: str
    line: int
    attributes: Mapping[str, str]
    children: list[Element] = field(default_factory=list)

    def wrong(self, what: str, hint: str = "") -> NoReturn:
        raise BadAlgorithm(what, hint, self.line)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.attributes.get(key, default)
        if value is None:
            self.wrong(f"{self.name} has no {key}", f'such as <{self.name} {key}=".." ..>')
        return value

    def number(self, key: str, least: int, most: int | None = None, default: int | None = None) -> int:
        """A whole number within bounds."""
        text = self.text(key, None if default is None else str(default))
        if not _INTEGER.fullmatch(text):
            self.wrong(f"{self.name}: {key}={text[:40]!r} is no whole number")
        value = int(text)
        if value < least or (most is not None and value > most):
            allowed = f"{least} to {most}" if most is not None else f"{least} or more"
            self.wrong(f"{self.name}: {key}={value} is out of range", allowed)
        return value


def parsed(text: bytes) -> Element:
    """The `algo` of a file.  Raises BadAlgorithm."""
    parser = ParserCreate()
    open_: list[Element] = []
    found: list[Element] = []

    def wrong(what: str, hint: str = "") -> NoReturn:
        raise BadAlgorithm(what, hint, parser.CurrentLineNumber)

    def start(name: str, attributes: dict[str, str]) -> None:
        inside = open_[-1].name if open_ else ""
        if _CHILD.get(inside) != name:
            wanted = f"<{_CHILD[inside]}>" if inside in _CHILD else "nothing"
            wrong(f"<{name[:40]}> {f'in <{inside}>' if inside else 'on top'} is not MSCCL's", f"{wanted} stands there")
        element = Element(name, parser.CurrentLineNumber, attributes)
        (open_[-1].children if open_ else found).append(element)
        open_.append(element)

    def end(_: str) -> None:
        open_.pop()

    def refused(*_: object) -> Any:
        wrong("it declares a document type, and could name entities there", "leave <!DOCTYPE ..> out")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refused
    try:
        parser.Parse(text, True)
    except BadAlgorithm:
        raise
    except (LookupError, ValueError) as error:
        raise BadAlgorithm(f"its encoding is not known: {error}", 'encoding="utf-8"', 1) from None
    except ExpatError as error:
        raise BadAlgorithm(f"it is no XML: {str(error).partition(':')[0]}", "", error.lineno) from None
    return found[0]
