"""Ranks of a run share a process: to start one takes longer than most of these runs, and their figures are the same.

Commands that run in processes of their own go by the product's rule, as do the files that are about processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.plan import together

ABOUT_PROCESSES = {
    "test_container",
    "test_inject_runs",
    "test_profile",
    "test_run_hardware",
    "test_run_live",
    "test_world",
}


@pytest.fixture(scope="module", autouse=True)
def _ranks_share_a_process(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.path.stem not in ABOUT_PROCESSES:
            patch.setattr(together, "ALONE", 1)
            patch.setattr(together, "_most_processes", lambda: 1)
        yield
