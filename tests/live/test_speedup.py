"""The network against the ring at 64 MiB: 2(N - 1)/N, less what the headers of smaller packets take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.experiment import loads
from testbed.run import run as running
from workloads.times.in_network import block_bytes
from workloads.times.messages import wire_bytes

SIZE = 64 << 20
MTU = 4096


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ranks", "elements"), [(2, 256), (4, 1024)])
def test_speed_up_is_what_the_bytes_say(ranks: int, elements: int, tmp_path: Path) -> None:
    """Against a ring in pieces, which keeps its cables busy while it adds up."""
    steps = [
        {"collective": "all_reduce", "algorithm": "ring", "chunk": "256KiB", "sizes": [f"{SIZE}B"]},
        {"collective": "all_reduce", "algorithm": "in_network", "sizes": [f"{SIZE}B"]},
    ]
    switch = f"{{accelerator: {{elements: {elements}}}}}"
    workload = "\n".join(f"  - {json.dumps(step)}" for step in steps)
    text = (
        f"name: speedup\nfabric: {{topology: {{star: {{hosts: {ranks}}}}}, switch: {switch}}}\nworkload:\n{workload}\n"
    )
    ring, network = running.run(loads(text), tmp_path / "run").results
    payload_of_ring, payload_of_network = MTU / wire_bytes(MTU), 4 * elements / block_bytes(elements)
    expected = 2 * (ranks - 1) / ranks * payload_of_network / payload_of_ring
    assert ring["wrong"] == network["wrong"] == 0 and not network["fallback"]
    assert ring["time_ns"] / network["time_ns"] == pytest.approx(expected, rel=0.03)
