"""The drill that pages show is what comes out: each line typed at its prompt, at the time that stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from drills.play import client
from drills.session import clock
from drills.sheet import file
from tests.parts.doc_examples import PAGES, Block, as_expected, blocks

_PROMPT = re.compile(r"drill (\S+)> (.+)")
DRILL, SEED = "lost/dirty-optics", "7Q4"
_STARTED = f"testbed drill start {DRILL} --seed {SEED}"


def shown(page: Path) -> list[Block]:
    """Blocks with a prompt, below one that starts this drill with its seed (a world without one is drawn)."""
    found, started = [], False
    for block in blocks(page):
        if "testbed drill start" in block.text:
            started = _STARTED in block.text
        elif started and any(map(_PROMPT.fullmatch, block.lines)):
            found.append(block)
    return found


def parts(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """What is typed, with its prompt, and what comes out; first what a drill begins with."""
    typed, answer = "", list[str]()
    for line in lines:
        if _PROMPT.fullmatch(line):
            yield typed, answer
            typed, answer = line, []
        else:
            answer.append(line)
    yield typed, answer


SHOWN = {page: found for page in PAGES if (found := shown(page))}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The longest of them, typed in: what came out by what was typed."""
    longest = max((block.lines for found in SHOWN.values() for block in found), key=len)
    out = tmp_path_factory.mktemp("drill") / "log"
    session = client.start(file.load(DRILL), SEED, healthy=None, out=str(out))
    said = {"": session.ticket()["shown"].splitlines()}
    try:
        for typed, _ in list(parts(longest))[1:]:
            match = _PROMPT.fullmatch(typed)
            assert match
            at = clock(session.state()["time_ns"])
            said[f"drill {at}> {match[2]}"] = session.command(match[2]).text.splitlines()
    finally:
        session.close()
    return said


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_the_drill_of_a_page_goes_as_it_says(page: Path, played: dict[str, list[str]]) -> None:
    for block in SHOWN[page]:
        for typed, answer in parts(block.lines):
            assert typed in played, f"{block.place}: {typed!r} was not typed then, but {list(played)}"
            missing = as_expected(answer, played[typed])
            assert not missing, f"{block.place}: {typed}: not there: {missing}\n" + "\n".join(played[typed])


def test_there_are_such_pages() -> None:
    assert {page.name for page in SHOWN} == {"README.md", "drills.md"}
