"""One case of the grid of congestion controls: some senders to one receiver over a chain of switches, all by default.

Senders sit at the first switch, the receiver at the last one, so that the queue is at the first. If they are `far`,
each has a chain of its own, and the queue is at the last switch. All but the last sender begin at once; the last one
joins when a quarter of the time is over. Everything that the case does not name is what a default file gives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hardware import bounds
from hardware.cc import Setting
from results.frames import series
from testbed.experiment import Experiment, loads
from testbed.experiment.basis import Basis
from testbed.plan.hardware import hardware_of
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import drops, port

if TYPE_CHECKING:
    import pandas as pd

FILE = """
name: case
fabric:
  topology: {custom: {nodes: {%(nodes)s}, cables: [%(cables)s]}}
  cable: {rate: %(gbps)gGbps, delay: %(delay_us)gus}
  switch: {buffer: %(buffer)dB, %(switch)s}
  nic: {ack_every: %(ack_every)d, pcie: {rate: %(pcie_gbps)gGbps}}
transport: {cc: %(control)s, recovery: %(recovery)s}
"""
LOSSY = "lossless: [], pfc: false"
SHARED = 32_000_000
"""Of a switch's buffer: as by default, where cables are short."""


@dataclass(frozen=True)
class Case:
    control: str
    gbps: float = 400
    delay_us: float = 0.5
    switches: int = 1
    senders: int = 8
    ack_every: int = 16
    recovery: str = "go_back_n"
    lossy: bool = False
    far: bool = False

    def __str__(self) -> str:
        return " ".join(str(getattr(self, f.name)) for f in fields(self))

    @property
    def experiment(self) -> Experiment:
        return _experiment(self)

    @property
    def setting(self) -> Setting:
        return Basis(self.experiment).setting

    @property
    def bdp_bytes(self) -> float:
        return self.setting.bdp_bytes


def _aside(case: Case) -> int:
    """Headroom and reserve of a port and class."""
    return bounds.headroom_bytes(case.gbps * 1e9, case.delay_us * 1000, 4096, 9) + 4000


@lru_cache(8)
def _experiment(case: Case) -> Experiment:
    chains = [[f"s{i}" for i in range(case.switches)]]
    if case.far:
        chains = [[f"c{n}s{i}" for i in range(case.switches - 1)] + ["s0"] for n in range(case.senders)]
    hosts = [f"h{i}" for i in range(case.senders + 1)]
    cables = [f"{a}-{b}" for chain in chains for a, b in itertools.pairwise(chain)]
    cables += [f"h0-{chains[0][-1]}"]
    cables += [f"{host}-{chains[n % len(chains)][0]}" for n, host in enumerate(hosts[1:])]
    switches = dict.fromkeys(itertools.chain(*chains))
    nodes = [f"{name}: switch" for name in switches] + [f"{name}: host" for name in hosts]
    said = {f.name: getattr(case, f.name) for f in fields(case)}
    return loads(
        FILE
        % {
            **said,
            "nodes": ", ".join(nodes),
            "cables": ", ".join(cables),
            "pcie_gbps": 1.28 * case.gbps,
            "switch": LOSSY if case.lossy else "",
            "buffer": SHARED + (0 if case.lossy else 2 * (case.senders + 2) * _aside(case)),
        }
    )


@dataclass(frozen=True)
class Outcome:
    """Of the second half of the time, but for `longest_queue`: that is of all of it."""

    used: float  # of the line
    least: float  # of a sender's fair share of what was used
    queue: float  # mean, bytes
    half_queue: int  # longest
    longest_queue: int
    timeouts: int
    lost: int


def measure(case: Case, time_ns: float) -> Outcome:
    """Runs a case for so long."""
    topology = case.experiment.fabric.topology
    size = int(case.gbps / 8 * time_ns) + 1_000_000
    starts = [0.0] * (case.senders - 1) + [time_ns / 4 if case.senders > 1 else 0.0]
    flows = [[n, 0, size, start] for n, start in enumerate(starts, 1)]
    with bare_fabric(topology.kind, topology.params, hardware_of(case.experiment), binary=plain(), sample=FAST) as f:
        f.fabricd.request("start", ranks=[])
        out = f.port_to("s0", "s1" if case.switches > 1 and not case.far else "h0")
        places = f.fabricd.request("sample", path=str(f.directory / "samples"), period_ns=max(time_ns / 4000, 100))
        _until(f, 1)  # held before there is anything to do: nothing runs ahead
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        _until(f, time_ns / 2)
        before, carried = _sent(f), _wire_bytes(port(f, "s0", out))
        _until(f, time_ns)
        after, all_over = _sent(f), f.counters()
        bottleneck = port(f, "s0", out)
        f.fabricd.request("sample_stop")
        depth = series.read(f.directory / "samples", places)["queue_depth"]
        lost = sum(drops(f).values())
    sent = [after[n] - before.get(n, 0) for n in range(1, case.senders + 1)]
    queue = list(_half(depth[(depth["node"] == "s0") & (depth["port"] == out)], time_ns))
    return Outcome(
        used=(_wire_bytes(bottleneck) - carried) * 8 / (case.gbps * time_ns / 2),
        least=min(sent) * case.senders / max(sum(sent), 1),
        queue=sum(q * t for q, t in queue) / (time_ns / 2),
        half_queue=max((q for q, _ in queue), default=0),
        longest_queue=bottleneck["priorities"]["queue_max_prio3_bytes"],
        timeouts=sum(nic["local_ack_timeout_err"] for nic in all_over["nics"]),
        lost=lost,
    )


def incast_queue_ns(experiment: Experiment, senders: Sequence[int], time_ns: float) -> float:
    """The queue in front of rank 0 while these send to it: its mean in the second half, in time of the cable."""
    topology, graph, rate = experiment.fabric.topology, experiment.build_fabric(), experiment.fabric.cable.rate
    cable = graph.cable_at[graph.nics[0].name, 1]
    out = cable.b if cable.a.node == graph.nics[0].name else cable.a
    with bare_fabric(topology.kind, topology.params, hardware_of(experiment), binary=plain(), sample=FAST) as f:
        f.fabricd.request("start", ranks=[])
        places = f.fabricd.request("sample", path=str(f.directory / "samples"), period_ns=time_ns / 4000)
        _until(f, 1)
        size = int(rate / 8e9 * time_ns)
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[n, 0, size, 0] for n in senders])
        _until(f, time_ns)
        f.fabricd.request("sample_stop")
        depth = series.read(f.directory / "samples", places)["queue_depth"]
    queue = _half(depth[(depth["node"] == out.node) & (depth["port"] == out.port)], time_ns)
    return sum(q * t for q, t in queue) / (time_ns / 2) * 8e9 / rate


def _until(f: BareFabric, time_ns: float) -> None:
    f.fabricd.request("run_until", time_ns=time_ns)
    f.events("held", 3600.0)


def _wire_bytes(port: Mapping[str, Any]) -> int:
    """With preambles and gaps."""
    return int(port["tx_bytes"] + 20 * port["tx_frames"])


def _sent(f: BareFabric) -> dict[int, int]:
    """Payload that each rank's queue pairs have put on the wire."""
    found: dict[int, int] = {}
    for qp in f.counters()["qps"]:
        found[qp["rank"]] = found.get(qp["rank"], 0) + qp["tx_bytes"]
    return found


def _half(depth: pd.DataFrame, time_ns: float) -> Iterator[tuple[int, float]]:
    """Lengths of a queue in the second half, each with how long it lasted."""
    half = time_ns / 2
    changes = list(zip(depth["time_ns"], depth["bytes"], strict=True))
    for (t, q), (end, _) in itertools.pairwise([*changes, (time_ns, 0)]):
        if end > half:
            yield q, end - max(t, half)
