"""Sparse collectives on the real fabric: right everywhere, and counted by the NICs as said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from results import load
from testbed.experiment import loads
from testbed.run.run import run
from workloads.sparse.closed_form import omnireduce_ns
from workloads.times.messages import Costs
from workloads.times.messages import Path as Way

MIB = 1 << 20

ACK = 14 + 20 + 8 + 12 + 4 + 4  # Ethernet, IPv4, UDP, BTH, AETH, ICRC


def ran(folder: Path, hosts: int, steps: list[str], more: str = "") -> tuple[Path, dict[str, Any]]:
    lines = "\n".join(f"  - {{collective: all_reduce, {step}}}" for step in steps)
    text = f"name: sparse\nfabric:\n  topology: {{star: {{hosts: {hosts}}}}}\n{more}\nworkload:\n{lines}\n"
    result = run(loads(text), folder / "run")
    summary = json.loads((Path(result.folder) / "summary.json").read_text())
    assert {row["wrong"] for row in summary["results"]} == {0}
    return Path(result.folder), summary


def test_every_number_of_workers_size_and_density(tmp_path: Path) -> None:
    steps = []
    for n in range(2, 9):
        density = [1, 0.5, 0.25, 0.1, 0.05, 0.01, 0][n - 2]
        steps.append(
            f"algorithm: omnireduce, sizes: [4B, 1020B, 4100B, 1MiB], density: {density}, ranks: {list(range(n))}"
        )
    steps += [f"algorithm: omnireduce, sizes: [2MiB], density: {d}, op: avg" for d in (1, 0.01)]
    _, summary = ran(tmp_path, 8, steps)
    assert summary["fidelity"]["verdict"] == "exact" and summary["counters"]["drops"] == {}
    assert len(summary["results"]) == 7 * 4 + 2


@pytest.mark.parametrize("density", [1, 0.1, 0.01])
def test_nics_count_what_is_stated(tmp_path: Path, density: float) -> None:
    """One aggregator of its own: a worker's NIC sends its messages in one packet each, and acknowledges as many results
    as come in; its messages are acknowledged likewise."""
    step = f"algorithm: omnireduce, sizes: [1MiB], density: {density}, block: 128, aggregators: 1"
    folder, summary = ran(tmp_path, 5, [step])
    (row,) = summary["results"]
    nics = load(folder).nics.set_index("rank")
    ranks = load(folder).ranks.set_index("rank")
    blocks = MIB // 512
    per_message = 24 + 14 + 20 + 8 + 12 + 16 + 4 + 4
    for rank in range(4):
        data = round(density * blocks) * 512
        messages = (ranks.tx_bytes[rank] - data) // 24
        results = nics.rx_vport_rdma_unicast_packets[rank] - messages
        assert nics.tx_vport_rdma_unicast_packets[rank] == messages + results
        sent = data + messages * per_message + results * ACK
        assert nics.tx_vport_rdma_unicast_bytes[rank] == sent, (rank, messages)
    assert row["tx_bytes"] == ranks.tx_bytes.mean() and row["rx_bytes"] == ranks.rx_bytes.mean()


@pytest.mark.parametrize("rate", ["100Gbps", "400Gbps"])
def test_dense_omnireduce_takes_what_the_formula_says(tmp_path: Path, rate: str) -> None:
    """At 100 Gb/s the link decides, at 400 the host that posts messages of 4 KiB."""
    steps = [f"algorithm: omnireduce, sizes: [4MiB], ranks: {list(range(n))}" for n in (2, 4, 8)]
    _, summary = ran(tmp_path, 8, steps, f"  cable: {{rate: {rate}}}")
    way = Way.uniform(1, rate_bps=float(rate[:3]) * 1e9, delay_ns=500.0, latency_ns=500.0)
    for n, row in zip((2, 4, 8), summary["results"], strict=True):
        formula = omnireduce_ns(n, 4 * MIB, way, Costs(reduce_bps=800e9))
        assert row["time_ns"] == pytest.approx(formula, rel=0.02), n


def test_loss_duplication_and_reordering_on_every_cable(tmp_path: Path) -> None:
    """The transport repairs them; the same seed gives the same figures, to the bit."""
    faults = "\n".join(
        f"  - {{fault: {fault}, on: all, rate: 0.01}}" for fault in ("loss", "duplication", "reordering")
    )
    more = f"  nic: {{timeout: 100us}}\ntransport: {{recovery: selective_repeat}}\ninject:\n{faults}"
    steps = [f"algorithm: omnireduce, sizes: [4B, 1MiB], density: {d}, aggregators: {a}"
             for d, a in ((1, "null"), (0.1, "null"), (0.2, 1))]  # fmt: skip
    _, first = ran(tmp_path / "a", 4, steps, more)
    _, second = ran(tmp_path / "b", 4, steps, more)
    assert first["counters"]["retransmitted"] > 20 and first["metrics_sha256"] == second["metrics_sha256"]
