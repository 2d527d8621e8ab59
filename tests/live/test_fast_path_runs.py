"""The fast path changes no figure: of studies, and of faults in the forwarding, which are seen as without it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from testbed.experiment import load, loads
from testbed.experiment.overrides import override
from testbed.fabric.lab import Lab
from testbed.run.run import run
from testbed.run.sweep import points
from tests.parts.fabricd_fixture import wait_until
from tests.parts.fast_path_faults import NAMES, BothWays, hops, stale, two_fabrics
from tests.parts.fault_cases import CASES
from tests.parts.faulty_fabric import FaultyFabric
from tests.parts.machine import ROOT

STAR = """
name: hand
fabric: {topology: {star: {hosts: 2}}, nic: {timeout: 20us, retry: 0}}
control: {fast_path: WAY}
"""
STUDIES = ("control/weighted-ecmp", "offload/in-network", "offload/multicast")
"""Of each kind a quick one; `./setup.sh prove fastpath` takes all."""


@pytest.mark.parametrize("study", STUDIES)
def test_the_figures_of_a_study_are_the_same_without(study: str, tmp_path: Path) -> None:
    experiment = load(str(ROOT / "experiments" / f"{study}.yaml"))
    if experiment.sweep:
        experiment = next(iter(points(experiment))).experiment
    off, on = (
        run(override(experiment, [f"control.fast_path={value}"]), tmp_path / value) for value in ("off", "{sample: 64}")
    )
    assert on.fidelity.verdict == "exact"
    assert on.metrics_sha256 == off.metrics_sha256


@pytest.fixture(scope="module")
def fabrics() -> Iterator[Callable[[int], BothWays]]:
    """By their number of spines."""
    with ExitStack() as stack:
        yield cache(lambda spines: two_fabrics(stack, spines))


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_shows_as_without(name: str, fabrics: Callable[[int], BothWays]) -> None:
    both = fabrics(CASES[name].spines)
    carried = hops(both.with_it)
    measured = both.measure(name)
    for without, with_it in measured:
        assert with_it.figures() == without.figures()
    (untouched, _), (faulty, _), (healed, _) = measured
    assert CASES[name].symptom(untouched, faulty)
    assert None not in healed.times
    assert hops(both.with_it) > carried
    assert stale(both.with_it) == 0


def counted(f: FaultyFabric) -> dict[str, int]:
    return dict(f.fabricd.request("counters")["fidelity"])


@pytest.mark.parametrize("way", ["off", "{sample: 64}"])
def test_a_flow_deleted_by_hand_in_mid_run_is_seen(way: str) -> None:
    with Lab.up(loads(STAR.replace("WAY", way))) as lab:
        f = FaultyFabric(lab)
        f.fabricd.request("inject", fault="long", primitive="traffic", flows=[[1, 0, 2**31, 0]])
        wait_until(lambda: counted(f)["frame_hops"] > 3000, "the flow to be under way")
        command, env = lab.ovs_command(
            ["ovs-ofctl", "-OOpenFlow13", "del-flows", lab.names.bridge(lab.fabric.switches[0])]
        )
        subprocess.run([*command, f"ip,nw_dst={lab.fabric.nics[0].ip}"], env=env, check=True)
        f.rest()
        (flow,) = f.fabricd.request("traffic_results", fault="long")["flows"]
        assert flow[4] is None, "the flow came to its end"
        assert counted(f)["forwarding_drops"] > 0
        changed = counted(f).get("tables_changed", 0)
    assert (changed > 0) == (way != "off")  # without the fast path nobody listens
