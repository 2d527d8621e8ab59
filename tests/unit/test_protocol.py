"""fabricd's protocols stand once: its sources, docs/fabricd-protocol.md, the client and Python's callers agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hardware import protocol
from hardware.build import SOURCES
from hardware.tables import entries
from workloads.verbs import wire

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_as_the_sources() -> None:
    page = protocol.DOCUMENT.read_text()
    assert protocol.written(page) == page, "python -m hardware.protocol writes it anew"
    assert page.count("written by python -m hardware.protocol") == len(protocol.TABLES)


def test_the_client_speaks_the_commands() -> None:
    commands = {name: (int(n), int(size), more) for n, name, _, size, more, _ in entries(protocol.COMMANDS)}
    assert [number for number, _, _ in commands.values()] == list(range(1, 15))
    for name, (number, size, more) in commands.items():
        assert getattr(wire, name) == number
        if more == "false" and number in wire.BODY:
            assert wire.BODY[number].size == size, name


def test_the_client_understands_what_it_is_told() -> None:
    replies = {name: (int(n), int(size)) for n, name, size, _, _ in entries(protocol.REPLIES)}
    bodies = {"WELCOME": wire.WELCOME_BODY, "REGION": wire.REGION_BODY, "RECORDS": wire.RECORDS_BODY}
    assert replies.keys() == {*bodies, "ERROR"}
    for name, (number, size) in replies.items():
        assert getattr(wire, name) == number
        assert size == (bodies[name].size if name in bodies else 0), name
    assert {int(n): words for n, _, words in entries(protocol.STATUSES)} == wire.STATUS


def test_the_client_knows_the_records_and_what_stands_behind_them() -> None:
    known = entries(protocol.RECORDS)
    assert [int(n) for n, *_ in known] == list(range(1, wire.GROUP_FAILED + 1))
    for number, name, _, behind in known:
        assert getattr(wire, name) == int(number)
        body = wire.RECORD.pack(int(number), wire.RECORD.size + 8, 0, 0, 0, 0, 0, 3) + b"why" + bytes(5)
        if behind:
            assert [record.private for record in wire.records(memoryview(body), 1)] == [b"why"]
        else:
            with pytest.raises(wire.Malformed):
                list(wire.records(memoryview(body), 1))


def test_every_request_of_python_is_one() -> None:
    known = {op for op, *_ in entries(protocol.REQUESTS)}
    sources = [f for folder in ("testbed", "controllers", "hardware") for f in (ROOT / folder).rglob("*.py")]
    asked = {op for f in sources for op in re.findall(r"\.request\(\s*\"(\w+)\"", f.read_text())}
    assert len(asked) > 10 and asked <= known


def test_nothing_is_reported_by_another_name() -> None:
    names = {kind: name for kind, name, _, _ in entries(protocol.REPORTS)}
    assert len(names) == len(set(names.values())) >= 18
    text = "".join(c.read_text() for c in SOURCES.rglob("*.c"))
    assert {kind for kind in names if f"REPORT_{kind}" not in text} == set()
    assert not re.search(r'"event", "\w', text)
