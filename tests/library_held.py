"""What NCCL's mechanisms with priors alone say of measured times: `python -m tests.library_held [FILE.csv]`.

Rows of 10 servers of 8 H100 with NCCL 2.29.2, least of out of place and in place: facts from github.com/
xxrjun/nccl-tests-cluster, commit 455de4f8dee2 (Apache-2.0).  A file has rows of the same columns.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from workloads.library.choice import Choice, choose
from workloads.library.costs import Costs
from workloads.library.servers import Servers
from workloads.library.times import time_ns

ROWS = """collective,nodes,gpus_per_node,size_bytes,time_us
all_gather,10,1,33554400,687.61
all_gather,10,1,1073741760,20503.4
all_gather,10,1,17179869120,317424.0
all_reduce,10,1,33554432,1405.25
all_reduce,10,1,1073741824,39744.4
all_reduce,10,1,17179869184,632480.0
all_gather,10,8,134217600,840.85
all_gather,10,8,1073741760,4001.42
all_gather,10,8,4294967040,13481.2
all_gather,10,8,17179869120,52314.1
all_reduce,10,8,33554432,798.52
all_reduce,10,8,268435456,1888.93
all_reduce,10,8,2147483648,11649.6
all_reduce,10,8,4294967296,26846.9
all_reduce,10,8,17179869184,105146.0
sendrecv,10,8,1073741824,70465.3
"""


class Held(NamedTuple):
    """A row held against the model: `off` is its relative error."""

    row: Mapping[str, str]
    choice: Choice
    us: float
    off: float


def held(rows: Iterable[Mapping[str, str]], costs: Costs | None = None, version: str = "2.29.2") -> Iterator[Held]:
    for row in rows:
        collective = {"sendrecv": "send_recv"}.get(row["collective"], row["collective"])
        gpus, size = int(row["gpus_per_node"]), int(row["size_bytes"])
        servers = Servers(int(row["nodes"]), gpus, gpus, version=version)
        choice = choose(collective, size, servers)
        us = float(time_ns(collective, size, servers, costs or Costs.of(), choice)) / 1e3
        yield Held(row, choice, us, us / float(row["time_us"]) - 1)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def main(argv: Sequence[str]) -> None:
    for one in held(rows_of(Path(argv[0]).read_text() if argv else ROWS)):
        way = f"{one.choice.algorithm}/{one.choice.protocol}/{one.choice.channels}"
        where = "{collective:<15} {nodes:>4} x {gpus_per_node} {size_bytes:>12}".format(**one.row)
        print(f"{where} {way:<20} measured {float(one.row['time_us']):>10.2f} us, here {one.us:>10.2f}: {one.off:+.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
