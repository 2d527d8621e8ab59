"""How the suite draws at random and is spread over processes, and Ctrl-C for the programs that tests start.

What hypothesis draws is the same in every run, so that the suite does not hang on luck. `./setup.sh explore` draws
afresh (RAILBED_EXPLORE=1); what it finds becomes an @example of its test.

Fabrics do not meet, so files of tests run beside each other (pytest -n 2 --dist loadgroup), each in one process for the
sake of the fabrics that its tests share. Files that look at the machine itself take turns.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

MACHINE = {"test_doctor", "test_image", "test_lab", "test_net", "test_ownership"}

settings.register_profile("fixed", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("RAILBED_EXPLORE") else "fixed")

# A shell starts background jobs with SIGINT ignored, which a child inherits; a handler of our own it does not.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before the one that reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = "machine" if item.path.stem in MACHINE else item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))
