"""perftest where it is not alone: cables that lose, thirteen clients of a server, a machine that others use."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import plain
from tests.parts.rdma_programs import DEADLINE_S, Programs, numbers, programs_on, require
from tests.parts.timing_model import RETH, wire_ps
from tests.parts.traffic_fabric import drops, nic, send, switch

MIB = 1 << 20
CABLE_MIB = 46_737
"""Of 64 KiB messages at 400 Gb/s: 4178 bytes for 4096."""
TIMEOUT_S = 4.096e-6 * 2**14
"""perftest's own (`-u 14`)."""
CLIENTS = 13


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that take all that the machine gives them."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def test_the_same_is_printed_beside_hogs() -> None:
    """Byte for byte on both sides, but for what perftest draws by its process id."""
    require("ib_write_bw")
    with programs_on("star", {"hosts": 2}) as p:
        p.next(0, 1)
        runs = []
        for hungry in (0, 3):
            with hogs(hungry):
                said = p.pair("ib_write_bw", "-F", "-s", "8192", "-n", "100", "-q", "2", "-b", together=True)
            runs.append([re.sub("PSN 0x[0-9a-f]+", "", one) for one in said])
            p.next(0, 1)
    assert runs[0] == runs[1] and numbers(runs[0][0])


def lossy(recovery: str) -> Hardware:
    """Nothing is dropped but by the fault."""
    its: dict[str, Any] = {**nic(), "recovery": recovery, "reorder_packets": 1024}
    return Hardware(switch_buffer_bytes=10**9, switch=switch(headroom=0, lossless=[], alpha=64), nic=its)


def over_a_bad_cable(recovery: str, count: int) -> tuple[list[list[float]], int, dict[str, Any]]:
    """What the client prints, how many packets were lost, and its NIC's counters."""
    with programs_on("star", {"hosts": 2}, lossy(recovery), binary=plain()) as p:
        select, match = {"share": 0.01}, {"opcodes": ["WRITE_FIRST", "WRITE_MIDDLE"]}
        p.f.fabricd.request("inject", fault="x", primitive="frames", effect="drop", ports=["h1:1"], select=select,
                            match=match)  # fmt: skip
        p.next(0, 1)
        _, said = p.pair("ib_write_bw", "-F", "-s", "65536", "-n", str(count), together=True)
        return numbers(said), drops(p.f)["fault"], p.f.nic(1)


def test_a_cable_that_loses_one_in_a_hundred_costs_what_its_recovery_needs() -> None:
    """Selective repeat sends what was lost once more, and that is all; go-back-N what was behind it, too."""
    require("ib_write_bw")
    count, rate = 500, {}
    for recovery in ("go_back_n", "selective_repeat"):
        figures, lost, sender = over_a_bad_cable(recovery, count)
        assert lost > 50 and (figures, lost) == over_a_bad_cable(recovery, count)[:2]
        rate[recovery] = figures[0][3]
        again = sender["retransmitted"]
        assert again == lost if recovery == "selective_repeat" else again > 5 * lost
        packet_s = wire_ps(400e9, 4096, RETH) / 1e12
        took_s = 65536 * count / CABLE_MIB / MIB + again * packet_s + sender["local_ack_timeout_err"] * TIMEOUT_S
        assert rate[recovery] == pytest.approx(65536 * count / MIB / took_s, rel=0.05)
    assert rate["go_back_n"] < rate["selective_repeat"] < CABLE_MIB


def incast(p: Programs, *argv: str) -> list[float]:
    """Rates (MiB/s) of clients that begin at one time, each with a server process of its own at rank 0."""
    p.next(*range(CLIENTS + 1))
    ports, to = range(18515, 18515 + CLIENTS), str(p.f.fabric.nics[0].ip)
    started = [p.start(0, "env", f"RAILBED_PLACE={n}", *argv, "-p", str(port)) for n, port in enumerate(ports, 1)]
    for port in ports:
        p.listens(0, port)
    started += [p.start(rank, *argv, "-p", str(port), to) for rank, port in enumerate(ports, 1)]
    said = [one.communicate(timeout=DEADLINE_S)[0] for one in started]
    assert not any(one.returncode for one in started), "\n".join(said)
    return [numbers(one)[0][3] for one in said[CLIENTS:]]


def test_thirteen_clients_share_a_server_under_dcqcn() -> None:
    """As flows of the NICs themselves do, fairly, with marks and without losses; the same to the digit again."""
    require("ib_write_bw")
    ecn = {"3": {"kmin_bytes": 100_000, "kmax_bytes": 400_000, "pmax": 0.2}}
    lossy = switch(headroom=0, lossless=[], alpha=64, ecn=ecn)
    h = Hardware(switch_buffer_bytes=10**9, switch=lossy, nic=nic("dcqcn"))
    with programs_on("star", {"hosts": CLIENTS + 1}, h, binary=plain()) as p:
        rates = incast(p, "ib_write_bw", "-F", "-s", "65536", "-n", "50")
        first = p.f.counters()["nics"]
        assert rates == incast(p, "ib_write_bw", "-F", "-s", "65536", "-n", "50")
        p.next()
        took_ns = send(p.f, [(n, 0, 50 * 65536, 0) for n in range(1, CLIENTS + 1)])
        by_nics = [50 * 65536 / MIB / (ns / 1e9) for ns in took_ns]
    assert first[0]["np_cnp_sent"] > 0 and not any(one["retransmitted"] for one in first)
    assert sum(rates) == pytest.approx(sum(by_nics), rel=0.005) and sum(rates) < CABLE_MIB
    assert sum(rates) ** 2 / CLIENTS / sum(rate**2 for rate in rates) > 0.98
