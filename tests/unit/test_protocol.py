"""fabricd's protocols stand once: its sources, docs/fabricd-protocol.md, the client and Python's callers agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hardware import protocol
from hardware import wire as tables
from hardware.build import SOURCES
from hardware.cc import CONTROLS, Control
from hardware.tables import entries
from testbed.faults import CATALOGUE
from testbed.faults.base import FrameFault
from workloads.verbs import wire

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_as_the_sources() -> None:
    page = protocol.DOCUMENT.read_text()
    assert protocol.written(page) == page, "python -m hardware.protocol writes it anew"
    assert page.count("written by python -m hardware.protocol") == len(protocol.TABLES)


def test_the_client_is_as_the_sources() -> None:
    client = tables.CLIENT.read_text()
    assert tables.written(client) == client, "python -m hardware.protocol writes it anew"
    commands = {name: (int(number), int(size)) for number, name, _, size, _, _ in entries(tables.COMMANDS)}
    assert {getattr(wire, name): (number, wire.BODY[number].size) for name, (number, _) in commands.items()} == {
        number: (number, size) for number, size in commands.values()
    }


def test_words_that_do_not_describe_a_body_are_no_layout() -> None:
    words = "u32 tag (u64 of old), u16 flags (1: last), u16 0, 2 x u64 arguments, then what else there is, u8 each"
    assert tables.layout(words, 24) == ("<IHH2Q", ["tag", "flags", "0", "arguments"])
    for size in (23, 26):
        with pytest.raises(ValueError, match=f"{size} bytes, of which the words describe 2[45]"):
            tables.layout(words, size)
    assert tables.choices("u8 kind, u8 order (0 up, 1 down)", "order") == {"up": 0, "down": 1}


def test_the_client_knows_the_records_and_what_stands_behind_them() -> None:
    known = entries(tables.RECORDS)
    assert {int(n) for n, *_ in known} == wire.RECORD_KINDS == set(range(1, len(known) + 1))
    for number, name, _, behind in known:
        assert getattr(wire, name) == int(number)
        body = wire.RECORD.pack(int(number), wire.RECORD.size + 8, 0, 0, 0, 0, 0, 3) + b"why" + bytes(5)
        if behind:
            assert [record.private for record in wire.records(memoryview(body), 0, 1)] == [b"why"]
        else:
            with pytest.raises(wire.Malformed):
                list(wire.records(memoryview(body), 0, 1))


def test_every_request_of_python_is_one() -> None:
    known = {op for op, *_ in entries(protocol.REQUESTS)}
    sources = [f for folder in ("testbed", "controllers", "hardware", "drills") for f in (ROOT / folder).rglob("*.py")]
    asked = {op for f in sources for op in re.findall(r"\.request\(\s*\"(\w+)\"", f.read_text())}
    assert len(asked) > 10 and asked <= known


def test_nothing_is_reported_by_another_name() -> None:
    names = {kind: name for kind, name, _, _ in entries(protocol.REPORTS)}
    assert len(names) == len(set(names.values())) >= 18
    text = "".join(c.read_text() for c in SOURCES.rglob("*.c"))
    assert {kind for kind in names if f"REPORT_{kind}" not in text} == set()
    assert not re.search(r'"event", "\w', text)


def named(files: str, table: str) -> set[str]:
    """The names of the entries of a table that fills itself (base/registry.h)."""
    texts = [c.read_text() for c in SOURCES.glob(files)]
    return {m[1] for text in texts for m in re.finditer(rf'struct {table} \w+ = {{\s*\.name = "(\w+)"', text)}


def test_what_python_asks_for_by_name_is_there() -> None:
    assert named("**/*.c", "cc_algorithm") == set(CONTROLS)
    effects = {name for name, _ in entries(protocol.EFFECTS, "EFFECT")}
    assert {fault.effect for fault in CATALOGUE.values() if issubclass(fault, FrameFault)} == effects
    asked = re.compile(r'(?:\.group\(|^    kind = )"(\w+)"', re.MULTILINE)
    kinds = {name for f in (ROOT / "workloads").rglob("*.py") for name in asked.findall(f.read_text())}
    assert named("offload/*/*.c", "offload_ops") == kinds


COMMON = {
    "window_bytes",
    "min_rate_bps",
    "hops",
    "initial_bytes",
    "grant_packets",
    "pull_share",
    "ask_again_ns",
    "overcommit",
}
"""Parameters that transport/ knows of every control."""


@pytest.mark.parametrize("control", [c for name, c in CONTROLS.items() if name != "none"], ids=lambda c: c.name)
def test_a_control_is_the_same_in_its_file_and_in_its_entry(control: Control) -> None:
    """Its parameters' keys, and what it hears."""
    text = (SOURCES / "cc" / f"{control.name}.c").read_text()
    (entry,) = re.findall(r"struct cc_algorithm .*?^};", text, re.M | re.S)
    entry += "".join((SOURCES / header).read_text() for header in re.findall(r'"(cc/[a-z]+\.h)"', text))
    assert ("credit" in control.hears) == (".arrived" in entry)
    assert set(re.findall(r'\] = "(\w+)"', entry)) == {p.key for p in control.parameters} - COMMON
    assert ("telemetry" in control.hears) == (".stamped" in entry) == ("hops" in control.by_name)
    assert ("losses" in control.hears) == (".lost" in entry)
    assert ".notified" not in entry or "marks" in control.hears
