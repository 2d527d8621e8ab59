"""perftest's programs: each row of the page's table is typed, and what they print is what the model's forms give."""

from __future__ import annotations

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import plain, wait_until
from tests.parts.perftest_table import PAGE, Row, table
from tests.parts.rdma_programs import DEADLINE_S, Programs, numbers, programs_on, require
from tests.parts.timing_model import PS, Model, wire_ps

MIB = 1 << 20
TABLE = [row for row in table(PAGE.read_text()) if " -a" not in row.command]
"""Those with all sizes take seconds: `./setup.sh prove programs`, and a test of latencies below."""
COUNTER_PS = 10_000
"""What reading the time-stamp counter takes. perftest reads it before each post."""
RATES = ((2, 2000), (512, 1000), (4096, 1000), (8192, 500), (65536, 200), (1 << 20, 20), (8 << 20, 5))
"""Bytes, and how many messages: the page's range."""
FABRICS = {"star": ({"hosts": 2}, 1), "clos": ({"leaves": 2, "hosts_per_leaf": 1, "spines": 1}, 3)}


def typed(p: Programs, row: Row) -> tuple[tuple[int, int], str]:
    """The exit codes of server and client, and what the client, or if it was not reached the server, has said."""
    for socket in (p.f.directory / "network").iterdir():
        socket.unlink()
    server = p.start(0, *row.argv)
    listens = p.f.directory / "network" / "0-18515"
    wait_until(lambda: server.poll() is not None or listens.exists(), "the server to listen", DEADLINE_S)
    client = p.start(1, *row.argv, str(p.f.fabric.nics[0].ip))
    said = [one.communicate(timeout=DEADLINE_S)[0] for one in (server, client)]
    return (server.returncode, client.returncode), said[1] or said[0]


@pytest.mark.parametrize("part", range(3))
def test_the_table_says_what_works(part: int) -> None:
    """Refused are those whose row has a sentence that perftest, or the library, prints."""
    require("ib_write_bw", "ib_atomic_lat")
    assert len(TABLE) > 20
    with programs_on("star", {"hosts": 2}) as p:
        for row in TABLE[part::3]:
            codes, said = typed(p, row)
            assert row.result(codes, said) == row.virtual, (row.command, said)
            assert (codes[1] == 0) == (row.virtual == "yes")


def test_the_latency_of_each_size_is_half_a_round_trip() -> None:
    """From 2 bytes to 8 MiB."""
    require("ib_send_lat")
    with programs_on("star", {"hosts": 2}) as p:
        _, said = p.pair("ib_send_lat", "-F", "-a", "-n", "5", "-I", "0")
        rows = {int(row[0]): row[4] for row in numbers(said)}
        assert set(rows) == {2**k for k in range(1, 24)}
        for size, typical in rows.items():
            assert typical == pytest.approx(latency_us(p.f.hardware, 1, size), rel=0.01), size


@pytest.mark.parametrize("rate", [100, 400])
@pytest.mark.parametrize("kind", FABRICS)
def test_both_are_those_of_the_form_on_other_fabrics(kind: str, rate: int) -> None:
    require("ib_send_lat", "ib_write_bw")
    params, switches = FABRICS[kind]
    with programs_on(kind, params, Hardware(cable_rate_bps=rate * 10**9), binary=plain()) as p:
        for size in (2, 1 << 20):
            _, said = p.pair("ib_send_lat", "-F", "-s", str(size), "-n", "5", "-I", "0")
            assert numbers(said)[0][4] == pytest.approx(latency_us(p.f.hardware, switches, size), rel=0.01)
        for size, count in RATES:
            _, said = p.pair("ib_write_bw", "-F", "-s", str(size), "-n", str(count), "-t", "512")
            expected = rate_mib(p.f.hardware, switches, size, count)
            assert numbers(said)[0][3] == pytest.approx(expected, rel=0.005), size


def latency_us(h: Hardware, switches: int, size: int) -> float:
    """Of a SEND: packets follow each other on the first cable; the last one goes on alone."""
    model = Model(h, switches)
    packets = [payload for payload, _ in model.packets(size)]
    first, last = packets[0], packets[-1]
    fetched = model.doorbell + model.pcie_ps(first) + model.pcie
    on_cables = sum(wire_ps(h.cable_rate_bps, n, 0) for n in packets) + switches * wire_ps(h.cable_rate_bps, last, 0)
    return (fetched + on_cables + model.passing + model.pcie_ps(last) + model.pcie) / PS / 1000


def rate_mib(h: Hardware, switches: int, size: int, count: int) -> float:
    """Of writes one behind the other: at the cable's rate, or as fast as they are posted."""
    model = Model(h, switches)
    on_cable = sum(wire_ps(h.cable_rate_bps, *packet) for packet in model.packets(size))
    took_ps = model.long_sent(size) + (count - 1) * max(on_cable, int(h.post_ns * PS) + COUNTER_PS)
    return size * count / MIB / (took_ps / PS / 1e9)
