"""Which points of a sweep have the same fabric."""

from __future__ import annotations

import pytest

from testbed.experiment import loads
from testbed.live.standing import made_of, shares
from testbed.run.sweep import points

STAR = """
name: star
fabric: {topology: {star: {hosts: 4}}}
workload: [{collective: all_reduce, algorithm: ring, sizes: [64KiB]}]
"""
LOSS = "inject: [{fault: loss, on: 'cable:h0-sw0', rate: 0.001}]\n"


@pytest.mark.parametrize(
    ("swept", "fabrics"),
    [
        ("workload.0.sizes: [[1KiB], [2MiB]]", 1),
        ("workload.0.algorithm: [ring, halving_doubling]", 1),
        ("inject.0.rate: [0.001, 0.01]", 1),
        ("measure.sample: [1us, 2us]", 1),
        ("seed: [1, 2]", 2),
        ("transport.cc: [none, dcqcn]", 2),
        ("fabric.topology.star.hosts: [4, 5]", 2),
        ("fabric.cable.delay: [500ns, 600ns]", 2),
        ("control.fast_path: ['off', {sample: 7}]", 2),
        ("workers.memory: [1GiB, 2GiB]", 2),
        ("costs.wake: [1us, 2us]", 2),
        ("patience: [60s, 61s]", 2),
    ],
)
def test_points_have_the_same_fabric_if_only_what_is_their_own_differs(swept: str, fabrics: int) -> None:
    found = [point.experiment for point in points(loads(f"{STAR}{LOSS}sweep: {{{swept}}}\n"))]
    assert all(map(shares, found))
    assert len(set(map(made_of, found))) == fabrics


def test_what_the_hardware_has_for_the_workload_counts() -> None:
    """Slots of an accelerator that jobs share are made for the algorithm that does so."""
    text = STAR.replace("hosts: 4}}", "hosts: 4}}, switch: {accelerator: {}}").replace("ring", "in_network")
    assert made_of(loads(text)) != made_of(loads(text.replace("in_network", "in_network_best_effort")))


@pytest.mark.parametrize(
    "more",
    [
        "clock: real\n",
        "inject: [{fault: worker_killed, on: 'nic:1', at: 1us}]\n",
        "inject: [{fault: controller_dead, on: controller, at: 1us}]\n",
    ],
)
def test_a_fabric_whose_programs_are_struck_is_for_one_point(more: str) -> None:
    assert not shares(loads(STAR + more))
