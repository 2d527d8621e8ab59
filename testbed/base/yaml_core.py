"""A quick parser for plain YAML: libyaml's, in C, with the words and numbers of YAML 1.2's core schema.

It has no good words for what is wrong, and where YAML 1.1 and 1.2 differ it knows 1.1 only. So it takes printable ASCII
without directives, tags and aliases, and what it refuses is for ruamel.yaml to judge.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml import events
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

_STRANGE = re.compile(r"[^\n -~]|[!&*]|^%", re.MULTILINE)
_TAG = "tag:yaml.org,2002:"
_SCALARS = {  # as in ruamel.yaml's resolver.py
    "bool": (r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "float": (
        r"(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)"
        r"|[-+]?\.[0-9_]+(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
    "int": (r"(?:[-+]?0b[0-1_]+|[-+]?0o?[0-7_]+|[-+]?[0-9_]+|[-+]?0x[0-9a-fA-F_]+)$", "-+0123456789"),
    "merge": (r"<<$", "<"),
    "null": (r"(?:~|null|Null|NULL|)$", "~nN "),
    "timestamp": (
        r"(?:[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]|[0-9][0-9][0-9][0-9]-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)"
        r"[0-9][0-9]?:[0-9][0-9]:[0-9][0-9](?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9][0-9])?))?)$",
        "0123456789",
    ),
    "value": (r"=$", "="),
}
DEEPEST = 100
_BOOLEANS = {"true": True, "yes": True, "y": True, "on": True, "false": False, "no": False, "n": False, "off": False}


class TooDeep(Exception):
    """More than DEEPEST values within each other; others would look at them for seconds before they gave up."""


class PlainScalars(BaseResolver):
    """What is no string, although it is written without quotes."""


for _name, (_pattern, _first) in _SCALARS.items():
    PlainScalars.add_implicit_resolver(_TAG + _name, re.compile(_pattern), [c.strip() for c in _first])
_scalars = PlainScalars()


def compose(text: str) -> Node | None:
    """The root of the one document; None if it is refused, empty, or nothing for this parser.  Raises TooDeep."""
    if not yaml.__with_libyaml__ or _STRANGE.search(text):
        return None
    parser = yaml.cyaml.CParser(text)
    try:
        return _root(parser)
    except yaml.YAMLError:
        return None
    finally:
        parser.dispose()


def _root(parser: Any) -> Node | None:
    """From the parser's events: its own `compose` ends the process when nodes are nested too deeply."""
    roots: list[Node] = []
    open_nodes: list[Node] = []
    while not isinstance(event := parser.get_event(), events.StreamEndEvent):
        node: Node | None = None
        if isinstance(event, events.ScalarEvent):
            tag = _scalars.resolve(ScalarNode, event.value, event.implicit)
            node = ScalarNode(tag, event.value, event.start_mark)
        elif isinstance(event, events.SequenceStartEvent):
            node = SequenceNode(_TAG + "seq", [], event.start_mark)
        elif isinstance(event, events.MappingStartEvent):
            node = MappingNode(_TAG + "map", [], event.start_mark)
        elif isinstance(event, events.CollectionEndEvent):
            closed = open_nodes.pop()
            if closed.id == "mapping":
                closed.value = list(zip(closed.value[::2], closed.value[1::2], strict=True))
        if node is not None:
            (open_nodes[-1].value if open_nodes else roots).append(node)
            if node.id != "scalar":
                open_nodes.append(node)
            if len(open_nodes) > DEEPEST:
                raise TooDeep
    return roots[0] if len(roots) == 1 else None


def plain(tag: str, text: str) -> Any:
    """The value of a null, boolean or number.  Raises ValueError, LookupError or OverflowError."""
    kind = tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return _BOOLEANS[text.lower()]
    digits = text.replace("_", "")
    sign = -1 if digits[0] == "-" else 1
    digits = digits[1:] if digits[0] in "+-" else digits
    if kind == "int":
        base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2])
        return sign * (int(digits[2:], base) if base else int(digits))
    return sign * float(digits[1:] if digits.lower() in (".inf", ".nan") else digits)
