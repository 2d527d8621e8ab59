"""What runs measure, from container to table, against arithmetic (docs/closed-form.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parts.measured_run import measured
from topologies.graph.frames import wire_bytes
from workloads.times import messages as closed_form
from workloads.times.messages import Costs
from workloads.times.messages import Path as Way

MIB = 1 << 20
PARAMETERS = {"rate_bps": 400e9, "delay_ns": 500.0, "latency_ns": 500.0}
COSTS = Costs(reduce_bps=800e9)


def flow(source: int, target: int, size: int) -> str:
    return f"{{flows: [{{from: {source}, to: {target}, size: {size}B}}]}}"


def ring_all_reduce_ns(ranks: int, size: int, way: Way) -> float:
    """2 (n - 1) equal hops, a post and a message each, half of them with a reduction; then the last acknowledgement."""
    chunk = -(-size // ranks)
    acks = closed_form.acks_ns(chunk, way, COSTS)
    message, acknowledged = (f(chunk, way, COSTS) + acks for f in (closed_form.received_ns, closed_form.sent_ns))
    hops = 2 * (ranks - 1) * (COSTS.post_ns + message) + (ranks - 1) * COSTS.reduce_ns(chunk)
    return hops + max(acknowledged - message, 0.0)


@pytest.mark.parametrize(
    ("topology", "ends"),
    [
        ("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}", [(0, 1, 1), (0, 2, 3)]),
        ("{ring: {nodes: 4}}", [(0, 1, 2), (3, 0, 2)]),
    ],
)
def test_flows_over_one_two_and_three_switches(tmp_path: Path, topology: str, ends: list[tuple[int, int, int]]) -> None:
    sizes = [1, 64, 4096, 4097, 5 * 4096, 8 * MIB]
    cases = [(source, target, switches, size) for source, target, switches in ends for size in sizes]
    rows = measured(tmp_path, topology, [flow(source, target, size) for source, target, _, size in cases])
    for (_, _, switches, size), row in zip(cases, rows, strict=True):
        way = Way.uniform(switches, **PARAMETERS)
        within = switches if size <= 4096 else 0.001 * row["time_ns"]  # one packet: 1 ns per hop
        assert row["time_ns"] == pytest.approx(closed_form.flow_ns(size, way, COSTS), abs=within)


def test_a_long_flow_reaches_the_rate_that_headers_leave(tmp_path: Path) -> None:
    """Payload over wire bytes of a full packet, within 0.01 %: what a flow takes to start, a longer one takes too."""
    short, long = measured(tmp_path, "{star: {hosts: 2}}", [flow(1, 0, size * MIB) for size in (8, 40)])
    limit = 400e9 * COSTS.mtu / wire_bytes(COSTS.mtu)
    assert limit == pytest.approx(400e9 * 4096 / 4178)
    more_ns = long["time_ns"] - short["time_ns"]
    assert 32 * MIB * 8 / (more_ns * 1e-9) == pytest.approx(limit, rel=0.0001)


def test_ring_all_reduce_takes_what_the_formula_says(tmp_path: Path) -> None:
    cases = [(n, MIB) for n in (2, 3, 4, 5, 7, 8, 12, 16)] + [(3, 16 * MIB), (8, 4 * MIB), (2, 16 * MIB)]
    steps = [
        f"{{collective: all_reduce, algorithm: ring, sizes: [{size}B], ranks: {list(range(n))}}}" for n, size in cases
    ]
    rows = measured(tmp_path, "{star: {hosts: 16}}", steps)
    way = Way.uniform(1, **PARAMETERS)
    off = {}
    for (n, size), row in zip(cases, rows, strict=True):
        formula = ring_all_reduce_ns(n, size, way)
        off[n, size // MIB] = row["time_ns"] / formula - 1
        assert row["busbw_Bps"] == pytest.approx(size / row["time_ns"] * 1e9 * 2 * (n - 1) / n)
    assert max(map(abs, off.values())) < 0.01, off


def test_cables_of_their_own_and_nics_with_ports_of_their_own(tmp_path: Path) -> None:
    """Every cable's rate and delay, and one cable between neighbours in a direct network, from the file alone."""
    fast, slow, across = ("400Gbps", 50.0), ("100Gbps", 2000.0), ("200Gbps", 500.0)
    told = (
        "{nodes: {a: host, b: host, c: host, s: switch, t: switch}, cables: [a-s, b-s, {between: c-t, rate: 100Gbps, "
    )
    told += "delay: 2us}, {between: s-t, rate: 200Gbps}]}"
    rates = {"400Gbps": 400e9, "200Gbps": 200e9, "100Gbps": 100e9}

    def way(*cables: tuple[str, float]) -> Way:
        links = tuple(closed_form.Link(rates[rate], delay) for rate, delay in cables)
        return Way(links, (500.0,) * (len(links) - 1))

    cases = [(0, 1, way(fast, fast)), (0, 2, way(fast, across, slow)), (2, 1, way(slow, across, fast))]
    topology = f"{{custom: {told}}}, host_cable: {{delay: 50ns}}"
    rows = measured(tmp_path / "custom", topology, [flow(a, b, size) for a, b, _ in cases for size in (4, MIB)])
    expected = [closed_form.flow_ns(size, path, COSTS) for _, _, path in cases for size in (4, MIB)]
    assert [row["time_ns"] for row in rows] == pytest.approx(expected, rel=0.001)
    inside, cable = closed_form.Link(4 * 400e9, 0.0), closed_form.Link(400e9, 500.0)
    paths = [Way((inside, *(cable,) * hops, inside), (100.0,) * (hops + 1)) for hops in (1, 2)]
    rows = measured(tmp_path / "direct", "{torus: {dims: [3, 3], direct: true}}", [flow(0, 1, 4), flow(0, 4, 4)])
    assert [row["time_ns"] for row in rows] == pytest.approx([closed_form.flow_ns(4, p, COSTS) for p in paths], abs=3)
