"""Ranks of a run share a process: to start one takes longer than most of these runs, and their figures are the same.

Likewise controllers are forked from a process that has imported what they need, as those of a sweep are.

Commands that run in processes of their own go by the product's rule, as do the files that are about processes.

Tests of forwarding run twice, of several cases the first: as the product has it, and with every frame through Open
vSwitch. That figures do not hang on it is the matter of test_fast_path_runs and of `prove fastpath`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from testbed.fabric import bringup, lab
from testbed.fabric.controller import FORKED_LIBRARY
from testbed.fabric.fork_server import ControllerServer
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


ABOUT_CONTROLLERS = {
    "test_container_ends",
    "test_controller_apps",
    "test_fork_server",
    "test_inject_controller",
    "test_lab",
    "test_ownership",
    "test_parts",
    "test_parts_die",
    "test_unsettled_controller",
}


@pytest.fixture(scope="session")
def controllers() -> Iterator[ControllerServer]:
    """Begins with the first seat that is asked for."""
    with ControllerServer() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def _controllers_are_forked(request: pytest.FixtureRequest, controllers: ControllerServer) -> Iterator[None]:
    """Those of fabrics that end with this process."""
    with ExitStack() as seats, pytest.MonkeyPatch.context() as patch:

        def begun(*args: Any) -> bringup.Bringup:
            work = bringup.Bringup(*args)
            if work.seat is None and not work.persistent:
                work.seat = seats.enter_context(closing(controllers.seat(FORKED_LIBRARY)))
            return work

        if request.path.stem not in ABOUT_PROCESSES | ABOUT_CONTROLLERS:
            patch.setattr(lab, "Bringup", begun)
        yield


ABOUT_FORWARDING = {
    "test_controller_apps": {
        "test_weights_move_the_load_and_ryu_gives_the_same_figures",
        "test_a_drained_spine_carries_nothing_more_and_what_is_on_its_way_arrives",
        "test_plain_openflow_beside_the_controllers_is_in_before_the_first_frame",
    },
    "test_dateline_runs": {
        "test_a_deadlock_ends_the_run_and_names_its_ports",
        "test_the_dateline_or_a_watchdog_keeps_it_going",
        "test_the_fault_ends_in_a_deadlock",
    },
    "test_in_network": {"test_trees_of_every_topology", "test_loss_duplicates_and_disorder_change_no_sum"},
    "test_multicast": {
        "test_every_topology_and_sub_groups",
        "test_loss_duplicates_and_disorder_on_every_cable",
        "test_without_its_group_table_the_ring_does_it",
    },
}
"""Each of these tests makes its fabric by itself. (In tests/fabricd most tests have no fast path: SAMPLE.)"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.name in ABOUT_FORWARDING.get(metafunc.definition.path.stem, ()):
        metafunc.fixturenames.append("forwarding")
        metafunc.parametrize("forwarding", ["fast_path", "fast_path_off"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    done: set[tuple[Path, str]] = set()
    items[:] = [item for item in items if not _done_already(item, done)]


def _done_already(item: pytest.Item, done: set[tuple[Path, str]]) -> bool:
    """Whether another case of the test goes through Open vSwitch frame by frame."""
    if not isinstance(item, pytest.Function) or "fast_path_off" not in item.name:
        return False
    test = item.path, item.originalname
    return test in done or bool(done.add(test))


@pytest.fixture
def forwarding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fabrics of this process: which way their frames go."""
    if request.param == "fast_path_off":
        config = bringup.fabricd_config

        def without(*args: Any, **keys: Any) -> dict[str, Any]:
            return config(*args, **{**keys, "fast_path": None})

        monkeypatch.setattr(bringup, "fabricd_config", without)
