"""Quantities: exact values, exact way back, and errors that say what is allowed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.units import (
    UnitError,
    format_bandwidth,
    format_flops,
    format_rate,
    format_size,
    format_time,
    parse_bandwidth,
    parse_flops,
    parse_rate,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "400Gbps", 400_000_000_000),
        (parse_rate, "0.5Kbps", 500),
        (parse_rate, "1e3 Mbps", 1_000_000_000),
        (parse_rate, "10kbps", 10_000),
        (parse_time, "500ns", 500.0),
        (parse_time, "0.1ns", 0.1),
        (parse_time, " 1.5us ", 1500.0),
        (parse_time, "2µs", 2000.0),
        (parse_time, "3s", 3e9),
        (parse_size, "16MiB", 16 << 20),
        (parse_size, "16MB", 16_000_000),
        (parse_size, "1KB", 1000),
        (parse_size, "1KiB", 1024),
        (parse_size, "0.5KiB", 512),
        (parse_size, "0B", 0),
        (parse_flops, "989T", 989 * 10**12),
        (parse_flops, "989.4TFLOPS", 9894 * 10**11),
        (parse_flops, "2.25P", 2250 * 10**12),
        (parse_bandwidth, "3.35TBps", 3350 * 10**9),
        (parse_bandwidth, "900GBps", 900 * 10**9),
    ],
)
def test_parses(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "what"),
    [
        (parse_rate, "400Gb", "'Gb' is not a unit of rate"),
        (parse_rate, "400GB", "'GB' is not a unit of rate"),
        (parse_rate, "400", "'400' has no unit"),
        (parse_rate, 400, "400 has no unit"),
        (parse_rate, 0.5, "0.5 has no unit"),
        (parse_rate, math.nan, "nan has no unit"),
        (parse_rate, True, "True is not a rate"),
        (parse_rate, None, "None is not a rate"),
        (parse_rate, "fast", "'fast' is not a rate"),
        (parse_rate, "nan Gbps", "'nan Gbps' is not a rate"),
        (parse_rate, "inf", "'inf' is not a rate"),
        (parse_rate, "1.5bps", "'1.5bps' is not a whole number of bps"),
        (parse_rate, "1e999Gbps", "'1e999Gbps' is not a rate"),
        (parse_rate, "9" * 1000 + "bps", "is not a rate"),
        (parse_flops, "989", "'989' has no unit"),
        (parse_flops, "989Tbps", "'Tbps' is not a unit of FLOP/s"),
        (parse_bandwidth, "3.35Tbps", "'Tbps' is not a unit of bandwidth"),
        (parse_time, "-5ns", "a time cannot be negative: '-5ns'"),
        (parse_time, "5 NS", "'NS' is not a unit of time"),
        (parse_time, "5min", "'min' is not a unit of time"),
        (parse_size, "16Mb", "'Mb' is not a unit of size"),
        (parse_size, "3.3B", "'3.3B' is not a whole number of B"),
        (parse_size, "", "'' is not a size"),
        (parse_size, ["1B"], "['1B'] is not a size"),
        (parse_size, "٣B", "'٣B' is not a size"),
    ],
)
def test_refuses_and_says_what_is_allowed(parse, text, what):
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert what in caught.value.what
    assert len(caught.value.what) < 100
    assert "such as" in caught.value.hint


@pytest.mark.parametrize(
    ("format_", "value", "text"),
    [
        (format_rate, 400_000_000_000, "400Gbps"),
        (format_rate, 3_600_000_000_000, "3600Gbps"),
        (format_rate, 0, "0bps"),
        (format_flops, 989 * 10**12, "989TFLOPS"),
        (format_bandwidth, 3350 * 10**9, "3350GBps"),
        (format_time, 500.0, "500ns"),
        (format_time, 1500.0, "1500ns"),
        (format_time, 1e6, "1ms"),
        (format_time, 0.25, "0.25ns"),
        (format_time, 0.0, "0ns"),
        (format_size, 32_000_000, "32MB"),
        (format_size, 16 << 20, "16MiB"),
        (format_size, 1025, "1025B"),
    ],
)
def test_formats_as_people_write(format_, value, text):
    assert format_(value) == text


@given(st.integers(0, 10**18))
def test_rates_come_back(bps):
    assert parse_rate(format_rate(bps)) == bps


@given(st.integers(0, 1 << 60))
def test_sizes_come_back(nbytes):
    assert parse_size(format_size(nbytes)) == nbytes


@given(st.floats(0, 1e13, allow_subnormal=False).filter(lambda t: t == 0 or t > 1e-9))
def test_times_come_back(ns):
    assert parse_time(format_time(ns)) == ns
