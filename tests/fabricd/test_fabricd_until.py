"""`run_until`: the clock stands still at exactly the time that was asked for, and nobody is judged meanwhile."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.client import FabricdError
from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.traffic_fabric import port, star
from workloads.verbs import wire

FLOWS = [[0, 1, 20_000, 1000], [2, 1, 50_000, 2500], [1, 2, 9_000, 2600]]
NS = 1000


def hold(f: BareFabric, time_ns: float) -> dict[str, Any]:
    """Lets the clock go on to that time; returns the event."""
    f.fabricd.request("run_until", time_ns=time_ns)
    (held,) = f.events("held")
    return held


def traffic(f: BareFabric) -> None:
    f.fabricd.request("inject", fault="t", primitive="traffic", flows=FLOWS)


def emulated(f: BareFabric) -> dict[str, Any]:
    return {key: value for key, value in f.counters().items() if key not in ("fidelity", "id", "time_ns")}


def times_ns(path: Path) -> Iterator[int]:
    from scapy.utils import RawPcapNgReader

    with RawPcapNgReader(str(path)) as reader:
        for _, about in reader:
            yield (about.tshigh << 32) + about.tslow


def test_all_up_to_the_time_has_happened_and_nothing_later(tmp_path: Path) -> None:
    """A port's frames are captured with their times. Held 1 ns before each, and at it, as many have been counted."""
    with star(3) as f:
        f.fabricd.request("capture", port="sw0:2", path=str(tmp_path / "c"))
        traffic(f)
        f.fabricd.request("quiesce")
        f.fabricd.request("capture_stop", path=str(tmp_path / "c"))
        end = port(f, "sw0", 2)
    seen = sorted(times_ns(tmp_path / "c"))
    assert len(seen) == end["tx_frames"] + end["rx_frames"] > 20
    with star(3) as f:
        hold(f, 0)
        traffic(f)
        for at in sorted({t + step for t in seen[::2] for step in (-1, 0, 1)}):
            assert hold(f, at)["time_ns"] == at
            now = port(f, "sw0", 2)
            counted = now["tx_frames"] + now["rx_frames"]
            # a capture's times are in whole ns: what is there with this one may have come later within it
            assert sum(t < at for t in seen) <= counted <= sum(t <= at for t in seen), at
            assert f.counters()["time_ns"] == at


def test_holds_change_nothing_however_much_is_read_meanwhile() -> None:
    ends, at_holds = [], []
    for steps in ([], [3000.0, 3001.0, 5500.5], [3000.0, 3001.0, 5500.5]):
        seen = []
        with star(3) as f:
            hold(f, 0)
            traffic(f)
            for at in steps:
                hold(f, at)
                seen.append(emulated(f))
                for _ in range(random.randrange(200)):
                    f.fabricd.request(random.choice(["counters", "status", "waits", "faults"]))
                assert emulated(f) == seen[-1]
            f.fabricd.request("run_until")
            f.fabricd.request("quiesce")
            ends.append(emulated(f))
        at_holds.append(seen)
    assert ends[0] == ends[1] == ends[2]
    assert at_holds[1] == at_holds[2]


def test_what_a_request_does_it_does_at_the_hold() -> None:
    with star(3) as f:
        hold(f, 0)
        traffic(f)
        hold(f, 3000)
        f.fabricd.request("cable", cable="h1-sw0", up=False)
        f.fabricd.request("inject", fault="slow", primitive="params", target="nic", nic=0, values={"slow": 2})
        assert [e["time_ns"] for e in f.events("fault") if e["fault"] == "slow"] == [3000]
        assert hold(f, 3000)["time_ns"] == 3000
        before = port(f, "sw0", 2)
        lost = sum(d["count"] for d in f.counters()["drops"] if d["reason"] == "cable")
        hold(f, 10_000)
        after = port(f, "sw0", 2)
        assert sum(d["count"] for d in f.counters()["drops"] if d["reason"] == "cable") > lost  # those that were on it
        assert after["tx_frames"] == before["tx_frames"] and after["rx_frames"] == before["rx_frames"]


def test_a_worker_that_runs_ahead_acts_after_the_hold() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        pair.park()
        start = pair.a.time_ps
        f.fabricd.request("run_until", time_ns=start / NS + 2000)
        pair.a.wait(1, start + 1000 * NS)
        pair.a.send(wire.command(wire.SPEND, 10_000 * NS))
        assert not [e for e in f.fabricd.events(0.3) if e["event"] == "held"]  # it may still say something
        pair.a.begin_wait(1, wire.FOREVER, pair.write(8))
        (held,) = f.events("held")
        assert held["time_ns"] == start / NS + 2000
        hold(f, start / NS + 11_000)
        assert sum(qp["tx_packets"] for qp in f.counters()["qps"]) == 0
        f.fabricd.request("run_until", time_ns=start / NS + 100_000)
        (record,) = pair.a.end_wait()
        assert record.time_ps > start + 11_000 * NS
        f.fabricd.request("run_until")
        pair.done()


def test_time_goes_on_where_all_wait_for_ever() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1)
        hold_at = pair.a.time_ps / NS + 50_000
        f.fabricd.request("run_until", time_ns=hold_at)
        slow = {"primitive": "params", "target": "nic", "nic": 0, "values": {"slow": 2}}
        f.fabricd.request("inject", fault="x", at_ns=20_000, **slow)
        for w in (pair.a, pair.b):
            w.begin_wait(1)
        happened = f.events("held")
        assert happened[0]["time_ns"] == hold_at
        assert f.fabricd.request("faults")["faults"][0]["since_ns"] == 20_000
        assert not [e for e in f.fabricd.events(0.2) if e["event"] == "stalled"]  # said once, before
        f.fabricd.request("run_until", time_ns=hold_at + 1)
        f.events("held")
        f.fabricd.request("run_until")
        for w in (pair.a, pair.b):
            w.socket.close()
        f.events("worker_lost")


def test_nobody_is_judged_while_it_stands_still() -> None:
    """A connection without HELLO tries our patience, but not during a hold."""
    with bare_fabric("star", {"hosts": 2}, patience_s=0.3) as f:
        f.start()
        silent = f.worker(1, hello=False)
        hold(f, 5000)
        assert not [e for e in f.fabricd.events(1.0) if e["event"] == "worker_hung"]
        f.fabricd.request("run_until")
        assert f.events("worker_hung")[0]["rank"] == 1
        silent.socket.close()


def test_a_slow_open_vswitch_is_waited_for() -> None:
    with bare_fabric("star", {"hosts": 2}, patience_s=0.3, change=lambda c: c.update(ovs_pid=0)) as f:
        vswitchd = f.switch.processes[-1]
        f.start()
        hold(f, 0)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 20_000, 1000]])
        vswitchd.send_signal(signal.SIGSTOP)
        try:
            f.fabricd.request("run_until", time_ns=100_000)
            assert f.events("ovs_slow")[0]["reason"] == "Open vSwitch returns no fence"  # whose process nobody has said
        finally:
            vswitchd.send_signal(signal.SIGCONT)
        f.events("held")
        (flow,) = f.fabricd.request("traffic_results", fault="t")["flows"]
        assert flow[4] is not None


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ({"time_ns": 999}, "that time is over"),
        ({"time_ns": -1}, "from 0 to"),
        ({"time_ns": "now"}, "from 0 to"),
        ({"time_ns": None}, "from 0 to"),
        ({"time_ns": 2e12}, "from 0 to"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], wrong: str) -> None:
    with star(2) as f:
        hold(f, 1000)
        with pytest.raises(FabricdError, match=wrong):
            f.fabricd.request("run_until", **asked)


def test_the_real_clock_cannot_stand_still() -> None:
    with (
        bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": 1000}) as f,
        pytest.raises(FabricdError, match="virtual clock"),
    ):
        f.fabricd.request("run_until", time_ns=1)
