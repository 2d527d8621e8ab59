"""The network against the ring for large vectors: 2(N - 1)/N, less what the headers of smaller packets take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.experiment import loads
from testbed.run import run as running
from topologies.graph.frames import wire_bytes
from workloads.times.switches.in_network import block_bytes

SIZES = (8 << 20, 16 << 20)  # what both take to start is in neither difference
MTU = 4096


@pytest.mark.parametrize(("ranks", "elements"), [(2, 256), (4, 1024)])
def test_speed_up_is_what_the_bytes_say(ranks: int, elements: int, tmp_path: Path) -> None:
    """Against a ring in pieces, which keeps its cables busy while it adds up."""
    sizes = [f"{size}B" for size in SIZES]
    steps = [
        {"collective": "all_reduce", "algorithm": "ring", "chunk": "256KiB", "sizes": sizes},
        {"collective": "all_reduce", "algorithm": "in_network", "sizes": sizes},
    ]
    switch = f"{{accelerator: {{elements: {elements}}}}}"
    workload = "\n".join(f"  - {json.dumps(step)}" for step in steps)
    text = (
        f"name: speedup\nfabric: {{topology: {{star: {{hosts: {ranks}}}}}, switch: {switch}}}\nworkload:\n{workload}\n"
    )
    rows = running.run(loads(text), tmp_path / "run").results
    assert [(row["wrong"], row["fallback"]) for row in rows] == [(0, None)] * 4
    ring_ns, network_ns = (rows[k + 1]["time_ns"] - rows[k]["time_ns"] for k in (0, 2))
    payload_of_ring, payload_of_network = MTU / wire_bytes(MTU), 4 * elements / block_bytes(elements)
    expected = 2 * (ranks - 1) / ranks * payload_of_network / payload_of_ring
    assert ring_ns / network_ns == pytest.approx(expected, rel=0.03)
