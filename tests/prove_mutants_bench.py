"""Where mutants are tried: a copy of the tree, in which each runs its tests in a process that is forked.

A process forked from one that has imported pytest and the big libraries, but nothing of ours, begins in a tenth of a
second. The tree of whoever works here is only read.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("pytest", "hypothesis", "pydantic", "numpy", "pandas", "networkx", "click", "yaml", "ruamel.yaml", "rich")
SURVIVED, NOTICED, ENDLESS = "survived", "noticed", "noticed (time up)"
MOST_BYTES = 16 << 30
"""Of memory: a mutant may ask for ever more."""
STILL = 10
"""Times the seconds of CPU that it may take, so long may it do nothing."""
_NO_TESTS, _STOP_S, _LOOK_S = 5, 10.0, 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_TEST, _PROOF = re.compile(r"tests/\w+/test_\w+\.py"), re.compile(r"tests/[^/]+_mutants")
_FIRST, _NOW = "first", "now"
"""Files with the test that noticed a mutant, and with the one that runs."""


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    was: str
    now: str
    code: str
    """The whole file."""

    @classmethod
    def between(cls, file: str, line: int, before: str, after: str) -> Mutant:
        """`was` and `now` are the lines that differ."""
        old, new = before.splitlines(), after.splitlines()
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
        behind = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
        behind = min(behind, len(old) - same - 1, len(new) - same - 1)
        was, now = (" ".join(t.strip() for t in text[same : len(text) - behind]) for text in (old, new))
        return cls(file, line, was, now, after)


class _First:
    """A plugin that keeps which test failed first, and which one runs."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.name = tree, ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        (self.tree / _NOW).write_text(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.name = self.name or (report.nodeid if report.failed else "")

    def keep(self) -> None:
        (self.tree / _FIRST).write_text(self.name)


class Bench:
    """`struck`: how many mutants a test has noticed; `digest`: of all but the files of tests, which have their own."""

    def __init__(self, tree: Path, digest: str = "", tests: Mapping[str, str] = MappingProxyType({})) -> None:
        self.tree, self.digest, self.tests = tree, digest, tests
        self.struck: Counter[str] = Counter()
        self.noticed_by = ""

    def run(
        self, tests: Sequence[str], limit_s: float, watch: Callable[[], Any] | None = None, each_s: float = inf
    ) -> int | None:
        """pytest's exit code, in a process of its own; None if it took too long. `watch` makes a plugin there.

        `limit_s` and `each_s`, the limit of a test, are of CPU, which is the same however busy the machine is. It may
        stand still STILL times as long.
        """
        (self.tree / _NOW).write_text("")
        child = os.fork()
        if not child:
            self._tests(tests, watch)
        still, look, test, before = _Still(child), 0.0, "", 0.0
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if (now := time.monotonic()) > look:
                look, used, runs = now + _LOOK_S, used_s(child), (self.tree / _NOW).read_text()
                if runs != test:
                    test, before, still.seconds = runs, used, 0
                still.look(now)
                if used > min(limit_s, before + each_s) or still.seconds > STILL * min(limit_s, each_s):
                    return _stopped(child)
            time.sleep(0.02)
        _group(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(done[1])

    def _tests(self, tests: Sequence[str], watch: Callable[[], Any] | None) -> None:
        code = 70
        try:
            os.setsid()
            gc.freeze()  # else it would look through all of our memory, and so copy it
            if os.environ.get("RAILBED_FABRICD") != "sanitized":  # whose shadow is as large as all memory
                resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            os.chdir(self.tree)
            sys.path[:] = [str(self.tree), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]
            others = [name for name in sys.modules if name.partition(".")[0] == "tests"]
            _ours = [sys.modules.pop(name) for name in others]  # kept: to free them takes long in a copy of a process
            with open(self.tree / "said", "wb") as said, open(os.devnull, "rb") as nothing:
                for number, file in enumerate((nothing, said, said)):
                    os.dup2(file.fileno(), number)
            import pytest

            plugin = watch() if watch else _First(self.tree)
            options = ["--continue-on-collection-errors"] if watch else ["-x"]
            code = int(pytest.main([*options, "-q", "-p", "no:cacheprovider", *tests], [plugin]))
            plugin.keep()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
            os._exit(code)

    @property
    def said(self) -> str:
        return (self.tree / "said").read_text()[-2000:]

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """The mutant stands in the copy."""
        path = self.tree / mutant.file
        before = path.read_text()
        try:
            self._write(path, mutant.code)
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, code: str) -> None:
        path.write_text(code)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):  # a time of whole seconds would not tell
            compiled.unlink()

    def builds(self) -> bool:
        """Whether the compiler takes what stands there."""
        command = [sys.executable, "-m", "hardware.build"]
        return not subprocess.run(command, cwd=self.tree, capture_output=True).returncode

    def verdict(self, tests: Sequence[str], limit_s: float, each_s: float = inf) -> str:
        first = self.tree / _FIRST
        first.unlink(missing_ok=True)
        code = self.run(tests, limit_s, each_s=each_s) if tests else 0
        self.noticed_by = first.read_text() if code and first.exists() else ""
        self.struck[self.noticed_by] += 1
        return ENDLESS if code is None else SURVIVED if code in (0, _NO_TESTS) else NOTICED

    def watched(self, tests: Sequence[str], watch: Callable[[Path], Any]) -> dict[str, Any]:
        """What a plugin kept of a run without a mutant: it writes JSON to the path that it is given."""
        kept = self.tree / "kept.json"
        self.run(tests, 3600, lambda: watch(kept))
        if not kept.exists():
            raise SystemExit(self.said)
        found: dict[str, Any] = json.loads(kept.read_text())
        if not found["seconds"]:
            raise SystemExit(f"prove mutants: no test ran:\n{self.said}")
        return found


def used_s(process: int) -> float:
    """Of CPU, with all that it began."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(used_s, _began(process)))


def _began(process: int) -> list[int]:
    with suppress(OSError):
        return [int(n) for path in Path(f"/proc/{process}/task").glob("*/children") for n in path.read_text().split()]
    return []


def _awake_s(process: int) -> float:
    """What it and all that it began have run, or have waited for a CPU, of those that are there."""
    seconds = 0.0
    with suppress(OSError):  # it ends
        for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
            seconds += sum(map(int, path.read_text().split()[:2])) / 1e9
    return seconds + sum(map(_awake_s, _began(process)))


class _Still:
    """How long a process and all that it began have done nothing: who waits for a CPU of a busy machine does not."""

    def __init__(self, process: int) -> None:
        self.process, self.at, self.awake, self.seconds = process, time.monotonic(), 0.0, 0.0

    def look(self, now: float) -> None:
        awake = _awake_s(self.process)
        if awake >= self.awake:  # else one has ended
            self.seconds += max(now - self.at - (awake - self.awake), 0)
        self.at, self.awake = now, awake


def _group(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child, number)


def _stopped(child: int) -> None:
    """As by Ctrl-C, so that fixtures end what they began; else killed."""
    _group(child, signal.SIGINT)
    end = time.monotonic() + _STOP_S
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            _group(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.05)
    _group(child, signal.SIGKILL)


@contextmanager
def bench() -> Iterator[Bench]:
    """A copy of what git knows and what is new, with built fabricd; removed afterwards."""
    for library in LIBRARIES:
        importlib.import_module(library)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tempfile.TemporaryDirectory(prefix="rbmutants-") as folder:
        os.chmod(folder, 0o755)  # fabricd runs as a user of its own
        tree = Path(folder, "tree")
        digest, tests = hashlib.sha256(), {}
        for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
                said = f"{name}\0".encode() + (tree / name).read_bytes()
                if _TEST.fullmatch(name):
                    tests[name] = hashlib.sha256(said).hexdigest()
                elif not _PROOF.match(name):
                    digest.update(said)
        shutil.copytree(ROOT / "hardware" / "bin", tree / "hardware" / "bin", dirs_exist_ok=True)
        yield Bench(tree, digest.hexdigest(), tests)
