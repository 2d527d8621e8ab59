"""Incasts in fabricd against incast_model: the same fabric, frame by frame, controls written from their sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hardware import cc
from hardware.config import Hardware
from results.frames import series
from testbed.experiment import loads
from testbed.run import run as running
from tests.parts import reference_controls
from tests.parts.incast_model import GAP, HEADERS, Control, Incast, Net
from tests.parts.traffic_fabric import port, send, star, switch

SIZE = 2_000_000
NET = Net()  # 100 Gb/s, 1 us cables, MTU 1000
STEP = (300e3, 300e3, 1.0)
REFERENCES: dict[str, type[Control]] = {
    "none": reference_controls.Unlimited,
    "hpcc": reference_controls.Hpcc,
    "timely": reference_controls.Timely,
    "swift": reference_controls.Swift,
    "dctcp": reference_controls.Dctcp,
    "nscc": reference_controls.Nscc,
    **{f"dcqcn {name}": reference_controls.Dcqcn for name in cc.CONTROLS["dcqcn"].sets},
}


@dataclass(frozen=True)
class Outcome:
    """Mean completion, the longest queue and the mean one while there is traffic."""

    mean_ns: float
    queue_max: float
    queue_mean: float


def mean(changes: list[tuple[float, int]], end: float) -> float:
    """Of a queue over time, from its changes."""
    if not changes:
        return 0.0
    ends = [t for t, _ in changes[1:]] + [end]
    return sum(q * (b - a) for (a, q), b in zip(changes, ends, strict=True)) / end


def values(control: str, net: Net, given: Mapping[str, float]) -> dict[str, float]:
    name, _, named_set = control.partition(" ")
    setting = cc.Setting(net.rate_bps, net.base_rtt_ns, net.mtu, net.fetch_ns)
    return cc.CONTROLS[name].values(setting, given, named_set or None)


def hardware(control: str, net: Net, given: Mapping[str, float]) -> Hardware:
    kmin, kmax, pmax = net.ecn
    chosen = cc.CONTROLS[control.split()[0]].in_fabricd(values(control, net, given))
    ecn = {"3": {"kmin_bytes": int(kmin), "kmax_bytes": int(kmax), "pmax": pmax}}
    return Hardware(
        cable_rate_bps=net.rate_bps, cable_delay_ns=net.delay_ns, switch_latency_ns=net.latency_ns, mtu=net.mtu,
        pcie_rate_bps=net.pcie_bps, pcie_latency_ns=net.pcie_ns, ack_every=net.ack_every, timeout_ns=1e9,
        tx_buffer_bytes=net.fetched, switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64, ecn=ecn),
        nic={"cc": chosen, "lossless": [3, 4], "rx_buffer_bytes": 0},
    )  # fmt: skip


def measured(control: str, net: Net, senders: int, size: int = SIZE, **given: float) -> Outcome:
    with star(senders + 1, hardware(control, net, given)) as f:
        places = f.fabricd.request("sample", path=str(f.directory / "samples"), period_ns=1000)
        times = send(f, [(n, 0, size, 0) for n in range(1, senders + 1)])
        f.fabricd.request("sample_stop")
        longest = port(f, "sw0", 1)["priorities"]["queue_max_prio3_bytes"]
        depth = series.read(f.directory / "samples", places)["queue_depth"]
    rows = depth[(depth["node"] == "sw0") & (depth["port"] == 1) & (depth["time_ns"] < max(times))]
    changes = list(zip(rows["time_ns"], rows["bytes"], strict=True))
    return Outcome(sum(times) / senders, longest, mean(changes, max(times)))


def modelled(control: str, net: Net, senders: int, size: int = SIZE, **given: float) -> Outcome:
    p = values(control, net, given)
    model = Incast(net, size, [REFERENCES[control](net, p) for _ in range(senders)])  # type: ignore[call-arg, arg-type]
    times = model.run()
    return Outcome(sum(times) / senders, model.queue_max, mean(model.depth, max(times)))


@pytest.mark.parametrize("senders", [4, 16])
@pytest.mark.parametrize("control", REFERENCES)
def test_an_incast_takes_as_long_as_in_the_model(control: str, senders: int) -> None:
    net = NET if control in ("none", "hpcc", "timely", "swift") else replace(NET, ecn=STEP)
    size = SIZE if senders < 16 else SIZE // 4
    ours, theirs = measured(control, net, senders, size), modelled(control, net, senders, size)
    assert ours.mean_ns == pytest.approx(theirs.mean_ns, rel=0.05)
    assert ours.queue_max == pytest.approx(theirs.queue_max, rel=0.1)
    assert ours.queue_mean == pytest.approx(theirs.queue_mean, rel=0.15)


def test_without_a_control_a_window_bounds_what_is_under_way() -> None:
    window = 0.25 * NET.rate_bps / 8 * NET.base_rtt_ns * 1e-9
    ours, theirs = (of("none", NET, 1, 500_000, window=window) for of in (measured, modelled))
    assert ours.mean_ns == pytest.approx(theirs.mean_ns, rel=0.02)
    assert ours.mean_ns > 3.5 * measured("none", NET, 1, 500_000).mean_ns


def test_timely_does_not_depend_on_how_often_is_acknowledged() -> None:
    means = [measured("timely", replace(NET, ack_every=n), 4).mean_ns for n in (1, 4, 16)]
    assert max(means) < 1.05 * min(means), means


def test_hpcc_below_one_packet_a_round_trip_leaves_no_queue() -> None:
    """105 senders at 10 Gb/s: a packet each in every base round trip would stand in the queue for ever."""
    net, senders, size = replace(NET, rate_bps=10e9), 105, 60_000
    with star(senders + 1, hardware("hpcc", net, {})) as f:
        places = f.fabricd.request("sample", path=str(f.directory / "samples"), period_ns=10_000)
        times = send(f, [(n, 0, size, 0) for n in range(1, senders + 1)])
        f.fabricd.request("sample_stop")
        depth = series.read(f.directory / "samples", places)["queue_depth"]
    rows = depth[(depth["node"] == "sw0") & (depth["port"] == 1)]
    half = [
        (t, q) for t, q in zip(rows["time_ns"], rows["bytes"], strict=True) if max(times) / 2 < t < 0.9 * max(times)
    ]
    assert len(half) > 20
    assert sum(q for _, q in half) / len(half) < senders * net.mtu / 4
    assert min(q for _, q in half) < 5 * net.mtu


CLOS = """
name: clos
fabric: {topology: {clos: {leaves: 4, spines: 2, hosts_per_leaf: 4}}, cable: {rate: 100Gbps, delay: 1us}}
transport: {cc: dcqcn}
workload:
  - flows: [%s]
"""


def test_thirteen_to_one_over_a_clos_keeps_the_cable_busy(tmp_path: Path) -> None:
    flows = ", ".join(f"{{from: {n}, to: 0, size: 2MB}}" for n in range(1, 14))
    result = running.run(loads(CLOS % flows), tmp_path / "run")
    wire = 2_000_000 + -(-2_000_000 // 4096) * (HEADERS + GAP)
    assert 13 * wire * 8 / 100 > 0.75 * max(row["time_ns"] for row in result.results)
    assert not result.counters["drops"]
    control = json.loads((tmp_path / "run" / "congestion-control.json").read_text())["cc"]["dcqcn"]
    assert control["set"] == "hpcc" and control["ai"] == "20Mbps" and control["cnp_gap"] == "1us"
