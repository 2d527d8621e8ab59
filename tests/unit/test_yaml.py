"""YAML: the quick parser reads what the thorough one reads, and what is written is read back as it was."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base import yaml_core, yaml_reader
from testbed.base.yaml_writer import dump

READY = sorted((Path(__file__).parents[2] / "experiments").rglob("*.yaml"))
WORDS = [
    *("on", "yes", "true", "False", "null", "~", "0", "017", "0o17", "0x1F", "1_000", "1:30", "1e9", "1e-06", ".5"),
    *("-.inf", ".NaN", "2020-01-01", "<<", "=", "a: b", "- x", "? x", "# c", "x #c", "!t", "&a", "*a", "", " ", "é"),
    *("cable:h0-sw0", "line\nbreak\n", "it's", 'a "b"', "[x", "{", "a,b", "word " * 40),
]
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(WORDS)


def thorough(text: str, monkeypatch: pytest.MonkeyPatch) -> yaml_reader.Document:
    with monkeypatch.context() as patch:
        patch.setattr(yaml_core, "compose", lambda text: None)
        return yaml_reader.read(text)


@pytest.mark.parametrize(
    "text",
    [
        *(f"a: {word}\nb: [{word}, 1]\n" for word in WORDS if word.isascii() and word.isalnum()),
        "a:\nb: |\n  text\n   more\nc: >-\n  folded\n  text\n",
        "# a comment\n\n? key\n: 'it''s'\n'q': \"\\u00e9\"\nlist:\n- - 1\n  - {a: b, c: [d]}\n-\n  x: y # z\n",
        "{a: 1, on: cable:h0-sw0, b: {c: -.5, d: .inf}}",
        "x: 1_0\ny: 0b11\nz: 1e3\nw: 1:30\nv: 2020-01-01\nu: on\nt: +7\n",
    ],
)
def test_both_parsers_read_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert yaml_core.compose(text) is not None, "this text is for the quick one"
    document, other = yaml_reader.read(text), thorough(text, monkeypatch)
    assert repr(document.data) == repr(other.data)
    assert document.lines == other.lines


def test_ready_experiments_are_read_the_same_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    for file in READY[::6]:
        text = file.read_text()
        assert yaml_core.compose(text) is not None, file
        assert yaml_reader.read(text) == thorough(text, monkeypatch), file


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 50_000, "{a: " * 50_000, "? " * 50_000])
def test_what_is_nested_too_deeply_is_seen_at_once(text: str) -> None:
    with pytest.raises(yaml_core.TooDeep):
        yaml_core.compose(text)
    with pytest.raises(yaml_reader.YamlProblem, match="^nested too deeply$"):
        yaml_reader.read(text)


@pytest.mark.parametrize(
    "text", ["a: 1\n---\nb: 2\n", "a: &x 1\nb: *x\n", "a: !t 1\n", "%YAML 1.1\n---\na: on\n", "", "a\tb"]
)
def test_the_quick_one_leaves_alone_what_the_versions_of_yaml_differ_in(text: str) -> None:
    assert yaml_core.compose(text) is None


@given(
    st.dictionaries(st.sampled_from(WORDS), PLAIN | st.lists(PLAIN) | st.dictionaries(st.sampled_from(WORDS), PLAIN))
)
def test_what_is_written_is_read_back(data: dict[str, Any]) -> None:
    file = io.StringIO()
    dump(data, file)
    assert yaml_reader.read(file.getvalue()).data == data
