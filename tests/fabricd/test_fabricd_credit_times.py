"""What a flow takes alone that waits for credit: fabricd against the closed form (docs/closed-form.md), to a packet."""

from __future__ import annotations

import pytest

from hardware import cc
from hardware.config import Hardware
from tests.parts.traffic_fabric import nic, send, star, switch
from workloads.credit.credit import AHEAD, DEMAND_BYTES, PULLS, SHORTEST, Credit
from workloads.times.messages import Costs, Path, sent_ns

RTT = 3800.0
SIZES = [4096, 100_000, 250_000, 700_000, 1_048_576, 5_000_000]
BY = {"rccc": AHEAD, "eqds": AHEAD, "ndp": PULLS, "homa": SHORTEST}
WAY = Path.uniform(1, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0)


def measured(control: str, values: dict[str, float], sizes: list[int]) -> list[float]:
    """Each by a queue pair of its own, one after the other."""
    hardware = Hardware(
        switch=switch(headroom=0, lossless=[]),
        switch_buffer_bytes=10**8,
        nic={**nic(control, rtt_ns=RTT, **values), "recovery": "selective_repeat", "lossless": []},
    )
    with star(len(sizes) + 1, hardware) as f:
        return send(f, [(k, 0, size, k * 1e6) for k, size in enumerate(sizes, 1)])


def expected(costs: Costs, sizes: list[int]) -> list[float]:
    return [sent_ns(size, WAY, costs) for size in sizes]


@pytest.mark.parametrize(
    ("control", "values"),
    [
        ("rccc", {}), ("eqds", {}), ("ndp", {}), ("homa", {}),
        ("eqds", {"initial": 50_000, "pull_share": 0.7}), ("eqds", {"grant_packets": 8}),
        ("homa", {"initial": 100_000, "pull_share": 0.5}),
    ],
)  # fmt: skip
def test_a_flow_alone(control: str, values: dict[str, float]) -> None:
    """Beside one without credit, which starts and ends alike."""
    of = cc.CONTROLS[control].values(cc.Setting(400e9, RTT, 4096), values)
    credit = Credit(of["initial"], of["window"], int(of["grant_packets"]), of["pull_share"], BY[control])
    sizes = SIZES[:-1] if control in ("ndp", "homa") else SIZES  # of these each message begins anew
    later = [a - b for a, b in zip(measured(control, values, sizes), measured("none", {}, sizes), strict=True)]
    with_credit = expected(Costs(behind_bytes=DEMAND_BYTES, credit=credit), sizes)
    packet_ns = (4096 + 82 + DEMAND_BYTES) / 50 / of["pull_share"]
    assert later == pytest.approx(
        [a - b for a, b in zip(with_credit, expected(Costs(), sizes), strict=True)], abs=packet_ns
    )


def test_a_window_that_is_too_small_is_the_rate() -> None:
    """No more than that is granted and has not come; as much again is granted ahead."""
    for control, twice in (("eqds", 2), ("rccc", 2)):
        took = measured(control, {"window": 65536, "initial": 65536}, SIZES[-1:])[0]
        loop_ns = 500 + 64 + 2 * 83.9 + 3 * 500 + 2 * 98 / 50 + 3 * 500  # fetched, there, and a credit back
        assert took == pytest.approx(5_000_000 / (twice * 65536) * loop_ns, rel=0.05)
