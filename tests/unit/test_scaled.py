"""A large step's time from small ones, and how far it may be off."""

from __future__ import annotations

import pytest

from results.figures.scaled import SLACK, scaled


def step(by: int, layers: tuple[int, ...], *expected: float) -> dict[str, object]:
    return {"scale": {"layers": layers, "by": by, "expected_ns": expected, "whole": {"ideal_ns": 1.0, "tokens": 1}}}


def test_a_fraction_that_takes_what_it_should_tells_of_the_whole() -> None:
    """1/16 of 15,900 ns, of which single packets add 6.25 ns to the part."""
    its = scaled(step(16, (4,), 1000, 15_900), [1000])
    assert its.time_ns == 15_900
    assert its.bound == pytest.approx(SLACK + 100 / 15_900)


def test_a_fraction_whose_messages_meet_says_that_it_may_be_as_far_off() -> None:
    """It took twice what it should, by what queues add, and queues are not scaled."""
    its = scaled(step(16, (4,), 1000, 15_900), [2000])
    assert its.bound == pytest.approx(SLACK + 100 / 15_900 + 15 / 16)


def test_fewer_layers_are_off_by_what_two_ways_differ() -> None:
    its = scaled(step(1, (2, 4, 12), 100, 200, 600), [110, 220])
    assert its.time_ns == 660 and its.bound == pytest.approx(SLACK)
