"""Reads YAML and keeps the line of every key and list item, so that an error can name its place.

YAML 1.2 (`on` and `no` are words, not booleans), one document, plain data only.  Aliases are followed within a
budget, so that a small file cannot grow without bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.base import yaml_core

MAX_BYTES = 4 << 20
MAX_VALUES = 1_000_000
MAX_DEPTH = 32
MAX_DIGITS = 100

_WANTED = "an experiment file is wanted here: docs/experiment.md, ready ones are in experiments/"

Path = tuple[str | int, ...]


class YamlProblem(Exception):
    """Not one plain YAML document: what is wrong, and on which line (0: the file as a whole)."""

    def __init__(self, what: str, line: int = 0, hint: str = "", path: Path = (), character: int = 0) -> None:
        super().__init__(what)
        self.what, self.line, self.hint, self.path, self.character = what, line, hint, path, character
        self.why = what


class NotYaml(YamlProblem):
    """Text that is no YAML at all; `why` says it where no file is meant."""

    def __init__(self, why: str, line: int = 0, character: int = 0) -> None:
        super().__init__(f"not YAML: {why}", line, _WANTED, character=character)
        self.why = why


@dataclass
class Document:
    """The data, and the line (from 1) of every key and list item."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of what is at `path`, or of the nearest enclosing thing if there is nothing."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def value(self, path: Path) -> Any:
        """The value as written at `path`; None where there is none."""
        value = self.data
        for step in path:
            try:
                value = value[step]
            except (LookupError, TypeError):
                return None
        return value


def read(text: str) -> Document:
    """Parse one YAML document.  Raises YamlProblem."""
    root = yaml_core.compose(text)
    if root is None:
        root = _compose(text)
    document = Document()
    try:
        document.data = _Builder(document).build(root, (), 0)
    except RecursionError:
        raise YamlProblem("nested too deeply") from None
    return document


def value(text: str) -> Any:
    """A value that is no file of its own, such as one on a command line. Raises YamlProblem."""
    return read(text).data if text.strip() else None


def _compose(text: str) -> Any:
    """The root of any document, even one that is hard to read; or what is wrong with it.  Raises YamlProblem."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(str(part) for part in (error.context, error.problem) if part)
        line, character = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise NotYaml(what, line, character) from None
    except YAMLError as error:
        raise NotYaml(str(error).splitlines()[0]) from None
    except RecursionError:
        raise YamlProblem("nested too deeply") from None
    if root is None:
        raise YamlProblem("the file is empty", hint="start from experiments/quickstart.yaml")
    return root


def _without_colon(key: Any, value: Any) -> bool:
    """Whether a key of `{..}` ends where its value, which is empty, would begin: as in `{rate:4}`."""
    ends = (key.start_mark.line, key.start_mark.column + len(str(key.value)))
    return value.id == "scalar" and not value.value and ends == (value.start_mark.line, value.start_mark.column)


class _Builder:
    """Makes plain data of the nodes of either parser."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values = 0

    def build(self, node: Any, path: Path, depth: int) -> Any:
        """The plain value of `node`, noting its line."""
        line = node.start_mark.line + 1
        self.values += 1
        if self.values > MAX_VALUES:
            raise YamlProblem(f"more than {MAX_VALUES} values", line, path=path)
        if depth > MAX_DEPTH:
            raise YamlProblem("nested too deeply (or an alias that contains itself)", line, path=path)
        self.document.lines.setdefault(path, line)  # a key's line comes first: its value may start below it
        if node.id == "mapping":
            return self.mapping(node, path, depth)
        if node.id == "sequence":
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        if node.id == "scalar":
            return self.scalar(node, line, path)
        raise YamlProblem("only plain values are allowed here", line, path=path)

    def mapping(self, node: Any, path: Path, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.id != "scalar":
                raise YamlProblem("a key must be a word", line, path=path)
            key = str(key_node.value)
            here = (*path, key)
            if key in data:
                first = self.document.lines[here]
                raise YamlProblem(f"key {key!r} stands twice", line, f"it is already on line {first}", here)
            self.document.lines[here] = line
            if ":" in key and _without_colon(key_node, value_node):
                word, _, rest = key.partition(":")
                raise YamlProblem(f"{key!r} is one word", line, f"{word}: {rest}, with a space behind the colon", path)
            data[key] = self.build(value_node, here, depth + 1)
        return data

    def scalar(self, node: Any, line: int, path: Path) -> Any:
        tag = str(node.tag)
        if tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"):
            return node.value
        if tag not in {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float")}:
            raise YamlProblem(f"only plain values are allowed here, not {tag}", line, path=path)
        try:
            if len(node.value) > MAX_DIGITS:
                raise ValueError
            return yaml_core.plain(tag, node.value)
        except (ValueError, OverflowError, LookupError):
            raise YamlProblem(f"{node.value[:40]!r} is not a number", line, path=path) from None
