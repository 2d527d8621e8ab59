"""perftest and rdma-core's examples, as the distribution has them, print what the configured NICs would give."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.parts.rdma_programs import Programs, numbers, programs_on, require
from tests.parts.timing_model import DETH, PS, RETH, Model, wire_ps

MIB = 1 << 20


@pytest.fixture
def two() -> Iterator[Programs]:
    require("ib_write_bw", "ib_atomic_lat", "ibv_rc_pingpong")
    with programs_on("star", {"hosts": 2}) as p:
        yield p


def test_bandwidth_is_that_of_the_cable(two: Programs) -> None:
    """One stream of messages without a gap; perftest counts from the first post to the last completion."""
    size, count = 65536, 500
    _, client = two.pair("ib_write_bw", "-F", "-s", str(size), "-n", str(count))
    h = two.f.hardware
    message = sum(wire_ps(h.cable_rate_bps, *packet) for packet in Model(h, 1).packets(size))
    took_ps = Model(h, 1).long_sent(size) + (count - 1) * message
    ((_, _, _, average, _),) = numbers(client)
    assert average == pytest.approx(size * count / MIB / (took_ps / PS / 1e9), rel=2e-4)


def test_latency_is_half_a_round_trip(two: Programs) -> None:
    """A SEND of 2 bytes has no RETH; both ends see it when it is in their memory."""
    _, client = two.pair("ib_send_lat", "-F", "-n", "200", "-I", "0")
    ((_, _, least, _, typical, *_),) = numbers(client)
    expected_us = Model(two.f.hardware, 1).received(2, 0) / PS / 1000
    assert RETH and least == pytest.approx(expected_us, rel=0.01)
    assert typical == pytest.approx(expected_us, rel=0.01)


def test_memory_that_is_polled_is_seen_to_change_when_it_does(two: Programs) -> None:
    """Each side looks at a byte that the other writes: the same as a SEND and its RETH, each time alike."""
    _, client = two.pair("ib_write_lat", "-F", "-n", "200")
    ((_, _, least, most, typical, average, deviation, *_),) = numbers(client)
    expected_us = Model(two.f.hardware, 1).received(2, RETH) / PS / 1000
    assert least == most == typical == average == pytest.approx(expected_us, rel=0.01) and deviation == 0


def test_datagrams_take_as_long_as_sends_and_8_bytes(two: Programs) -> None:
    """Both ends see one when it and the 40 bytes before it are in their memory."""
    _, client = two.pair("ib_send_lat", "-F", "-c", "UD", "-s", "4096", "-n", "200", "-I", "0")
    ((_, _, least, _, typical, *_),) = numbers(client)
    model = Model(two.f.hardware, 1)
    expected_us = (model.arrival(4096, DETH) + model.pcie_ps(40 + 4096) + model.pcie) / PS / 1000
    assert least == pytest.approx(expected_us, rel=0.01) and typical == pytest.approx(expected_us, rel=0.01)


def test_datagrams_come_as_fast_as_they_are_posted(two: Programs) -> None:
    """A post takes 100 ns, longer than a packet of 4,096 bytes does at 400 Gb/s."""
    _, client = two.pair("ib_send_bw", "-F", "-c", "UD", "-s", "4096", "-n", "1000")
    ((_, _, _, average, _),) = numbers(client)
    assert 0.85 * 4096 / 100e-9 < average * MIB < 4096 / 100e-9


@pytest.mark.parametrize("how", [[], ["-e"]])
def test_the_example_of_datagrams_passes_its_data(two: Programs, how: list[str]) -> None:
    _, client = two.pair("ibv_ud_pingpong", "-g", "0", "-n", "100", "-c", *how)
    assert "100 iters in" in client and "invalid data" not in client


def test_queue_pairs_share_receives(two: Programs) -> None:
    _, client = two.pair("ib_send_bw", "-F", "-s", "8192", "-n", "200", "-q", "4", "--use-srq")
    ((_, count, _, average, _),) = numbers(client)
    assert count == 800 and average == pytest.approx(46_737, rel=0.05)
    two.next(0, 1)
    _, client = two.pair("ibv_srq_pingpong", "-g", "0", "-q", "4", "-n", "100", "-c")
    assert "100 iters in" in client and "invalid data" not in client


@pytest.mark.parametrize("how", [[], ["-e"]])
def test_the_example_passes_its_data(two: Programs, how: list[str]) -> None:
    """With events (`-e`) and without."""
    _, client = two.pair("ibv_rc_pingpong", "-g", "0", "-n", "100", "-c", *how)
    assert "100 iters in" in client and "invalid data" not in client


def test_the_same_is_printed_again(two: Programs) -> None:
    """Byte for byte, but for what perftest draws by its process id."""
    runs = []
    for _ in range(2):
        two.next(0, 1)
        said = two.pair("ib_write_bw", "-F", "-s", "8192", "-n", "100", "-q", "2", "-b", together=True)
        runs.append([re.sub("PSN 0x[0-9a-f]+", "", one) for one in said])
    assert runs[0][0].splitlines() == runs[1][0].splitlines() and numbers(runs[0][0])
    assert runs[0][1].splitlines() == runs[1][1].splitlines()


def test_what_is_read_comes_at_nearly_the_cables_rate(two: Programs) -> None:
    """Of each message's responses the last asks for nothing; sixteen are under way at a time (`-o`)."""
    _, client = two.pair("ib_read_bw", "-F", "-s", "65536", "-n", "200")
    ((_, _, _, average, _),) = numbers(client)
    assert average == pytest.approx(46_737, rel=0.02) and average < 46_737


def test_an_atomic_takes_a_round_trip_and_what_its_ends_need(two: Programs) -> None:
    _, client = two.pair("ib_atomic_lat", "-F", "-n", "50")
    ((_, _, least, most, *_),) = numbers(client)
    model = Model(two.f.hardware, 1)
    both_ways_us = 2 * model.travel(0, 28) / PS / 1000
    assert both_ways_us < least == most < both_ways_us + 2
