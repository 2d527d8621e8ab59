"""Only large fabrics are divided where a file leaves it open; what it says is what fabricd is told."""

from __future__ import annotations

import pytest

from testbed.experiment import loads
from testbed.fabric.bringup import clock_of
from testbed.plan.hardware import hardware_of

FILE = """
name: x
clock: CLOCK
fabric: {topology: {clos: {leaves: LEAVES, spines: 1, hosts_per_leaf: 32}}}
workload: [{collective: all_reduce, sizes: [1KiB]}]
"""


@pytest.mark.parametrize(
    ("clock", "leaves", "partitions"),
    [
        ("virtual", 31, None),
        ("virtual", 32, 8),
        ("virtual", 36, 9),
        ("{virtual: {}}", 32, 8),
        ("{virtual: {partitions: auto}}", 32, 8),
        ("{virtual: {partitions: 1}}", 32, None),
        ("{virtual: {partitions: 64}}", 2, 64),
    ],
)
def test_partitions_are_of_128_nics_from_1024_on(clock: str, leaves: int, partitions: int | None) -> None:
    experiment = loads(FILE.replace("CLOCK", clock).replace("LEAVES", str(leaves)))
    told = clock_of(experiment, experiment.build_fabric(), hardware_of(experiment))
    assert told == {"mode": "virtual", **({"partitions": partitions} if partitions else {})}
    again = loads(FILE.replace("CLOCK", str(experiment.clock.model_dump())).replace("LEAVES", str(leaves)))
    assert again.clock == experiment.clock
