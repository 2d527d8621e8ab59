"""What a load becomes in the plan: who sends to whom, how much, and how often."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from testbed.experiment import loads
from testbed.plan.steps.plan import capture_ports, plan
from testbed.plan.steps.planned import PlannedFlow, PlannedFlows

TEXT = """
name: t
fabric: {topology: {star: {hosts: 4}}, cables: {'nic:3': {rate: 10Gbps}}}
workload:
"""


def flows(*steps: str) -> list[Sequence[PlannedFlow]]:
    made = plan(loads(TEXT + "".join(f"- load: {{{step}}}\n" for step in steps))).steps
    return [step.flows for step in made if isinstance(step, PlannedFlows)]


def test_in_a_burst_all_send_to_one_at_once() -> None:
    (found,) = flows("pattern: burst, to: 2, senders: [0, 2, 3], flows: 2, size: 5KB")
    assert [(f.source, f.target, f.size_bytes, f.start_ns) for f in found] == [
        (0, 2, 5000, 0), (0, 2, 5000, 0), (3, 2, 5000, 0), (3, 2, 5000, 0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("load", "bps"),
    [
        ("pattern: incast, to: 3", 10e9),  # of the receiver
        ("pattern: incast, to: 1", 400e9),
        ("pattern: random, senders: [0, 1]", 2 * 400e9),  # of each sender
        ("pattern: random", 4 * 10e9),  # of the slowest
    ],
)
def test_a_load_is_a_share_of_a_line_rate(load: str, bps: float) -> None:
    """Of 2000 intervals of a Poisson process the mean is off by 1/sqrt(2000), 2.2 %."""
    (found,) = flows(f"{load}, load: 0.5, flows: 2000, size: 1KB")
    assert found[-1].start_ns == pytest.approx(2000 * 8000 / (0.5 * bps) * 1e9, rel=0.07)
    assert {f.size_bytes for f in found} == {1000} and all(f.source != f.target for f in found)


def test_two_loads_are_drawn_apart() -> None:
    one, other = flows(*["flows: 20"] * 2)
    assert [f.start_ns for f in one] != [f.start_ns for f in other]
    assert flows(*["flows: 20"] * 2) == [one, other]


@pytest.mark.parametrize(
    ("target", "ports"),
    [("port:sw0:2", ["sw0:2"]), ("nic:3", ["h3:1"]), ("cable:h1-sw0", ["h1:1", "sw0:2"])],
)
def test_what_a_capture_names_are_ports(target: str, ports: list[str]) -> None:
    assert capture_ports(target, loads(TEXT + "- load: {}\n").build_fabric()) == ports
