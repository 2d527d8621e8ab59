"""One job after the other on a fabric that stays up: `next_job` (hardware/fabricd/control/next_job.c)."""

from __future__ import annotations

from typing import Any

import pytest

from hardware.client import FabricdError
from hardware.config import Hardware
from tests.parts.fabricd_fixture import (
    DEADLINE_S,
    BareFabric,
    Pair,
    RawWorker,
    SessionOver,
    bare_fabric,
    post_recv,
    wait_until,
)
from tests.parts.timing_model import one, timed_write
from tests.parts.traffic_fabric import nic, port, send, switch
from workloads.verbs import wire

BYTES = 300_000


def job(f: BareFabric) -> dict[str, Any]:
    """A write from rank 0 to 1, from the first session to the last; what of it may not depend on the jobs before."""
    began = f.fabricd.request("status")["time_ns"] * 1000
    pair = f.pair(0, 1, BYTES)
    pair.b.begin_wait(1, wire.FOREVER, post_recv(pair.qp_b, pair.key_b))
    pair.a.begin_wait(1, wire.FOREVER, pair.write(BYTES, opcode=wire.WRITE_IMM))
    came = one(pair.b.end_wait())
    pair.b.bye()
    sent = one(pair.a.end_wait())
    pair.a.bye()
    f.fabricd.request("quiesce")
    counters = f.counters()
    marks = [(p["node"], p["port"], p["queue_max_bytes"]) for p in counters["ports"]]
    return {"sent": sent.time_ps - began, "came": came.time_ps - began, "qps": counters["qps"], "marks": marks}


def test_a_job_gives_the_same_figures_each_time_and_counters_go_on() -> None:
    with bare_fabric("star", {"hosts": 3}) as f:
        first = job(f)
        sent = f.nic(0)["tx_vport_rdma_unicast_packets"]
        for times in (2, 3):
            assert f.fabricd.next_job() == f.fabricd.request("status")["time_ns"] > 0
            assert f.counters()["qps"] == []
            assert job(f) == first
            assert f.nic(0)["tx_vport_rdma_unicast_packets"] == times * sent


def test_pauses_count_the_same_in_each_job() -> None:
    """They are shown in whole us, and a job's do not end at one: what is left over is no later job's."""
    small = Hardware(switch_buffer_bytes=1_000_000, switch=switch(headroom=100_000), nic=nic(rate_bps=333e9))
    with bare_fabric("star", {"hosts": 3}, small) as f:
        found = []
        for _ in range(4):
            f.fabricd.next_job()
            before = port(f, "h1", 1)["priorities"].get("rx_prio3_pause_duration", 0)
            f.fabricd.request("start", ranks=[])
            send(f, [(1, 0, 500_001, 0), (2, 0, 400_003, 0)])
            found.append(port(f, "h1", 1)["priorities"]["rx_prio3_pause_duration"] - before)
        assert found[0] > 1 and len(set(found)) == 1, found


def test_random_draws_begin_again() -> None:
    """The same frames are lost in each job: what has come and gone before changes no draw."""
    with bare_fabric("star", {"hosts": 3}) as f:
        runs = []
        for _ in range(2):
            f.fabricd.next_job()
            loss = {"ports": ["h0:1"], "effect": "drop", "select": {"share": 0.05}, "match": {"classes": [3]}}
            f.fabricd.request("inject", fault="loss", primitive="frames", **loss)
            before = f.nic(0)["retransmitted"]
            runs.append((job(f), f.nic(0)["retransmitted"] - before))
            f.fabricd.request("heal", fault="loss")
        assert runs[0] == runs[1]
        assert runs[0][1] > 0


def test_a_fault_whose_time_comes_between_jobs_is_on_in_the_next() -> None:
    """At once where no time is said; if its time came when the workers had ended, with the next job."""
    with bare_fabric("star", {"hosts": 3}) as f:

        def inject(name: str, at_ns: float, cable: str) -> None:
            values = {"cable": cable, "values": {"rate_bps": 1e9}}
            f.fabricd.request("inject", fault=name, primitive="params", at_ns=at_ns, **values)

        def off() -> list[str]:
            return [x["fault"] for x in f.fabricd.request("faults")["faults"] if not x["on"]]

        plain = job(f)
        f.fabricd.next_job()
        pair = f.pair(0, 1, BYTES)
        began = f.fabricd.request("status")["time_ns"]
        for k in range(100):  # the workers leave while frames are on their way
            inject(f"f{k}", began + 50 * k, "h2-sw0")
        pair.a.send(pair.write(BYTES))
        pair.a.bye()
        pair.b.bye()
        f.fabricd.request("quiesce")
        assert off()
        inject("now", 0, "h0-sw0")
        assert "now" not in off()
        f.fabricd.next_job()
        inject("waiting", 0, "h1-sw0")
        f.fabricd.request(
            "carried_out", timeout=DEADLINE_S
        )  # what was missed comes with the job, and is not waited for
        f.fabricd.request("heal", fault="waiting")
        assert job(f)["came"] > 10 * plain["came"]
        assert off() == []


def test_the_clock_stands_still_between_jobs() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        job(f)
        began = f.fabricd.next_job()
        f.fabricd.request("cable", cable="h0-sw0", up=False, at_ns=began + 5)
        expected = {"time_ns": began, "running": False, "idle": False}
        assert f.fabricd.request("status").items() >= expected.items()


def test_refused_while_somebody_is_there_or_something_under_way() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        with pytest.raises(FabricdError, match="a rank has a session still"):
            f.fabricd.request("next_job")
        assert timed_write(pair, 8)[1].status == 0  # the sessions are as they were
        pair.done()
        f.fabricd.request("quiesce")
        with pytest.raises(SessionOver, match="rank has a session already, or had one"):
            f.worker(0)
        f.fabricd.next_job()
        f.worker(0)


def test_after_workers_that_died_at_work_the_next_job_is_as_on_a_new_fabric() -> None:
    """Requests, receives, rendezvous and records are left behind by both; and what was in flight is over."""
    with bare_fabric("star", {"hosts": 3}) as f:
        first = job(f)
        f.fabricd.next_job()
        pair = f.pair(0, 1, 1 << 20)
        third = f.worker(2)
        third.begin_wait(1, wire.FOREVER, wire.command(wire.SYNC, 3, 3))
        pair.a.send(pair.write(1 << 20), pair.write(1 << 20), wire.command(wire.SYNC, 3, 3))
        pair.b.send(post_recv(pair.qp_b, pair.key_b), wire.command(wire.CONNECT, 2, 9, 9, 0, 0, 0, 0))
        for worker in (pair.a, pair.b, third):
            worker.socket.close()
        f.fabricd.next_job()
        assert job(f) == first


def test_with_the_real_clock_nothing_old_is_taken_for_new() -> None:
    """Half a write is under way when its worker dies: its queue pair's number is not given out again."""
    with bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": 2000}) as f:
        pair = f.connect(f.worker(0), f.worker(1), 1 << 20)
        pair.a.send(pair.write(1 << 20))
        wait_until(lambda: f.nic(0)["tx_vport_rdma_unicast_packets"] > 1, "the first packets")
        for worker in (pair.a, pair.b):
            worker.socket.close()
        wait_until(lambda: again(f), "the sessions to end")
        next_pair: Pair = f.connect(f.worker(0), f.worker(1))
        assert next_pair.qp_a > pair.qp_a
        next_pair.a.send(next_pair.write(8))
        for worker in (next_pair.a, next_pair.b):
            worker.socket.close()


def again(f: BareFabric) -> bool:
    try:
        f.fabricd.request("next_job")
    except FabricdError:
        return False
    return True


def test_generated_flows_go_on_beside_jobs_with_the_real_clock() -> None:
    with bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": 20000}) as f:
        flow = {"fault": "t", "primitive": "traffic", "flows": [[0, 1, 4 << 20, 0]]}
        pair = f.connect(f.worker(0), f.worker(1))
        f.fabricd.request("inject", **flow)
        wait_until(lambda: any(q["generated"] for q in f.counters()["qps"]), "the flow's queue pair")
        for worker in (pair.a, pair.b):
            worker.socket.close()
        wait_until(lambda: again(f), "the sessions to end")
        states = [(q["qp"], q["state"]) for q in f.counters()["qps"] if q["rank"] == 0]
        assert states == [(pair.qp_a + 1, "ready")]
        other = f.connect(f.worker(0), f.worker(1))
        assert other.qp_a == pair.qp_a + 2
        wait_until(lambda: f.fabricd.request("traffic_results", fault="t")["flows"][0][4] is not None, "its end")
        for worker in (other.a, other.b):
            worker.socket.close()


def test_a_worker_cannot_ask_for_it() -> None:
    """It is the control socket's; to a worker there is no such command, and what it knew of before means nothing."""
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        pair.done()
        f.fabricd.next_job()
        f.start(0)
        late: RawWorker = f.worker(0)
        late.send(pair.write(8))
        assert late.reason() == "POST_SEND: no such queue pair, or not connected"
