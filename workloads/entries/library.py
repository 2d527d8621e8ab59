"""How a collective library does collectives (workloads/library/): only its choice takes these, with all they need.

They stand in no table of algorithms: an experiment's `library` names the library, and the step none of these.
"""

from __future__ import annotations

from typing import Any

from workloads.base.entry import Algorithm, Collective
from workloads.entries import collectives as c


def _by(collective: Collective, name: str, does: str, where: str, summary: str, *extra: str) -> Algorithm:
    part = f"workloads.collectives.{collective.part}"
    more: dict[str, Any] = {"ops": collective.ops, "by_library": True}
    timed = f"{does}_pat" if name == "pat" else does
    schedule, time = f"workloads.library.schedules.{where}:{does}", f"workloads.library.schedules.predicted:{timed}_ns"
    return Algorithm(collective, f"nccl_{name}", summary, part, time, schedule, **more, extra=extra)


BY_LIBRARY = (
    _by(c.ALL_REDUCE, "ring", "all_reduce_ring", "by_rings", "a ring on each channel"),
    _by(c.ALL_REDUCE, "tree", "all_reduce_tree", "by_trees", "two trees, half of the channels each"),
    _by(c.ALL_REDUCE, "nvls_tree", "all_reduce_nvls_tree", "by_trees", "two trees among servers, NVLS inside"),
    _by(c.REDUCE_SCATTER, "ring", "reduce_scatter_ring", "by_rings", "a ring on each channel"),
    _by(c.ALL_GATHER, "ring", "all_gather_ring", "by_rings", "a ring on each channel"),
    _by(c.REDUCE_SCATTER, "pat", "reduce_scatter", "by_pat", "a binomial tree for each chunk"),
    _by(c.ALL_GATHER, "pat", "all_gather", "by_pat", "a binomial tree for each chunk"),
    _by(c.BROADCAST, "ring", "broadcast", "by_chains", "along the ring of each channel"),
    _by(c.REDUCE, "ring", "reduce", "by_chains", "along the ring of each channel"),
    _by(c.ALL_TO_ALL, "p2p", "all_to_all", "by_peers", "messages on channels to each peer, along rails", "parts"),
    _by(c.SEND_RECV, "p2p", "send_recv", "by_peers", "a message to the next rank, on channels"),
)
