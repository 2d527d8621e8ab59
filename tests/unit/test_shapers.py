"""Shapers in an experiment: what may be written, and what closed forms make of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.hardware import hardware_of
from testbed.plan.ideal import Ideal
from workloads.times.messages import Link, Packets, stages_over

TEXT = """name: x
fabric: {topology: {star: {hosts: 2}}, switch: {scheduler: {shapers: %s}}}
workload: [{flows: [{from: 0, to: 1, size: 1MB}]}]
"""


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("{3: {max: 150%}}", "is no share"),
        ("{3: {max: 0.5}}", "is no share"),
        ("{3: {max: 0%}}", "is no share"),
        ("{3: {}}", "neither min nor max"),
        ("{3: {min: 60%, max: 50%}}", "min is larger than max"),
        ("{3: {min: 60%}, 4: {min: 50%}}", "more than 100%"),
        ("{9: {max: 50%}}", "9 is out of bounds"),
    ],
)
def test_mistakes_are_named_with_their_place(written: str, what: str) -> None:
    with pytest.raises(InputError, match=r"shapers|scheduler") as error:
        loads(TEXT % written)
    assert what in error.value.what and "experiment:2" in str(error.value.where)


def test_fabricd_is_told_shares_and_bytes() -> None:
    told = hardware_of(loads(TEXT % "{3: {min: 20%, max: 50%, burst: 8KB}, 4: {max: 12.5%}}")).switch["shapers"]
    assert told["3"] == {"min": 0.2, "max": 0.5, "burst_bytes": 8000}
    assert (told["4"]["min"], told["4"]["max"]) == (0, 0.125)
    assert "shapers" not in hardware_of(loads(TEXT % "{}")).switch


def followed(wires: list[float], links: tuple[Link, ...]) -> float:
    """When the last packet has come in: each starts when it is there, the link is free, and its bucket not empty."""
    free, even, end = [0.0] * len(links), [float("-inf")] * len(links), 0.0
    for wire in wires:
        ready = 0.0
        for k, link in enumerate(links):
            takes = wire * 8e9 / link.rate_bps
            start = max(ready, free[k], even[k] if link.spread < 1 else 0.0)
            lag = link.burst_bytes * 8e9 / link.rate_bps / link.spread
            even[k] = max(even[k], start - lag) + takes / link.spread
            end = ready = free[k] = start + takes
    return end


@given(st.sampled_from([0.1, 0.5, 0.9]), st.integers(1, 200), st.integers(0, 20_000))
def test_a_message_through_one_shaper(most: float, packets: int, burst: int) -> None:
    """Exactly: the time of its packets at the share, less the burst; or what they take without, if that is longer."""
    links = (Link(400e9, 0), Link(400e9, 0, most, burst_bytes=burst))
    same = (4096.0, 4178.0)
    through = Packets(packets, same, same, same).through(stages_over(links))
    assert through == pytest.approx(followed([4178.0] * packets, links), rel=1e-9)


def test_flows_of_the_shaped_class_and_of_others() -> None:
    free, half, other = (
        Ideal(loads(TEXT % written)).time_ns(0, 1, 10**6) for written in ("{}", "{3: {max: 50%}}", "{4: {max: 50%}}")
    )
    assert free and half and free == other
    assert half == pytest.approx(free + 10**6 / 4096 * 4178 * 0.02, rel=0.02)
