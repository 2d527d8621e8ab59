"""Which test comes to which line: of Python as coverage.py sees it, of fabricd as its basic blocks say themselves."""

from __future__ import annotations

import ast
import collections
import functools
import gc
import itertools
import json
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.prove_mutants_bench import ROOT, Bench, Mutant, used_s
from tests.prove_mutants_kept import Kept, file_of

_AT_IMPORT = ""
START_S = 0.1
"""What a test takes beside its own time."""
_MAP_BYTES = 1 << 24

_COVER_C = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

extern char __executable_start;
static char *seen;

__attribute__((constructor)) static void opened(void) /* before fabricd gives up its rights */
{
	int fd = open(MAP, O_RDWR);

	if (fd >= 0)
		seen = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
}

void __sanitizer_cov_trace_pc(void)
{
	if (seen && seen != MAP_FAILED)
		seen[(char *)__builtin_return_address(0) - &__executable_start] = 1;
}
"""
_BUILD_C = """
import sys, hardware.build as b
b.CFLAGS = [*(f for f in b.CFLAGS if f != "-O2"), "-O0", "-fsanitize-coverage=trace-pc"]
b.LIBRARIES = [sys.argv[1] + "/cover.o", *b.LIBRARIES]
b.build(b.FABRICD, objects=b.HERE / "bin" / ".cover.o")
"""


@dataclass
class Cover:
    """`lines`: of each file the tests that come to a line, as numbers of `tests`."""

    lines: dict[str, dict[int, set[int]]]
    tests: list[str]
    seconds: list[float]
    failed: list[str]
    is_c: bool
    tree: Path

    @property
    def about(self) -> str:
        left = f", {len(self.failed)} fail without a mutant" if self.failed else ""
        return f"{len(self.tests)} tests come there{left}"

    def of(
        self,
        mutant: Mutant,
        limit_s: float,
        struck: Mapping[str, int] = MappingProxyType({}),
        first: Collection[str] = (),
    ) -> list[str]:
        """The tests that come to its line, not more than take so many seconds in all.

        Of what runs at import, `first`; then those that have noticed most mutants for their time, then the quickest of
        each file, then the second of each: those of one file resemble each other.
        """
        known = self.lines.get(mutant.file, {})
        here = self._blocks(known, mutant.line) if self.is_c else self._statement(known, mutant)
        chosen, left = [], limit_s
        numbers = dict.fromkeys(itertools.chain.from_iterable(self._in_turn(tests) for tests in here))
        at_import = len(here) > 1

        def early(number: int) -> tuple[bool, float]:
            test = self.tests[number]
            return not (at_import and test in first), -struck.get(test, 0) / (self.seconds[number] + START_S)

        for number in sorted(numbers, key=early):
            if self.seconds[number] <= left and self.tests[number] not in self.failed:
                left -= self.seconds[number]
                chosen.append(self.tests[number])
        return chosen

    def quickest(self) -> str:
        """Of those that come anywhere."""
        numbers = {n for lines in self.lines.values() for tests in lines.values() for n in tests if n >= 0}
        return min((self.seconds[n], self.tests[n]) for n in numbers if self.tests[n] not in self.failed)[1]

    def slowest(self, tests: Sequence[str]) -> float:
        """Seconds."""
        known = dict(zip(self.tests, self.seconds, strict=True))
        return max((known[test] for test in tests), default=0.0)

    def _in_turn(self, tests: set[int]) -> list[int]:
        quickest = sorted(tests, key=lambda n: self.seconds[n])
        of_file = collections.defaultdict[str, Iterator[int]](itertools.count)
        turn = {number: next(of_file[file_of(self.tests[number])]) for number in quickest}
        return sorted(quickest, key=turn.__getitem__)

    def _blocks(self, known: dict[int, set[int]], line: int) -> list[set[int]]:
        """A block's line is that of its first statement: behind a condition of several parts, that of the condition.

        So the block that seems to be the line's, then the one of the three before it that most tests come to.
        """
        before = [known[n] for n in sorted(known) if n <= line][-3:]
        return [before[-1], max(before, key=len)] if before else []

    def _statement(self, known: dict[int, set[int]], mutant: Mutant) -> list[set[int]]:
        """Of a statement that runs where its file is imported, all tests: first those that come to the file."""
        first, last = statement(self.tree / mutant.file, mutant.line)
        here = [known[n] for n in range(first, last + 1) if n in known]
        tests = set().union(*here) - {-1}
        return [tests] if tests or not here else [set().union(*known.values()) - {-1}, {*range(len(self.tests))}]


@functools.cache
def _statements(file: Path) -> list[tuple[int, int]]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            found.append(
                (node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno)
            )
    return found


def statement(file: Path, line: int) -> tuple[int, int]:
    """First and last line of the statement there, of a compound one of its head."""
    around = [one for one in _statements(file) if one[0] <= line <= one[1]]
    return min(around, key=lambda one: one[1] - one[0], default=(line, line))


class _Watch:
    """A plugin that says what tests take of CPU, and keeps what `lines` says of some files in the end."""

    def __init__(self, kept: Path, files: Sequence[str]) -> None:
        self.kept, self.files = kept, files
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.used = used_s(os.getpid())

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        used = used_s(os.getpid())
        self.seconds[nodeid], self.used = max(used - self.used, 0), used

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def keep(self) -> None:
        self.kept.write_text(json.dumps({"lines": self.lines(), "seconds": self.seconds, "failed": self.failed}))

    def lines(self) -> dict[str, dict[int, list[str]]]:
        raise NotImplementedError


class WatchPython(_Watch):
    """Results that functions keep (`functools.cache`) are forgotten before each test: it has to come there itself."""

    def __init__(self, kept: Path, files: Sequence[str]) -> None:
        import coverage

        super().__init__(kept, files)
        self.cover = coverage.Coverage(
            data_file=None, include=[f"{os.getcwd()}/{file}" for file in files], config_file=False
        )
        self.cover.start()
        self.modules = 0
        self.caches: list[functools._lru_cache_wrapper[Any]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if len(sys.modules) != self.modules:
            self.modules = len(sys.modules)
            self.caches = [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]
        for cache in self.caches:
            cache.cache_clear()
        self.cover.switch_context(item.nodeid)
        result = yield
        self.cover.switch_context(_AT_IMPORT)
        return result

    def lines(self) -> dict[str, dict[int, list[str]]]:
        self.cover.stop()
        data = self.cover.get_data()
        here = os.getcwd()
        return {os.path.relpath(file, here): data.contexts_by_lineno(file) for file in data.measured_files()}


class WatchC(_Watch):
    """Reads after each test the map in which blocks leave a byte."""

    def __init__(self, kept: Path, files: Sequence[str]) -> None:
        super().__init__(kept, files)
        self.blocks = _blocks(kept.parent)
        self.map = mmap.mmap(os.open(kept.with_name("cover.map"), os.O_RDWR), _MAP_BYTES)
        self.found: dict[str, dict[int, list[str]]] = {}
        for file, line in self.blocks.values():
            self.found.setdefault(file, {}).setdefault(line, [])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        for address, (file, line) in self.blocks.items():
            if self.map[address]:
                self.map[address] = 0
                self.found[file][line].append(item.nodeid)
        return result

    def lines(self) -> dict[str, dict[int, list[str]]]:
        return {file: found for file, found in self.found.items() if file in self.files}


def _blocks(tree: Path) -> dict[int, tuple[str, int]]:
    """File and line of each block, by the address that its mark comes from."""
    binary = str(tree / "hardware" / "bin" / "fabricd")
    said = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", binary], check=True, capture_output=True, text=True
    ).stdout
    found = [int(a, 16) for a in re.findall(r"call .*<__sanitizer_cov_trace_pc>\n\s+([0-9a-f]+):", said)]
    asked = "".join(f"{address - 1:x}\n" for address in found)
    lines = subprocess.run(["addr2line", "-e", binary], input=asked, check=True, capture_output=True, text=True).stdout
    blocks = {}
    for address, place in zip(found, lines.splitlines(), strict=True):
        file, _, line = place.partition(" ")[0].rpartition(":")
        if line.isdecimal() and file.startswith(str(tree)):
            blocks[address] = (os.path.relpath(file, tree), int(line))
    return blocks


def _cover(at: Bench, kept: dict[str, Any], is_c: bool) -> Cover:
    tests = list(kept["seconds"])
    numbers = {test: i for i, test in enumerate(tests)} | {_AT_IMPORT: -1}
    lines = {
        file: {int(line): {numbers[name] for name in names} for line, names in found.items()}
        for file, found in kept["lines"].items()
    }
    return Cover(lines, tests, list(kept["seconds"].values()), kept["failed"], is_c, at.tree)


def importers(package: str) -> list[str]:
    """Unit tests that import the package, or a helper of tests/parts that does."""
    imports = re.compile(rf"^\s*(?:from|import) {re.escape(package)}\b", re.M)
    top, _, last = package.rpartition(".")
    named = re.compile(rf"^\s*from {re.escape(top)} import (?:.*\b)?{last}\b", re.M) if top else imports
    text = {path: path.read_text() for path in sorted((ROOT / "tests").glob("*/*.py"))}
    does = {path for path, code in text.items() if imports.search(code) or named.search(code)}
    helpers = [path.stem for path in does if path.parent.name == "parts"]
    of_helpers = re.compile(rf"^\s*from tests\.parts\.(?:{'|'.join(helpers) or '-'}) import", re.M)
    units = [path for path in text if path.parent.name == "unit" and path.name.startswith("test_")]
    return [str(path.relative_to(ROOT)) for path in units if path in does or of_helpers.search(text[path])]


def cover_python(at: Bench, kept: Kept, package: str, tests: Sequence[str], files: Sequence[str]) -> Cover:
    """`tests`: of tests/unit, beside those that import the package. `files`: of all rooms."""
    chosen = sorted({*importers(package), *_named("unit", tests)})
    watch = partial(at.watched, watch=partial(WatchPython, files=files))
    return _cover(at, kept.watched("python", chosen, watch), False)


def _named(folder: str, tests: Sequence[str]) -> set[str]:
    """The files of these patterns, which are without `test_`."""
    return {str(p.relative_to(ROOT)) for t in tests for p in (ROOT / "tests" / folder).glob(f"test_{t}.py")}


def cover_c(at: Bench, kept: Kept, package: str, tests: Sequence[str], files: Sequence[str]) -> Cover:
    """`tests`: of tests/fabricd."""
    os.environ["RAILBED_FABRICD"] = "plain"
    at.builds()  # else the first test would, over what is built here
    chosen = sorted(_named("fabricd", tests))
    return _cover(at, kept.watched("c", chosen, partial(_watched_c, at, files)), True)


def _watched_c(at: Bench, files: Sequence[str], chosen: Sequence[str]) -> dict[str, Any]:
    """Builds fabricd with marks, then without."""
    cover, tree = at.tree / "cover.c", at.tree
    cover.write_text(_COVER_C)
    (tree / "cover.map").write_bytes(b"")
    os.truncate(tree / "cover.map", _MAP_BYTES)
    defined = [f'-DMAP="{tree}/cover.map"', f"-DBYTES={_MAP_BYTES}"]
    subprocess.run(["cc", "-O2", "-c", *defined, "-o", str(tree / "cover.o"), str(cover)], check=True)
    subprocess.run([sys.executable, "-c", _BUILD_C, str(tree)], cwd=tree, check=True)
    try:
        return at.watched(chosen, partial(WatchC, files=files))
    finally:
        (tree / "hardware" / "bin" / "fabricd").unlink()
        at.builds()
