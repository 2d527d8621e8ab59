"""Flows over a fabric of four hosts under DCQCN, without any program: what tests/bench_unused.py counts.

`python -P THIS BYTES FABRICD`, with the tree of that fabricd on PYTHONPATH: so nothing is used here that trees do not
have that are older than RDMA programs. Prints how many frames went through the switch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, bare_fabric
from tests.parts.traffic_fabric import nic, send, switch

HOSTS = 4
MARKS = {"3": {"kmin_bytes": 50_000, "kmax_bytes": 200_000, "pmax": 0.01}}


def undivided(config: dict[str, Any]) -> None:
    for key in ("partitions", "partition_order"):
        config["clock"].pop(key, None)


def frame_hops(nbytes: int, binary: Path) -> int:
    """A ring, and two hosts more that send to the first one: it is paused, and its senders are cut."""
    hardware = Hardware(switch=switch(headroom=200_000, ecn=MARKS), nic=nic("dcqcn"))
    flows = [(rank, (rank + 1) % HOSTS, nbytes, 0.0) for rank in range(HOSTS)]
    with bare_fabric("star", {"hosts": HOSTS}, hardware, change=undivided, binary=binary, sample=FAST) as f:
        f.fabricd.request("start", ranks=[])
        send(f, [*flows, (1, 0, nbytes, 0.0), (2, 0, nbytes, 0.0)])
        counters = f.counters()
    assert sum(qp["cnps"] for qp in counters["qps"]) and not counters["drops"]
    hops: int = counters["fidelity"]["frame_hops"]
    return hops


if __name__ == "__main__":
    print(frame_hops(int(sys.argv[1]), Path(sys.argv[2])))
