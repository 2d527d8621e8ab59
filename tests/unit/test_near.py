"""What near.h asks for ahead is asked for: a compiler may leave out what has no visible effect."""

from __future__ import annotations

import platform
import re
import subprocess

import pytest

from hardware.build import FABRICD

# Far fewer than there are: the copies that are looked at ahead (engine/ahead.h) have 2 of their own
LEAST = 12


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the instructions of x86")
def test_the_event_loop_asks_for_what_is_next() -> None:
    loop = FABRICD.parent / f".{FABRICD.name}.o" / "loop.o"
    code = subprocess.run(["objdump", "-d", loop], check=True, capture_output=True, text=True).stdout
    assert len(re.findall(r"\tprefetch", code)) >= LEAST
