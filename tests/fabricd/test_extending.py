"""docs/extending.md: its examples, put into a copy of the sources, work, and touch as many files as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hardware.build import build_all
from tests.parts.doc_examples import ROOT, Block, blocks, prose

PAGE = ROOT / "docs" / "extending.md"
SOURCES = ("topologies", "controllers", "workloads", "hardware", "testbed", "results", "drills", "tests")
FILE = re.compile(r"`([\w./]+)`:$")
COUNT = re.compile(r"\| .*\(#([\w-]+)\).*? \| (\d+) \|")


@dataclass
class Part:
    """A block of the page, and the file that it belongs to."""

    path: str
    block: Block

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    def apply(self, root: Path) -> None:
        file = root / self.path
        if self.block.language != "diff":
            assert not file.exists(), f"{self.block.place}: {self.path} is there already"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.block.text)
            return
        text = file.read_text()
        for hunk in self.block.text.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            before, after = ("".join(x[1:] for x in lines if x[0] != sign) for sign in "+-")
            assert text.count(before) == 1, f"{self.block.place}: not once in {self.path}:\n{before}"
            text = text.replace(before, after)
        file.write_text(text)


def read() -> dict[str, list[Part]]:
    """The parts of each example, by its heading."""
    said, found, heading = dict(prose(PAGE)), {}, ""
    at = {block.line: block for block in blocks(PAGE)}
    for number in sorted({*said, *at}):
        if number in at:
            if match := FILE.search(said[number - 1]):
                found.setdefault(heading, []).append(Part(match[1], at[number]))
        elif said[number].startswith("## "):
            heading = said[number][3:]
    return found


EXAMPLES = read()


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What pytest says of the examples' tests, in a copy of the sources with all examples in it."""
    build_all()  # of which all is taken over that the examples do not change
    root = tmp_path_factory.mktemp("extended")
    leave = shutil.ignore_patterns("__pycache__", "runs", "bench", "*-sanitized*", "*fuzz*")
    for name in SOURCES:
        shutil.copytree(ROOT / name, root / name, ignore=leave if name in ("hardware", "results") else None)
    shutil.copy2(ROOT / "pyproject.toml", root)
    for includes in (root / "hardware" / "bin").rglob("*.d"):  # they say where it was built
        times = includes.stat()
        includes.write_text(includes.read_text().replace(str(ROOT), str(root)))
        os.utime(includes, ns=(times.st_atime_ns, times.st_mtime_ns))
    for parts in EXAMPLES.values():
        for part in parts:
            part.apply(root)
    quick = root / "cc"  # what the examples change need not be fast
    quick.write_text('#!/bin/sh\nexec cc "$@" -O0 -g0\n')
    quick.chmod(0o755)
    built = in_copy(root, "-m", "hardware.build", CC=str(quick))
    assert built.returncode == 0, built.stderr
    tests = [part.path for parts in EXAMPLES.values() for part in parts if part.is_test]
    yield in_copy(root, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *tests).stdout
    shutil.rmtree(root)


def in_copy(root: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(root), "RAILBED_FABRICD": "plain", **more}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("heading", EXAMPLES)
def test_an_example_of_the_page_works(heading: str, said: str) -> None:
    tests = [part.path for part in EXAMPLES[heading] if part.is_test]
    assert tests, f"{heading}: an example brings its test"
    assert all(f"PASSED {path}::" in said for path in tests), said


def test_the_table_counts_the_files_of_the_examples() -> None:
    counted = {
        m[1]: int(m[2]) for _, line in prose(PAGE) if (m := re.match(r"\| .*\(#([\w-]+)\).*? \| (\d+) \|", line))
    }
    files = {name: {p.path for p in parts if not p.is_test} for name, parts in EXAMPLES.items()}
    assert counted == {name.lower().replace(" ", "-"): len(paths) for name, paths in files.items()}
