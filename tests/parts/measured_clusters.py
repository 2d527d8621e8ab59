"""The measured clusters that come along, line by line: each is held back, predicted and emulated by the others."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.calibrate.found import Told
from testbed.calibrate.held import Predicted
from testbed.calibrate.made import write
from testbed.calibrate.measured import series_of
from testbed.calibrate.work import Asked, work
from testbed.cluster.profile import Profile
from testbed.experiment import loads
from testbed.run.run import run


@dataclass(frozen=True)
class Cluster:
    """`topology` of so many nodes and GPUs; `splits`: what is held back, one after the other (`--hold`)."""

    log: str
    told: Told
    topology: str
    splits: Sequence[str]


H100 = Cluster(
    "experiments/clusters/h100-10-nodes.csv",
    Told("8x400Gbps", gpu="hopper", version="2.29.2"),
    "{{rail: {{servers: {nodes}, gpus: {gpus}, spines: 1}}}}",
    [f"{name},gpus={n}" for name in ("all_gather", "all_reduce", "send_recv") for n in (1, 8)],
)
GB10 = Cluster(
    "experiments/clusters/gb10-ring-of-4.csv",
    Told("1x200Gbps", gpu="blackwell", host="arm"),
    "{{star: {{hosts: {nodes}}}}}",
    ["size<64KiB", "size>=64KiB,size<1MiB", "size>=1MiB,size<64MiB", "size>=64MiB"],
)


def held_back(cluster: Cluster) -> Iterator[tuple[Profile, list[Predicted]]]:
    """Each split's points as the others predict them, and the profile that says so."""
    for split in cluster.splits:
        outcome = work(Asked([cluster.log], cluster.told, hold=(split,)))
        yield outcome.profile, outcome.held


def emulated(cluster: Cluster, profile: Profile, found: Iterable[Predicted], most: int) -> list[Predicted]:
    """The same points carried out by a fabric that has the profile; of all ranks' vectors up to `most` bytes."""
    of = {one.one.point: one for one in found if one.one.ranks * one.one.point.size_bytes <= most}
    made = []
    for series in series_of(one.one for one in of.values()):
        point = series[0].point
        times = _run(profile, cluster.topology.format(nodes=point.nodes, gpus=point.gpus), point.collective,
                     [one.point.size_bytes for one in series])  # fmt: skip
        made += [replace(of[one.point], time_ns=times[one.point.size_bytes]) for one in series]
    return made


def _run(profile: Profile, topology: str, collective: str, sizes: Sequence[int]) -> Mapping[int, float]:
    """Times by sizes.  AssertionError where a result is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        write(profile, Path(folder) / "held.yaml")
        what = f"{{collective: {collective}, sizes: {[f'{size}B' for size in sizes]}, iterations: 1, warmup: 0}}"
        text = f"name: held\nfabric: {{topology: {topology}}}\ncluster: held.yaml\nworkers: {{memory: 4GiB}}\n"
        text += f"workload: [{what}]\n"
        done = run(loads(text, "held", Path(folder)), Path(folder) / "run")
        assert not any(row["wrong"] for row in done.results)
        return {row["size_bytes"]: row["time_ns"] for row in done.results}
