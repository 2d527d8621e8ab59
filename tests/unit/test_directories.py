"""Folders that lie apart on the disk: as lsattr has it, and without a word where a file system has no such flag."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.machine.directories import lay_apart


def lie_apart(folder: Path | str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lay_apart(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.skipif(not shutil.which("lsattr"), reason="needs lsattr, of e2fsprogs")
def test_what_is_made_in_a_folder_of_ext4_lies_apart(tmp_path: Path) -> None:
    def said(*command: str) -> str:
        return subprocess.run([*command, tmp_path], capture_output=True, text=True).stdout

    lie_apart(tmp_path)
    flags = said("lsattr", "-d").partition(" ")[0]
    assert "T" in flags or not said("stat", "-f", "-c", "%T").startswith("ext")
    lie_apart(tmp_path)
    assert said("lsattr", "-d").partition(" ")[0] == flags


def test_a_file_system_without_that_is_none_the_worse() -> None:
    lie_apart("/proc")
