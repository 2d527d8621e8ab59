"""Filters of captures: a small part of pcap's language, and comparisons of decoded fields.

    [src|dst] host ADDRESS    [src|dst] port N    ip  arp  udp  tcp  roce  pfc  ce  in  out
    FIELD OP VALUE            FIELD one of: dscp ecn ttl len qp psn sport dport opcode; OP one of: == != < <= > >=
    and  or  not  ( )         && || ! are the same

An ADDRESS is an IPv4 address or a NIC's name; ecn may be ect0, ect1, ce or not-ect.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from testbed.live.tools.packets import OPCODES, Packet
from testbed.words.kinds import Wrong
from topologies.graph.fabric import Fabric

Test = Callable[[Packet], bool]
_TOKEN = re.compile(r"\s*(\(|\)|==|!=|<=|>=|<|>|=|&&|\|\||!|[\w.:-]+)")
_KINDS: dict[str, Test] = {
    "ip": lambda p: p.dscp is not None, "arp": lambda p: p.protocol == "ARP", "udp": lambda p: p.sport is not None
    and p.protocol != "TCP", "tcp": lambda p: p.protocol == "TCP", "roce": lambda p: p.protocol == "RRoCE",
    "pfc": lambda p: p.protocol == "PFC", "ce": lambda p: p.ecn == 3, "in": lambda p: not p.out,
    "out": lambda p: p.out,
}  # fmt: skip
_FIELDS: dict[str, Callable[[Packet], Any]] = {
    "dscp": lambda p: p.dscp, "ecn": lambda p: p.ecn, "ttl": lambda p: p.ttl, "len": lambda p: p.length,
    "qp": lambda p: p.qp, "psn": lambda p: p.psn, "sport": lambda p: p.sport, "dport": lambda p: p.dport,
    "opcode": lambda p: p.opcode,
}  # fmt: skip
_COMPARE = {
    "==": operator.eq, "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_ECN = {"not-ect": 0, "ect1": 1, "ect0": 2, "ce": 3}
_SAME = {"&&": "and", "||": "or", "!": "not"}
DEEPEST = 50
"""How often a filter may have ( or not."""
HELP = f"{', '.join([*_KINDS])}, host ADDRESS, port N, {', '.join(_FIELDS)} with == != < <= > >=; and, or, not, ( )"


def parse(text: str, fabric: Fabric) -> Test:
    """Raises Wrong that names the word."""
    parser = _Parser(text, fabric)
    if sum(word in ("(", "not") for word in parser.words) > DEEPEST:
        raise Wrong(f"the filter has more than {DEEPEST} times ( or not", HELP)
    if not parser.words:
        return lambda packet: True
    test = parser.either()
    if parser.words:
        raise parser.wrong(f"{parser.words[0]!r} does not belong there")
    return test


class _Parser:
    """By recursive descent: `or` binds least."""

    def __init__(self, text: str, fabric: Fabric) -> None:
        self.text, self.fabric = text, fabric
        self.words: list[str] = []
        at = 0
        while text[at:].strip():
            if not (match := _TOKEN.match(text, at)):
                raise self.wrong(f"{text[at:].strip()[:20]!r} is nothing known")
            self.words.append(_SAME.get(match[1], match[1]))
            at = match.end()

    def wrong(self, what: str) -> Wrong:
        return Wrong(f"{what} in the filter {self.text!r}", HELP)

    def either(self) -> Test:
        tests = [self.all()]
        while self.words[:1] == ["or"]:
            self.words.pop(0)
            tests.append(self.all())
        return tests[0] if len(tests) == 1 else lambda p: any(test(p) for test in tests)

    def all(self) -> Test:
        tests = [self.one()]
        while self.words[:1] == ["and"]:
            self.words.pop(0)
            tests.append(self.one())
        return tests[0] if len(tests) == 1 else lambda p: all(test(p) for test in tests)

    def take(self, what: str) -> str:
        if not self.words:
            raise self.wrong(f"{what} is missing at the end")
        return self.words.pop(0)

    def one(self) -> Test:
        word = self.take("a test")
        if word == "not":
            test = self.one()
            return lambda p: not test(p)
        if word == "(":
            test = self.either()
            if self.take(")") != ")":
                raise self.wrong("a ) is missing")
            return test
        if word in ("src", "dst", "host", "port"):
            return self.place(word)
        if word in _FIELDS:
            return self.field(word)
        if word in _KINDS:
            return _KINDS[word]
        raise self.wrong(f"{word!r} is nothing known")

    def place(self, word: str) -> Test:
        side = word if word in ("src", "dst") else ""
        kind = word if not side else self.words.pop(0) if self.words[:1] in (["host"], ["port"]) else "host"
        value = self.take("an address" if kind == "host" else "a port")
        if kind == "port":
            port = self.number(value)
            return lambda p: port in {"src": [p.sport], "dst": [p.dport]}.get(side, [p.sport, p.dport])
        address = self.address(value)
        return lambda p: address in {"src": [p.src], "dst": [p.dst]}.get(side, [p.src, p.dst])

    def address(self, value: str) -> str:
        if value in self.fabric.nic_by_name:
            return str(self.fabric.nic_by_name[value].ip)
        if not re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", value):
            raise self.wrong(f"{value!r} is no address and no NIC")
        return value

    def field(self, name: str) -> Test:
        sign = self.take("a comparison")
        if sign not in _COMPARE:
            raise self.wrong(f"{name} is compared with ==, !=, <, <=, > or >=, not with {sign!r}")
        compare, value = _COMPARE[sign], self.value(name, self.take("a value"))
        of = _FIELDS[name]
        return lambda p: (found := of(p)) is not None and bool(compare(found, value))

    def value(self, name: str, word: str) -> Any:
        if name == "opcode":
            if word not in OPCODES.values():
                raise self.wrong(f"there is no opcode {word!r} ({', '.join(OPCODES.values())})")
            return word
        if name == "ecn" and word.lower() in _ECN:
            return _ECN[word.lower()]
        return self.number(word)

    def number(self, word: str) -> int:
        try:
            return int(word, 0)
        except ValueError:
            raise self.wrong(f"{word!r} is no number") from None
