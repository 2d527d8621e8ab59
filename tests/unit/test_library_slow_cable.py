"""A cable that is slower than the others keeps a library's rings up, wherever it lies; also where they go as arrays."""

from __future__ import annotations

import pytest

from testbed.experiment import loads
from testbed.predict.figure import FORMULA
from testbed.predict.predict import predict

TEXT = """
name: slow
fabric: {topology: {rail: {servers: 4, gpus: 8, spines: 1}}}
library: {name: nccl, env: {NCCL_ALGO: Ring, NCCL_PROTO: Simple}}
inject: [{fault: reduced_rate, on: "cable:CABLE", rate: 100Gbps}]
workload: [{collective: all_reduce, sizes: [1GiB]}]
"""


@pytest.mark.parametrize("cable", ["h0.0-rail0", "h2.3-rail3"])
def test_a_slow_cable_keeps_a_ring_up(cable: str) -> None:
    """Of what goes around, 2 (n - 1) / n of the vector, a NIC carries an eighth, in frames of 4178 bytes for 4096."""
    (figure,) = predict(loads(TEXT.replace("CABLE", cable))).figures
    least = 2 * 31 / 32 * 2**30 / 8 * 4178 / 4096 * 8 / 100  # ns
    assert figure.how == FORMULA
    assert least < figure.time_ns < 1.02 * least
