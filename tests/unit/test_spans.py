"""Spans of values as they are written, and what is drawn from them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.units import RATE, TIME
from testbed.experiment.spans import span


@pytest.mark.parametrize(
    ("text", "share", "value"),
    [
        ("1..4", 0.0, 1), ("1..4", 0.24, 1), ("1..4", 0.26, 2), ("1..4", 1.0, 4),
        ("0.5..1.5", 0.25, 0.75), ("1..16 log", 0.5, 4),
        ("1Mbps..100Mbps log", 0.5, "10Mbps"), ("100ns..2us", 0.5, "1.05us"), ("1KB..1MB", 0.5, "500.5KB"),
        ("1KiB..2KiB", 0.0, "1.024KB"), ("-1..1", 0.5, 0),
    ],
)  # fmt: skip
def test_a_share_of_a_span(text: str, share: float, value: object) -> None:
    """Linear and logarithmic interpolation, counted by hand; whole numbers have equal shares each."""
    assert span(text).at(share) == value


@given(st.floats(1, 1e9), st.floats(1.001, 1e6), st.booleans(), st.floats(0, 1))
def test_what_is_drawn_lies_in_the_span(low: float, factor: float, log: bool, share: float) -> None:
    high = low * factor
    one = span(f"{low}ns..{high}ns" + " log" * log)
    at = float(TIME.parse(one.at(share)))
    assert low * (1 - 1e-3) <= at <= high * (1 + 1e-3)
    middle = math.exp((1 - share) * math.log(low) + share * math.log(high)) if log else low + share * (high - low)
    assert at == pytest.approx(middle, rel=1e-3)


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.floats(0, 1))
def test_rates_are_whole_and_can_be_read(low: int, more: int, share: float) -> None:
    value = span(f"{low}bps..{low + more}bps").at(share)
    assert RATE.parse_whole(value) >= 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1", "no span"), (3, "no span"), ("1..", "no span"), ("4..1", "not below"), ("1..1", "not below"),
        ("1us..1MB", "of one kind"), ("0..1 log", "above 0"), ("a..b", "of one kind"), ("1..nan", "of one kind"),
        ("1..1e999", "of one kind"), ("1Mbps..5", "of one kind"),
    ],
)  # fmt: skip
def test_what_is_no_span_is_said(text: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        span(text)
