"""Tests in several processes: nothing of what they say is lost, also of one that dies; Ctrl-C undoes what they made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.machine import ROOT, wait_until

CONFTEST = "from tests.conftest import pytest_addoption, pytest_runtestloop\n"
TESTS = """
import os, warnings
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield tmp_path_factory.mktemp("shared")
    (FOLDER / f"undone-{__name__}").touch()

def test_first(shared):
    warnings.warn("beware before one dies")
    (shared / "first").touch()

def test_says_why(shared):
    print("a word before")
    assert (shared / "first").exists() and "wanted" == "had"

def test_dies(shared):
    os.kill(os.getpid(), 9)

def test_goes_on_after_one_that_died(shared):
    warnings.warn("beware")

@pytest.mark.skip(reason="not today")
def test_skipped(): ...
"""
WAITS = """
import os, time
import pytest

@pytest.fixture(scope="session")
def made():
    (FOLDER / f"made-{os.getpid()}").touch()
    yield
    (FOLDER / f"made-{os.getpid()}").unlink()

@pytest.mark.parametrize("number", range(2))
def test_waits(made, number):
    (FOLDER / f"waits-{os.getpid()}").touch()
    time.sleep(600)
"""
FAILS = """
import time

def test_fails():
    while not list(FOLDER.glob("waits-*")):
        time.sleep(0.01)
    raise AssertionError
"""


def begin(folder: Path, files: dict[str, str], *more: str) -> subprocess.Popen[str]:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:xdist -p no:anyio -p no:cacheprovider\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / name).write_text(f"from pathlib import Path\nFOLDER = Path(__file__).parent\n{text}")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--basetemp", str(folder / "temp"), *more]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_what_happens_in_any_process_is_told(tmp_path: Path) -> None:
    with begin(tmp_path, {"test_one.py": TESTS, "test_two.py": TESTS}) as process:
        said = process.communicate()[0]
    assert process.returncode == 1
    assert "4 failed, 4 passed, 2 skipped, 4 warnings in " in said.splitlines()[-1], said
    for word in ("a word before", "wanted", "UserWarning: beware"):
        assert said.count(word) >= 2, said
    for file in ("test_one.py", "test_two.py"):
        assert f"FAILED {file}::test_dies - the process of this test was ended by SIGKILL" in said, said
    assert len(list(tmp_path.glob("undone-*"))) == 2, "who goes on has made it anew, and undone it"


def test_a_scope_runs_in_one_process_in_its_order(tmp_path: Path) -> None:
    """As seen from what each test wrote down; those of four scopes are in two processes."""
    noted = "import os\ndef test_{0}(): (FOLDER / 'order').open('a').write(f'{{os.getpid()}} {{__name__}} {0}\\n')\n"
    text = "".join(noted.format(letter) for letter in "abc")
    with begin(tmp_path, {f"test_{number}.py": text for number in range(4)}) as process:
        assert process.wait() == 0
    lines = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert len({pid for pid, _, _ in lines}) == 2
    for number in range(4):
        its = [(pid, letter) for pid, name, letter in lines if name == f"test_{number}"]
        assert [letter for _, letter in its] == ["a", "b", "c"] and len({pid for pid, _ in its}) == 1


@pytest.mark.parametrize("how", ["Ctrl-C", "a failure with -x"])
def test_what_ends_early_undoes_what_was_made(tmp_path: Path, how: str) -> None:
    files = {"test_a.py": WAITS, "test_b.py": WAITS if how == "Ctrl-C" else FAILS}
    with begin(tmp_path, files, "-x") as process:
        if how == "Ctrl-C":
            wait_until(lambda: len(list(tmp_path.glob("waits-*"))) == 2, "both processes at work")
            process.send_signal(signal.SIGINT)
        said = process.communicate()[0]
    assert process.returncode == (2 if how == "Ctrl-C" else 1), said
    assert not list(tmp_path.glob("made-*"))
