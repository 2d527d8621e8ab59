"""Bytecode of ranks' code: made when a source is new or has changed, and Python takes it."""

import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine.bytecode import keep_compiled


def compiled(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def test_python_takes_the_bytecode_and_not_the_source(tmp_path: Path) -> None:
    source = tmp_path / "room" / "said.py"
    source.parent.mkdir()
    source.write_text("print('compiled')\n")
    keep_compiled(tmp_path)
    about = source.stat()
    source.write_text("print('a source')\n")  # as long, and as old
    os.utime(source, ns=(about.st_atime_ns, about.st_mtime_ns))
    said = subprocess.run([sys.executable, "-c", "import said"], cwd=source.parent, capture_output=True, text=True)
    assert said.stdout == "compiled\n"


def test_only_what_has_changed_is_compiled_again(tmp_path: Path) -> None:
    sources = [tmp_path / name for name in ("one.py", "two.py")]
    for source in sources:
        source.write_text("a = 1\n")
    keep_compiled(tmp_path)
    before = [compiled(source).stat().st_mtime_ns for source in sources]
    sources[1].write_text("a = 12\n")
    keep_compiled(tmp_path)
    after = [compiled(source).stat().st_mtime_ns for source in sources]
    assert after[0] == before[0]
    assert after[1] > before[1]


def test_code_that_is_wrong_or_cannot_be_compiled_is_left_to_the_worker(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("def\n")
    (tmp_path / "right.py").write_text("a = 1\n")
    (tmp_path / "__pycache__").write_text("no folder")
    keep_compiled(tmp_path)
    (tmp_path / "__pycache__").unlink()
    keep_compiled(tmp_path)
    assert compiled(tmp_path / "right.py").exists()
    assert not compiled(tmp_path / "wrong.py").exists()


def test_whatever_a_packager_sets_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SOURCE_DATE_EPOCH Python compiles by the source's hash, if nobody says otherwise."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    source = tmp_path / "one.py"
    source.write_text("a = 1\n")
    keep_compiled(tmp_path)
    monkeypatch.setattr(py_compile, "compile", lambda *_, **__: pytest.fail("compiled again"))
    keep_compiled(tmp_path)


def test_a_source_that_goes_meanwhile_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gone.py", "there.py"):
        (tmp_path / name).write_text("a = 1\n")
    is_file = Path.is_file

    def goes(path: Path) -> bool:
        found = is_file(path)
        if path.name == "gone.py":
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", goes)
    keep_compiled(tmp_path)
    assert compiled(tmp_path / "there.py").exists()
