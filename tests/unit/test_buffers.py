"""What keeps Open vSwitch's buffers (hardware/buffers): blocks come back as they are, and programs live with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.build import BUFFERS_SOURCES, build

ASKED = """
import ctypes, threading
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
c.realloc.restype, c.realloc.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
def kept(nbytes, again):
    first = c.malloc(nbytes)
    held = c.malloc(nbytes)
    c.free(first)
    other = c.malloc(again)
    c.free(other), c.free(held)
    return first == other
print(kept(9100, 9090), kept(9100, 9200), kept(2000, 2000))
one = c.malloc(3000)
c.free(one)
here = []
def elsewhere(): here.append(c.malloc(3000))
thread = threading.Thread(target=elsewhere)
thread.start(), thread.join()
print(here[0] != one, c.malloc(3000) == one)
blocks = [c.malloc(16000) for _ in range(1000)]
[c.free(b) for b in blocks]
print(len({c.malloc(16000) for _ in range(1000)}))
grown = c.realloc(c.malloc(4000), 12000)
ctypes.memset(grown, 7, 12000)
c.free(grown), c.free(None)
print(ctypes.c_ubyte.from_address(c.malloc(11968) + 11967).value)
"""


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    library = build(tmp_path_factory.mktemp("buffers") / "buffers", sources=BUFFERS_SOURCES)
    return {**os.environ, "LD_PRELOAD": str(library)}


def test_a_block_comes_back_to_the_thread_that_gave_it(preloaded: dict[str, str]) -> None:
    said = subprocess.run(
        [sys.executable, "-S", "-c", ASKED], env=preloaded, capture_output=True, text=True, check=True
    )
    # a block of a size between two steps serves the smaller one; another thread gets another one; each is given once
    assert said.stdout.split() == ["True", "False", "True", "True", "True", "1000", "7"]
    assert said.stderr == ""


def test_a_stock_program_says_the_same_with_it(preloaded: dict[str, str], tmp_path: Path) -> None:
    """sort(1) takes and gives back memory of all sizes in several threads."""
    text = tmp_path / "lines"
    text.write_text("".join(f"{k * 7919 % 100003} {'x' * (k % 3000)}\n" for k in range(3000)))
    command = ["sort", "--parallel=4", "-S", "1M", "-T", str(tmp_path), str(text)]
    plain, with_it = (
        subprocess.run(command, env={**env, "LC_ALL": "C"}, capture_output=True, check=True)
        for env in (dict(os.environ), preloaded)
    )
    assert with_it.stdout == plain.stdout and with_it.stderr == b""
