"""How a worker's process begins and ends: quickly, since a fabric has many. To be imported first."""

from __future__ import annotations

import gc
import os
import sys

from workloads.base import later, numpy_core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

gc.set_threshold(100_000)  # what is imported stays: there is nothing to look for
later.put_off("ast", "inspect", "pickle")  # dataclasses and numpy import them, and ranks seldom need them
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts in half the time without a pool of threads
if sys.prefix == os.path.join(os.path.dirname(os.path.abspath(__file__)).removesuffix("/workloads/base"), ".venv"):
    numpy_core.import_core()  # an image has a numpy of its own, of whatever version


def leave(code: int) -> NoReturn:
    """Ends the process at once: to take its modules and its memory apart one by one would only take time."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
