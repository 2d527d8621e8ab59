"""fabricd's protocols stand once: its sources, docs/fabricd-protocol.md, the client and Python's callers agree."""

from __future__ import annotations

import re
from pathlib import Path

from hardware import protocol
from hardware.build import SOURCES
from workloads.verbs import wire

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_as_the_sources() -> None:
    page = protocol.DOCUMENT.read_text()
    assert protocol.written(page) == page, "python -m hardware.protocol writes it anew"
    assert page.count("written by python -m hardware.protocol") == 3


def test_the_client_speaks_the_commands() -> None:
    commands = {name: (int(n), int(size), more) for n, name, _, size, more, _ in protocol.entries(protocol.COMMANDS)}
    assert [number for number, _, _ in commands.values()] == list(range(1, 15))
    for name, (number, size, more) in commands.items():
        assert getattr(wire, name) == number
        if more == "false" and number in wire.BODY:
            assert wire.BODY[number].size == size, name


def test_every_request_of_python_is_one() -> None:
    known = {op for op, *_ in protocol.entries(protocol.REQUESTS)}
    sources = [f for folder in ("testbed", "controllers", "hardware") for f in (ROOT / folder).rglob("*.py")]
    asked = {op for f in sources for op in re.findall(r"\.request\(\s*\"(\w+)\"", f.read_text())}
    assert len(asked) > 10 and asked <= known


def test_nothing_is_reported_by_another_name() -> None:
    names = {kind: name for kind, name, _, _ in protocol.entries(protocol.REPORTS)}
    assert len(names) == len(set(names.values())) >= 18
    text = "".join(c.read_text() for c in SOURCES.rglob("*.c"))
    assert {kind for kind in names if f"REPORT_{kind}" not in text} == set()
    assert not re.search(r'"event", "\w', text)
