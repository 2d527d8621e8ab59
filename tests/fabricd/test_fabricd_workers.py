"""Workers that die, hang, or wait for what can never come; and what the control socket says and refuses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.client import Fabricd, FabricdError
from hardware.config import Hardware
from tests.parts.fabricd_fixture import DEADLINE_S, BareFabric, RawWorker, bare_fabric, post_recv
from tests.parts.timing_model import one, timed_write
from workloads.verbs import wire

ROOT = Path(__file__).resolve().parents[2]
RANK_PROCESS = """
import sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from tests.parts.fabricd_fixture import RawWorker
worker = RawWorker(Path(sys.argv[1]))
print("greeted", flush=True)
"""


@contextlib.contextmanager
def keeping_busy(cpu: int) -> Iterator[None]:
    """A process that computes there."""
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(hog.pid, {cpu})
    try:
        yield
    finally:
        hog.kill()
        hog.wait()


def rank_process(f: BareFabric, rank: int, then: str = "sys.stdin.readline()") -> subprocess.Popen[str]:
    """A worker in a process of its own that says HELLO and then nothing; `then` is what it does."""
    command = [sys.executable, "-c", RANK_PROCESS + then, str(f.worker_socket(rank)), str(ROOT)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "greeted\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_worker_killed_is_known_at_once() -> None:
    with bare_fabric("star", {"hosts": 3}, patience_s=3600.0) as f:  # which is not what finds it
        f.start(0, 1, 2)
        process = rank_process(f, 2)
        try:
            pair = f.connect(f.worker(0), f.worker(1))
            pair.park()
            pair.a.begin_wait(1, wire.FOREVER, pair.write(8))
            process.kill()
            lost = f.events("worker_lost")[0]
            assert (lost["rank"], lost["reason"]) == (2, "its process has ended")
            assert one(pair.a.end_wait()).status == 0  # the others go on
            pair.done()
        finally:
            end(process)


def test_a_worker_that_is_stopped_is_said_to_hang_however_long_our_patience_is() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        other = f.worker(1)
        process = rank_process(f, 0)
        try:
            process.send_signal(signal.SIGSTOP)
            other.begin_wait(1)  # waiting is not hanging
            hung = f.events("worker_hung")
            assert [(e["rank"], e["reason"]) for e in hung] == [(0, f"process {process.pid} is stopped")]
            assert not any(e["event"] == "worker_hung" for e in f.fabricd.events(0.6))  # once is enough
        finally:
            end(process)
        assert f.events("worker_lost")[0]["rank"] == 0


def test_a_worker_that_sleeps_or_computes_without_a_word_tries_our_patience() -> None:
    with bare_fabric("star", {"hosts": 1}, patience_s=1.0) as f:
        f.start(0)
        process = rank_process(f, 0)
        try:
            (hung,) = f.events("worker_hung")
            assert hung["reason"] == f"process {process.pid} has said nothing for 1 s"
        finally:
            end(process)


def test_a_worker_that_gets_no_cpu_is_not_judged() -> None:
    """Of the lowest priority, beside a process that computes: wall time passes, and none of it is the worker's."""
    cpu = max(os.sched_getaffinity(0))
    with bare_fabric("star", {"hosts": 2}, patience_s=1.0) as f:
        f.start(0, 1)
        computes = rank_process(f, 0, then="while True: pass")
        os.sched_setaffinity(computes.pid, {cpu})
        with keeping_busy(cpu):
            os.sched_setscheduler(computes.pid, os.SCHED_IDLE, os.sched_param(0))
            until = time.monotonic() + 3.0
            while time.monotonic() < until:
                assert not any(e["event"] == "worker_hung" for e in f.fabricd.events(0.1))
        os.sched_setscheduler(computes.pid, os.SCHED_OTHER, os.sched_param(0))
        try:
            assert f.events("worker_hung")[0]["rank"] == 0  # it has the CPU now, and still says nothing
        finally:
            end(computes)


def test_ranks_that_share_a_process_have_its_patience_in_common() -> None:
    """Threads of a process take turns: one that is silent for long does not hang as long as others speak."""
    with bare_fabric("star", {"hosts": 3}, patience_s=1.0) as f:
        f.start(0, 1, 2)
        other = rank_process(f, 2)
        try:
            _silent, speaks = f.worker(0), f.worker(1)
            hung: list[int] = []
            until = time.monotonic() + DEADLINE_S
            while time.monotonic() < until:
                speaks.send(wire.command(wire.PROGRESS))
                now = [e["rank"] for e in f.fabricd.events(0.05) if e["event"] == "worker_hung"]
                if now == [2]:  # its process has said nothing; ours has, for three times as long
                    until = time.monotonic() + 3.0
                hung += now
            assert hung == [2]
            silent: set[int] = set()
            while silent != {0, 1}:  # then neither of them speaks
                silent |= {e["rank"] for e in f.events("worker_hung")}
        finally:
            end(other)


def test_progress_is_not_hanging() -> None:
    with bare_fabric("star", {"hosts": 1}, patience_s=0.3) as f:
        f.start(0)
        w = f.worker(0)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            w.send(wire.command(wire.PROGRESS))
            assert not list(f.fabricd.events(0.05))
        w.bye()


def test_a_peer_that_is_lost_fails_its_queue_pairs() -> None:
    with bare_fabric("star", {"hosts": 2}, Hardware(timeout_ns=10_000, retry=2)) as f:
        pair = f.pair(0, 1)
        pair.b.socket.close()
        assert f.events("worker_lost")[0]["rank"] == 1
        assert [r.status for r in pair.a.wait(1, wire.FOREVER, pair.write(8))] == [12]
        pair.a.bye()


def test_a_worker_that_has_left_still_acknowledges() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        pair.b.bye()
        assert f.events("worker_done")[0]["rank"] == 1
        assert [r.status for r in pair.a.wait(1, wire.FOREVER, pair.write(8))] == [0]
        pair.a.bye()


def stalled(f: BareFabric) -> dict[int, str]:
    return {w["rank"]: w["waits_for"] for w in f.events("stalled")[0]["waiting"]}


def test_waiting_for_what_can_never_come_is_said() -> None:
    with bare_fabric("star", {"hosts": 4}) as f:
        pair = f.pair(0, 1)
        f.start(2, 3)
        two, three = f.worker(2), f.worker(3)
        pair.a.begin_wait(1)
        pair.b.begin_wait(3, wire.FOREVER, post_recv(pair.qp_b, pair.key_b, 8))
        two.begin_wait(1, wire.FOREVER, wire.command(wire.SYNC, 1, 2))
        three.begin_wait(1, wire.FOREVER, wire.command(wire.CONNECT, 0, 77, 0, 0, 0, 0, 0))
        waits = stalled(f)
        assert waits.keys() == {0, 1, 2, 3}
        assert waits[0].startswith("0 of 1 completions")
        assert "0 of 3 completions" in waits[1] and "1 with receives posted" in waits[1]
        assert "other ranks to come to the barrier" in waits[2]
        assert "rank 0 to connect (tag 77)" in waits[3]
        assert all(w["lacks"] for w in f.fabricd.request("status")["workers"])
        for w in (pair.a, pair.b, two, three):
            w.socket.close()
        assert f.fabricd.request("quiesce")["ok"]


def test_not_stalled_while_something_can_still_happen() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        pair.b.begin_wait(1)
        pair.a.send(wire.command(wire.PROGRESS))
        assert not list(f.fabricd.events(0.3))  # a runs
        pair.a.begin_wait(1, 50_000_000)
        pair.a.end_wait()
        pair.a.begin_wait(1)
        assert stalled(f).keys() == {0, 1}
        pair.a.socket.close()
        pair.b.socket.close()


def test_the_clock_waits_for_every_rank_named() -> None:
    with bare_fabric("star", {"hosts": 3}) as f:
        f.start(0, 1, 2)
        a, b = f.worker(0), f.worker(1)
        a.begin_wait(1, wire.FOREVER, wire.command(wire.CONNECT, 1, 0, 0, 0, 0, 0, 0))
        b.begin_wait(1, wire.FOREVER, wire.command(wire.CONNECT, 0, 0, 0, 0, 0, 0, 0))
        assert not list(f.fabricd.events(0.2))
        status = f.fabricd.request("status")
        assert [w["state"] for w in status["workers"]] == ["waiting", "waiting", "absent"]
        assert (status["time_ns"], status["running"], status["clock"]) == (0, True, "virtual")
        c = f.worker(2)
        assert [r.kind for r in a.end_wait() + b.end_wait()] == [wire.CONNECTED, wire.CONNECTED]
        for w in (a, b, c):
            w.bye()


def test_quiesce_is_answered_when_all_is_over() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        with Fabricd_(f) as second:
            second.ask(b'{"id": "q", "op": "quiesce"}\n{"id": 2, "op": "status"}\n')
            assert second.answer()["id"] == 2
            timed_write(pair, 8)
            pair.done()
            answer = second.answer()
            assert (answer["id"], answer["ok"]) == ("q", True)
            assert answer["time_ns"] == pytest.approx(10**12)  # until when b had waited


class Fabricd_:
    """The control socket, byte by byte."""

    def __init__(self, f: BareFabric) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(str(f.fabricd.control))
        self.lines = self.socket.makefile("rb")

    def __enter__(self) -> Fabricd_:
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.socket.close()

    def ask(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> Any:
        return json.loads(self.lines.readline())


BAD_LINES = [
    b"",
    b"{",
    b"[]",
    b"1",
    b"null",
    b'"quiesce"',
    b"{}",
    b'{"op": 1}',
    b'{"op": "dance"}',
    b'{"op": "status", "op": "stop"}',
    b"\xff\xfe",
    b"\0\0\0",
    b'{"op": "\\u0000"}',
    b'{"id": {"a": [1, {}]}, "op": "start"}',
    b'{"op": "start", "ranks": [-1]}',
    b'{"op": "start", "ranks": [2]}',
    b'{"op": "start", "ranks": [1e99]}',
    b'{"op": "start", "ranks": ["0"]}',
    b'{"op": "cable", "cable": "x-y", "up": true}',
    b'{"op": "cable", "cable": "sw0-h0", "up": 1}',
    b'{"op": "cable", "cable": "sw0-h0", "rate_bps": 0}',
    b'{"op": "cable", "cable": "sw0-h0", "rate_bps": 1e99}',
    b'{"op": "cable", "cable": "sw0-h0", "rate_bps": "fast"}',
    b'{"op": "cable", "cable": "sw0-h0", "delay_ns": -1}',
    b'{"op": "cable", "cable": "sw0-h0", "delay_ns": 1e99}',
    b'{"op": "cable", "cable": "sw0-h0", "at_ns": "now"}',
    b'{"op": "settled"}',
    b'{"op": "settled", "event": "1"}',
    b'{"op": "capture", "port": 5, "path": "/tmp/x"}',
    b'{"op": "capture", "port": "h0:1"}',
    b'{"op": "capture_stop"}',
    b"[" * 100_000,
]


def test_bad_requests_are_refused_and_nothing_else() -> None:
    with bare_fabric("star", {"hosts": 2}) as f, Fabricd_(f) as control:
        for line in BAD_LINES:
            control.ask(line + b"\n")
            answer = control.answer()
            assert answer["ok"] is False
            assert answer["error"]
        control.ask(b'{"id": [null], "op": "settled", "event": 99}\n')  # of nothing that is waited for: no harm
        assert control.answer() == {"id": [None], "ok": True}
        with pytest.raises(ConnectionError):  # a line without end
            while True:
                control.ask(b"x" * 65536)
        assert f.fabricd.request("status")["ok"]
        with pytest.raises(FabricdError, match="unknown"):
            f.fabricd.request("dance")


def test_a_subscriber_that_does_not_read_is_cut_off_alone() -> None:
    line = b'{"op": "status", "id": "%b"}\n' % (b"x" * (12 << 20))  # as long as its answer
    with bare_fabric("star", {"hosts": 2}) as f, Fabricd_(f) as control:
        control.ask(b'{"op": "subscribe"}\n')
        with pytest.raises(ConnectionError):
            for _ in range(30):
                control.ask(line)
        assert f.fabricd.request("status")["ok"]


def controller_holds(f: BareFabric) -> Fabricd:
    control = Fabricd(f.fabricd.control)
    control.subscribe(settles=True)
    return control


def port_events(control: Fabricd, count: int = 2) -> list[dict[str, Any]]:
    """What is said of the two ends of a cable between switches, or of more."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < end, f"{count} port events"
        found += [e for e in control.events(0.1) if e["event"] == "port"]
    return found


def detour(f: BareFabric, to: int, *path: str) -> None:
    """Frames to a rank take this path of switches."""
    for switch, towards in zip(path, path[1:], strict=False):
        flow = f"priority=40000,dl_dst={f.fabric.nics[to].mac},actions=output:{f.port_to(switch, towards)}"
        f.ofctl("add-flow", f.bridge(switch), flow)


def test_the_clock_stands_still_until_the_controller_has_settled() -> None:
    h = Hardware(reaction_ns=20_000, timeout_ns=15_000)
    with bare_fabric("ring", {"nodes": 3}, h) as f:
        control = controller_holds(f)
        pair = f.pair(0, 1)
        pair.park()
        start = pair.a.time_ps / 1000
        f.fabricd.request("cable", cable="sw0-sw1", up=False, at_ns=start + 1000)
        pair.a.begin_wait(1, wire.FOREVER, pair.write(4096))
        events = port_events(control)
        assert {(e["switch"], e["port"], e["up"]) for e in events} == {
            ("sw0", f.port_to("sw0", "sw1"), False),
            ("sw1", f.port_to("sw1", "sw0"), False),
        }
        assert {e["time_ns"] for e in events} == {start + 21_000}
        detour(f, 1, "sw0", "sw2", "sw1")
        detour(f, 0, "sw1", "sw2", "sw0")
        first, second = (e["id"] for e in events)
        for event in (first, first, 12345):  # one answer counts once, and one to nothing not at all
            control.request("settled", event=event)
        assert f.fabricd.request("status")["time_ns"] == start + 21_000
        control.request("settled", event=second)
        assert one(pair.a.end_wait()).status == 0
        assert f.counters()["fidelity"]["controller_timeouts"] == 0
        pair.done()
        control.close()


def test_a_controller_that_does_not_settle_tries_our_patience_and_is_named() -> None:
    with bare_fabric("ring", {"nodes": 3}, Hardware(reaction_ns=1000), patience_s=1.0) as f:
        control = controller_holds(f)
        w = f.worker(0)
        f.start(0)
        f.fabricd.request("cable", cable="sw0-sw1", up=False)
        w.wait(1, 5_000_000)
        (told,) = f.events("controller_timeout")
        said = f"process {os.getpid()} has said nothing for 1 s"
        assert (told["who"], told["pid"], told["events"], told["reason"]) == ("controller", os.getpid(), 2, said)
        assert f.counters()["fidelity"]["controller_timeouts"] == 2
        assert f.counters()["fidelity"]["controller_silent"] == 1
        f.fabricd.request("cable", cable="sw0-sw1", up=True)
        w.wait(1, 10_000_000)  # at once: it is not waited for again until it says something
        assert f.counters()["fidelity"]["controller_timeouts"] == 4
        control.request("pong")
        f.fabricd.request("cable", cable="sw0-sw1", up=False)
        w.begin_wait(1, 15_000_000)
        for event in port_events(control, 6)[-2:]:
            assert f.fabricd.request("waits")["waits"][-1]["who"] == "controller"
            control.request("settled", event=event["id"])
        w.end_wait()
        assert f.counters()["fidelity"]["controller_timeouts"] == 4
        control.close()
        w.bye()


CONTROLLER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
from hardware.client import Fabricd
control = Fabricd(sys.argv[1])
control.subscribe(settles=True, acts="controller")
print("subscribed", flush=True)
sys.stdin.readline()
"""


def test_a_controller_that_is_connected_but_stopped_is_named_though_nothing_waits_for_it() -> None:
    with bare_fabric("star", {"hosts": 1}) as f:
        command = [sys.executable, "-c", CONTROLLER_PROCESS, str(f.fabricd.control), str(ROOT)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "subscribed\n"
            process.send_signal(signal.SIGSTOP)
            f.fabricd.request("waits")
            (told,) = f.events("controller_timeout")
            assert (told["pid"], told["events"]) == (process.pid, 0)
            assert told["reason"] == f"process {process.pid} is stopped"
            assert f.counters()["fidelity"]["controller_silent"] == 1
        finally:
            end(process)


def test_a_controller_that_goes_is_not_waited_for() -> None:
    with bare_fabric("ring", {"nodes": 3}, Hardware(reaction_ns=1000)) as f:
        control = controller_holds(f)
        w = f.worker(0)
        f.start(0)
        f.fabricd.request("cable", cable="sw0-sw1", up=False)
        w.begin_wait(1, 5_000_000)
        assert len(port_events(control)) == 2
        control.close()
        w.end_wait()
        assert f.events("controller_timeout")[0]["reason"] == "its connection is closed"
        assert f.counters()["fidelity"]["controller_timeouts"] == 2
        w.bye()


def test_a_controller_that_an_agent_has_killed_is_gone_before_time_goes_on() -> None:
    """Though it has said more than fabricd reads at once, and its end comes behind that."""
    with bare_fabric("star", {"hosts": 1}) as f:
        controller, agent = Fabricd(f.fabricd.control), Fabricd(f.fabricd.control)
        controller.subscribe(acts="controller")
        agent.subscribe(acts="agent")
        os.kill(f.pid, signal.SIGSTOP)
        try:
            controller.ask("pong", padding=" " * 10_000)  # one that it reads in parts
            controller.close()
            asked = agent.ask("settled", event=1)
            agent.ask("inject", fault="f", primitive="act", to="controller", spec={})
        finally:
            os.kill(f.pid, signal.SIGCONT)
        assert agent.answer(asked, DEADLINE_S)
        with pytest.raises(FabricdError, match="nobody is connected who could do that"):
            agent.answer(asked + 1, DEADLINE_S)
        agent.close()


def test_worker_reason_in_status() -> None:
    with bare_fabric("star", {"hosts": 1}) as f:
        w: RawWorker = f.worker(0)
        w.send(wire.command(wire.SPEND, 2**64 - 1))
        reason = w.reason()
        assert f.fabricd.request("status")["workers"][0] == {
            "rank": 0,
            "state": "lost",
            "time_ns": 0,
            "waits_for": "",
            "lacks": False,
            "reason": reason,
        }
