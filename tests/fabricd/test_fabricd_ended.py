"""Who has ended is waited for no more: workers with clocks far ahead, ranks that never come, parts of the fabric."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from hardware.client import Fabricd, FabricdError
from tests.parts.fabricd_fixture import BareFabric, RawWorker, bare_fabric, wait_until
from workloads.verbs import wire

TEN_DAYS_PS = 10 * 86_400 * 10**12
REAL = {"mode": "real", "dilation": 1000}
CLOCKS: list[dict[str, Any]] = [REAL, {"mode": "virtual"}]


def group(tag: int, *ranks: int) -> bytes:
    """A call for a ring of NICs, which needs no controller."""
    members = b"".join(rank.to_bytes(4, "little") for rank in ranks)
    members += bytes(-len(members) % 8)
    return wire.command(wire.GROUP, b"ring", tag, 1, len(ranks), 0, 64, wire.ELEMENTS["int8"], *[0] * 6, data=members)


def far_ahead(f: BareFabric, rank: int, *more: bytes) -> RawWorker:
    w = f.worker(rank)
    w.send(wire.command(wire.SPEND, TEN_DAYS_PS), *more)
    return w


def goes_on(f: BareFabric) -> None:
    """The next job may begin, and it has the time that it had."""
    before = f.fabricd.request("status")
    assert f.fabricd.next_job(deadline_s=60.0) < before["time_ns"] + 1e12
    f.pair(0, 1, start=before["clock"] == "virtual").done()


@pytest.mark.parametrize("clock", CLOCKS, ids=["real", "virtual"])
def test_one_that_was_ten_days_ahead_and_is_lost_leaves_its_group_now(clock: dict[str, Any]) -> None:
    with bare_fabric("star", {"hosts": 3}, clock=clock) as f:
        if clock != REAL:
            f.start()
        w = far_ahead(f, 0, group(1, 0, 1))
        w.socket.close()
        f.events("worker_lost")
        goes_on(f)


@pytest.mark.parametrize("clock", CLOCKS, ids=["real", "virtual"])
def test_so_does_one_whose_group_is_whole(clock: dict[str, Any]) -> None:
    """The call of the one that was ahead does not date the group for the others either."""
    with bare_fabric("star", {"hosts": 3}, clock=clock) as f:
        if clock != REAL:
            f.start()
        other = f.worker(1)
        other.begin_wait(1, wire.FOREVER, group(1, 0, 1))
        far_ahead(f, 0, group(1, 0, 1)).socket.close()
        f.events("worker_lost")
        (told,) = other.end_wait()
        assert (told.kind, told.time_ps < TEN_DAYS_PS // 2) == (wire.GROUPED, True)
        other.socket.close()
        f.events("worker_lost")
        goes_on(f)


def test_one_that_leaves_ten_days_ahead_has_left_when_it_is_lost() -> None:
    with bare_fabric("star", {"hosts": 3}, clock=REAL) as f:
        both = [f.worker(rank) for rank in (0, 1)]
        for w in both:
            w.begin_wait(1, wire.FOREVER, group(1, 0, 1))
        number = [w.end_wait()[0] for w in both][0].qp
        for w in both:
            w.send(wire.command(wire.SPEND, TEN_DAYS_PS), wire.command(wire.LEAVE, number, 0))
            w.socket.close()
            f.events("worker_lost")
        goes_on(f)


def test_with_the_real_clock_one_that_has_ended_well_does_not_stay_either() -> None:
    with bare_fabric("star", {"hosts": 3}, clock=REAL) as f:
        far_ahead(f, 0, group(1, 0, 1)).bye()
        f.events("worker_done")
        goes_on(f)


def test_ranks_that_never_came_are_not_waited_for_when_who_brings_them_has_gone() -> None:
    with bare_fabric("star", {"hosts": 3}) as f:
        job = Fabricd(f.fabricd.control)
        job.request("start", ranks=[0, 1])
        f.fabricd.request("inject", fault="x", primitive="params", target="nic", nic=0, values={"slow": 2})
        assert {w["who"] for w in f.fabricd.request("waits")["waits"]} == {"absent"}
        asked = f.fabricd.ask("carried_out")
        job.close()
        assert f.fabricd.answer(asked, 20.0) is not None
        goes_on(f)


def test_another_job_keeps_its_ranks_when_the_one_before_hangs_up_late() -> None:
    with bare_fabric("star", {"hosts": 3}) as f:
        job = Fabricd(f.fabricd.control)
        job.request("start", ranks=[0])
        f.worker(0).bye()
        f.fabricd.next_job()
        f.start(1)
        job.close()
        wait_until(lambda: f.fabricd.request("status")["running"], "an answer after it has hung up")
        assert [w["rank"] for w in f.fabricd.request("waits")["waits"] if w["who"] == "absent"] == [1]
        f.worker(1).bye()


def test_the_next_job_says_for_whom_it_has_waited() -> None:
    with bare_fabric("star", {"hosts": 3}) as f:
        f.fabricd.request("inject", fault="x", primitive="traffic", flows=[[0, 1, 20_000, 1000]])
        f.start(0, 2)
        with pytest.raises(FabricdError, match="the job before has not ended"):
            f.fabricd.next_job(deadline_s=0.5)
        assert [(w["who"], w["rank"]) for w in f.fabricd.waits] == [("absent", 0), ("absent", 2)]
        for rank in (0, 2):
            f.worker(rank).bye()


# -- parts


def test_a_part_that_has_ended_ends_the_fabric() -> None:
    with subprocess.Popen(["sleep", "1000"]) as part:
        last = rf"fabricd: sleeper \(process {part.pid}\) has ended, at [0-9:]{{8}} UTC"
        with bare_fabric("star", {"hosts": 2}, dies=last) as f:
            f.fabricd.request("watch", processes={"sleeper": part.pid})
            part.kill()  # nobody reaps it yet
            assert f.events("part_lost")[0]["name"] == "sleeper"
            _has_died(f)


def test_what_cannot_be_watched() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        for wrong in (None, [], {"a": "b"}, {"a": 0}, {"a": -1}, {"a": 2**40}):
            with pytest.raises(FabricdError, match="watch: processes"):
                f.fabricd.request("watch", processes=wrong)


def test_an_open_vswitch_that_nobody_has_reaped_is_gone_all_the_same() -> None:
    """Where it is said how far the clock goes, a slow one is waited for, ten times as long: not one that has ended."""
    with subprocess.Popen(["sleep", "1000"]) as vswitchd:
        vswitchd.kill()
        os.waitid(os.P_PID, vswitchd.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        change = {"ovs_pid": vswitchd.pid}
        last = rf"fabricd: Open vSwitch has ended \(process {vswitchd.pid}\)"
        with bare_fabric("star", {"hosts": 2}, change=lambda c: c.update(change), dies=last) as f:
            silent = f.switch.processes[-1]
            f.start()
            f.fabricd.request("run_until", time_ns=0)
            f.events("held")
            f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 20_000, 1000]])
            silent.send_signal(signal.SIGSTOP)
            try:
                f.fabricd.request("run_until", time_ns=100_000)
                f.events("ovs_lost", deadline_s=50.0)  # patience is 60 s
                _has_died(f)
            finally:
                silent.send_signal(signal.SIGCONT)


def _has_died(f: BareFabric) -> None:
    assert f.fabricd.process is not None
    assert f.fabricd.process.wait(60) == 1
