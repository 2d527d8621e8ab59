"""Which tests a machine can take, how they draw at random and are spread over processes; and Ctrl-C.

A test is marked by its folder, unit, fabricd or live, and one that this machine cannot take is skipped and says what is
missing.

What hypothesis draws is the same in every run, so that the suite does not hang on luck, and little: a case that never
failed here will not tomorrow. Nor does it hang on numbers and words in our sources, which hypothesis would look for in
each process, for seconds. `./setup.sh explore` draws afresh, and on and on (RAILBED_EXPLORE=1); what it finds becomes
an @example of its test.

What collection makes stays to the end. The garbage collector is kept from looking through it again and again, which
would be a seventh of the unit tests' time.

Fabrics do not meet, so files of tests run beside each other (pytest -n 2: tests/parts/beside.py), each in one process
for the sake of the fabrics that its tests share. Files that look at the machine itself take turns. Unit tests share
nothing: they come last and one by one, so that all processes end together.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

gc.set_threshold(100_000)  # most of what is imported and collected stays

# of tests and hypothesis, as pytest rewrites them: else each process of each call would do so
sys.dont_write_bytecode = False

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from hypothesis.internal.conjecture import providers  # noqa: E402

from testbed.machine.bytecode import keep_compiled  # noqa: E402
from tests.parts import beside, forked  # noqa: E402

HERE = Path(__file__).parent
PACKAGES = (
    "topologies",
    "controllers",
    "workloads",
    "hardware",
    "results",
    "testbed",
    "drills",
    "railbed",
    "tests/parts",
)
MACHINE = {"test_doctor", "test_image", "test_lab", "test_net", "test_ownership"}
PROGRAMS = {  # in the order in which they run
    "live": ("ovs-vswitchd", "ovs-vsctl", "runc", "mnexec"),
    "fabricd": ("ovs-vswitchd", "ovs-vsctl"),
    "unit": (),
}

settings.register_profile("fixed", derandomize=True, database=None, deadline=None, print_blob=True, max_examples=40)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=200)
if os.environ.get("RAILBED_EXPLORE"):
    settings.load_profile("explore")
else:
    settings.load_profile("fixed")
    providers._get_local_constants = lambda: providers._local_constants  # none

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, which a child inherits; a handler it does not.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("general")
    group._addoption("-n", dest="beside", type=int, default=1, metavar="N", help="run tests in N processes")


def pytest_configure(config: pytest.Config) -> None:
    """Tests start hundreds of processes: none of them shall compile Python, also where it may not write bytecode."""
    for package in PACKAGES:
        keep_compiled(HERE.parent / package)


def missing(folder: str) -> list[str]:
    """What tests of this folder need and this machine has not."""
    if folder == "unit":
        return []
    found = [] if os.geteuid() == 0 else ["root"]
    found += [] if Path("/dev/net/tun").exists() else ["/dev/net/tun"]
    return found + [program for program in PROGRAMS[folder] if not shutil.which(program)]


@pytest.hookimpl(tryfirst=True)  # before -m looks for marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacks = {folder: missing(folder) for folder in PROGRAMS}
    by_folder: dict[str, list[pytest.Item]] = {folder: [] for folder in PROGRAMS}
    for item in items:
        folder = item.path.parent.name
        by_folder[folder].append(item)
        item.add_marker(folder)
        if lacks[folder]:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(lacks[folder])}"))
    items[:] = [item for its in by_folder.values() for item in its]


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.collectonly and any(item.path.parent.name == "live" for item in session.items):
        forked.serve()  # before any test, so that nothing of one is in it
    if option.beside < 2 or option.collectonly or session.testsfailed:
        return None
    scopes: dict[str, list[int]] = {"machine": []}  # which takes longest
    for place, item in enumerate(session.items):
        scopes.setdefault(_scope(item), []).append(place)
    beside.run(session, [scope for scope in scopes.values() if scope], option.beside)
    return True


def _scope(item: pytest.Item) -> str:
    if item.path.parent.name == "unit":
        return item.nodeid
    return "machine" if item.path.stem in MACHINE else str(item.path)


@pytest.fixture(scope="module", autouse=True)
def _takes_turns(request: pytest.FixtureRequest) -> Iterator[None]:
    """What looks at the machine itself meets nothing else that does."""
    if request.path.stem not in MACHINE:
        yield
        return
    with Path(tempfile.gettempdir(), "railbed-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
