"""Faults that programs see by their verbs: refused keys, counters of retries, receives that come late, moved GIDs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from testbed.faults import Injection
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.rdma_programs import Programs, numbers, programs_on, require
from tests.parts.verbs_ends import Ends
from workloads.verbs import wire

SUCCESS, LOCAL_PROTECTION, REMOTE_ACCESS, RETRY_EXCEEDED = 0, 4, 10, 12  # of ibv_wc_status: verbs.h
TIMEOUT_PS = 65_536_000  # code 4, which the ends ask for: 4.096 us * 2^4


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        yield f


def inject(f: BareFabric, **fault: object) -> None:
    injection = Injection.of(fault)
    for number, request in enumerate(injection.requests(injection.place(f.fabric), "f1")):
        f.fabricd.request("inject", **{**request, "fault": f"f1.{number}"})


def heal(f: BareFabric) -> None:
    for fault in f.fabricd.request("faults")["faults"]:
        f.fabricd.request("heal", fault=fault["fault"])


def write(ends: Ends, at: int = 0, nbytes: int = 4096) -> bytes:
    remote = {"remote": ends.far.address + at, "rkey": ends.far.key}
    return ends.a.send_list(ends.qp, wire.WRITE, [ends.near.piece(at, nbytes)], **remote)


@pytest.mark.parametrize("how", ["write", "read", "atomic"])
def test_keys_of_before_open_nothing(fabric: BareFabric, how: str) -> None:
    """A NAK of a remote access error (InfiniBand specification, 9.7.5.2.4): status 10 at the requester, nothing is
    written, and both ends count it as mlx5 does."""
    ends = Ends(fabric)
    before = bytes(ends.far.bytes)
    assert ends.done(1, ends.read(0, 8))[0].status == SUCCESS
    inject(fabric, fault="wrong_rkey", on="nic:1")
    ends.a.wait(1, ends.a.time_ps + 10_000)
    post = {"write": write(ends), "read": ends.read(0, 64), "atomic": ends.atomic(wire.FETCH_ADD, 0, 1)}[how]
    (record,) = ends.done(1, post)
    assert record.status == REMOTE_ACCESS and bytes(ends.far.bytes) == before
    assert fabric.nic(1)["resp_remote_access_errors"] == fabric.nic(0)["req_remote_access_errors"] == 1
    ends.over()


def test_keys_of_later_are_well(fabric: BareFabric) -> None:
    inject(fabric, fault="wrong_rkey", on="nic:1")
    ends = Ends(fabric)
    assert [r.status for r in ends.done(2, write(ends), ends.read(0, 8))] == [SUCCESS, SUCCESS]
    ends.over()


def test_healed_keys_of_before_are_well_again(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    assert ends.done(1, ends.read(0, 8))[0].status == SUCCESS
    inject(fabric, fault="wrong_rkey", on="nic:1")
    heal(fabric)
    assert ends.done(1, write(ends))[0].status == SUCCESS and ends.far.bytes[:4096] == ends.near.bytes[:4096]
    ends.over()


def test_a_host_whose_own_keys_name_nothing_sends_nothing(fabric: BareFabric) -> None:
    """Status 4, as of a key that was never given (10.3.1 of the specification); what is inline needs none."""
    ends = Ends(fabric)
    assert ends.done(1, write(ends))[0].status == SUCCESS
    inject(fabric, fault="local_protection", on="nic:0")
    ends.a.wait(1, ends.a.time_ps + 10_000)
    sent = fabric.nic(0)["tx_vport_rdma_unicast_packets"]
    assert ends.done(1, write(ends))[0].status == LOCAL_PROTECTION
    assert fabric.nic(0)["tx_vport_rdma_unicast_packets"] == sent
    ends.over()


@pytest.mark.parametrize("retry", [None, 0, 2])
def test_a_nic_gives_up_after_as_many_timeouts_as_it_is_left(fabric: BareFabric, retry: int | None) -> None:
    """Nothing comes back. By the specification a request is sent 1 + N times (9.9.2.1.1): so many timeouts pass."""
    if retry is not None:
        inject(fabric, fault="few_retries", on="nic:0", retry=retry)
    ends = Ends(fabric)
    fabric.fabricd.request("inject", fault="lost", ports=["h1:1"], primitive="frames", effect="drop")
    began = ends.a.time_ps
    (record,) = ends.done(1, write(ends))
    assert record.status == RETRY_EXCEEDED
    times = 1 + (7 if retry is None else retry)
    assert fabric.nic(0)["local_ack_timeout_err"] == times
    assert times * TIMEOUT_PS < record.time_ps - began < times * TIMEOUT_PS + 10_000_000
    ends.over()


@pytest.fixture
def two() -> Iterator[Programs]:
    require("ib_send_bw", "ibv_rc_pingpong", "ibv_devinfo")
    with programs_on("star", {"hosts": 2}) as p:
        yield p


def ended(*programs: subprocess.Popen[str]) -> list[tuple[int, str]]:
    said = [program.communicate(timeout=60)[0] for program in programs]
    return [(program.returncode, text) for program, text in zip(programs, said, strict=True)]


def test_receives_that_come_late_are_asked_for_again(two: Programs) -> None:
    """A receive of the slow one is of use 20 ms later than it is posted."""
    inject(two.f, fault="slow_receiver", on="nic:0", delay="20ms")
    _, client = two.pair("ib_send_bw", "-F", "-s", "4096", "-n", "20")
    assert numbers(client) and two.f.nic(1)["rnr_nak_retry_err"] > 0


def test_whose_gids_have_moved_is_met_by_address_or_by_the_right_index_alone(two: Programs) -> None:
    inject(two.f, fault="wrong_gid_index", on="nic:0")
    said = ended(two.start(0, "ibv_devinfo", "-v"))[0][1]
    assert said.split("GID[  0]:")[1].split("\n")[0].strip() == "fe80:0000:0000:0000:0000:0aff:fe00:0001, RoCE v1"
    assert said.split("GID[  1]:")[1].split("\n")[0].strip() == "::ffff:10.0.0.1, RoCE v2"
    server = two.start(0, "ibv_rc_pingpong", "-g", "0", "-n", "10")
    two.listens(0)
    client = two.start(1, "ibv_rc_pingpong", "-g", "0", "-n", "10", "10.0.0.1")
    (code, text), (other, _) = ended(server, client)
    assert code == other == 1 and "Failed to modify QP to RTR" in text
    two.next(0, 1)
    for more in ((), ("-R",)):  # it looks for the index; by the connection manager
        _, client_said = two.pair("ib_write_bw", "-F", "-n", "10", *more)
        assert numbers(client_said)
        two.next(0, 1)


def test_a_port_says_what_its_cable_takes(two: Programs) -> None:
    """1500 B of IP hold 1024 of payload and RoCE's headers, not 2048."""
    inject(two.f, fault="small_mtu", on="nic:0", mtu=1500)
    two.start(1, "sleep", "1").wait(60)
    assert "active_mtu:\t\t1024 (3)" in ended(two.start(0, "ibv_devinfo"))[0][1]
    assert "active_mtu:\t\t4096 (5)" in ended(two.start(1, "ibv_devinfo"))[0][1]
