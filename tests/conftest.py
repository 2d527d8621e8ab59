"""How the suite draws at random and is spread over processes, and Ctrl-C for the programs that tests start.

What hypothesis draws is the same in every run, so that the suite does not hang on luck. `./setup.sh explore` draws
afresh (RAILBED_EXPLORE=1); what it finds becomes an @example of its test.

Fabrics do not meet, so files of tests run beside each other (pytest -n 2 --dist loadfile), each in one process for the
sake of the fabrics that its tests share. Files that look at the machine itself take turns.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

MACHINE = {"test_doctor", "test_image", "test_lab", "test_net", "test_ownership"}

settings.register_profile("fixed", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("RAILBED_EXPLORE") else "fixed")

# A shell starts background jobs with SIGINT ignored, which a child inherits; a handler of our own it does not.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _takes_turns(request: pytest.FixtureRequest) -> Iterator[None]:
    """What looks at the machine itself meets nothing else that does."""
    if request.path.stem not in MACHINE:
        yield
        return
    with Path(tempfile.gettempdir(), "railbed-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
