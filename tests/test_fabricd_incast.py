"""Incasts in fabricd against incast_model: the same fabric, frame by frame, controls written from their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
import reference_controls
from incast_model import Control, Incast, Net
from traffic_fabric import port, send, star, switch

from hardware import cc
from hardware.config import Hardware
from results import series

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
}


@dataclass(frozen=True)
class Outcome:
    """Mean completion, the longest queue and the mean one while there is traffic."""

    mean_ns: float
    queue_max: float
    queue_mean: float


def mean(changes: list[tuple[float, int]], end: float) -> float:
    """Of a queue over time, from its changes."""
    ends = [t for t, _ in changes[1:]] + [end]
    return sum(q * (b - a) for (a, q), b in zip(changes, ends, strict=True)) / end


def values(control: str, net: Net, given: Mapping[str, float]) -> dict[str, float]:
    return cc.CONTROLS[control].values(cc.Setting(net.rate_bps, net.base_rtt_ns, net.mtu), given)


def hardware(control: str, net: Net, given: Mapping[str, float]) -> Hardware:
    kmin, kmax, pmax = net.ecn
    ecn = {"3": {"kmin_bytes": int(kmin), "kmax_bytes": int(kmax), "pmax": pmax}}
    return Hardware(
        cable_rate_bps=net.rate_bps, cable_delay_ns=net.delay_ns, switch_latency_ns=net.latency_ns, mtu=net.mtu,
        pcie_rate_bps=net.pcie_bps, pcie_latency_ns=net.pcie_ns, ack_every=net.ack_every, timeout_ns=1e9,
        tx_buffer_bytes=net.fetched, switch_buffer_bytes=10**9,
        switch=switch(headroom=0, lossless=[], alpha=64, ecn=ecn),
        nic={"cc": cc.fabricd_cc(control, values(control, net, given)), "lossless": [3, 4], "rx_buffer_bytes": 0},
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
    net = replace(NET, ecn=STEP) if control in ("dctcp", "nscc") else NET
    ours, theirs = measured(control, net, senders), modelled(control, net, senders)
    assert ours.mean_ns == pytest.approx(theirs.mean_ns, rel=0.05)
    assert ours.queue_max == pytest.approx(theirs.queue_max, rel=0.1)
    assert ours.queue_mean == pytest.approx(theirs.queue_mean, rel=0.15)
