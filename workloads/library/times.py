"""What a collective should take as the library carries it out.

Rings as arrays over ranks and channels (rings.py), trees station by station (trees.py), the rest by its slowest stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from workloads.base.entry import NoModel
from workloads.collectives.pat import rounds as pat_rounds
from workloads.library.choice import Choice
from workloads.library.costs import STREAMED, Costs, Protocol
from workloads.library.peers import chunk_of, message_bytes, under_way
from workloads.library.pieces import (
    channels_worth,
    nvls_chunk,
    nvls_tree_chunk,
    pat_chunk,
    ring_cut,
    slot_bytes,
    tree_cut,
)
from workloads.library.pipelines import pipeline_ns
from workloads.library.rings import State, ring_ns
from workloads.library.servers import Servers
from workloads.library.settings import Settings
from workloads.library.trees import Between, Inside, tree_ns


@dataclass(frozen=True)
class _Asked:
    """What is asked for."""

    collective: str
    size: int
    servers: Servers
    costs: Costs
    choice: Choice
    settings: Settings

    @property
    def its(self) -> Protocol:
        return Protocol.of(self.costs, self.choice.protocol)

    @property
    def channels(self) -> int:
        """That get something."""
        ranks, choice = self.servers.ranks, self.choice
        return channels_worth(self.collective, self.size, ranks, choice.protocol, choice.channels)

    def of_a_nic(self, channels: int) -> int:
        return max(1, channels // self.servers.nics)

    def cost(self, name: str) -> Any:
        """A row, of all cases."""
        return np.asarray(self.costs[name], dtype=float).reshape(-1)


def time_ns(
    collective: str, size_bytes: int, servers: Servers, costs: Costs, choice: Choice, settings: Settings | None = None
) -> Any:
    """Of `size_bytes` in nccl-tests' sense: a number, or as many as the costs have cases.  Raises NoModel."""
    asked = _Asked(collective, size_bytes, servers, costs, choice, settings or Settings())
    if choice.algorithm not in _TIMES or servers.ranks < 2:
        raise NoModel(f"the library's {choice.algorithm} of {collective} has no model", f"of {', '.join(_TIMES)}")
    found = np.broadcast_to(_TIMES[choice.algorithm](asked), (max(1, costs.cases),))
    return found if costs.cases else float(found[0])


def _ring(asked: _Asked) -> Any:
    if asked.collective in ("broadcast", "reduce"):
        return _chain(asked)
    servers, settings, channels = asked.servers, asked.settings, asked.channels
    share = ceil(asked.size / channels)
    lanes = asked.of_a_nic(channels) if servers.nodes > 1 else 1
    pxn = settings.pxn and not servers.found.crossing
    state = State(asked.its, servers.gpus, servers.nodes, lanes, channels, pxn)
    return ring_ns(state, asked.collective, share, servers.ranks, ring_cut(asked.choice.protocol, settings))


def _chain(asked: _Asked) -> Any:
    """A broadcast or a reduction goes along the ring, slot by slot."""
    its, servers, channels = asked.its, asked.servers, asked.channels
    slot = slot_bytes(asked.choice.protocol, asked.settings)
    share = ceil(asked.size / channels)
    pieces = max(1, ceil(share / slot))
    nbytes = ceil(share / pieces)
    work = its.slice + nbytes * np.maximum(its.byte, its.link_byte * channels)
    net = asked.of_a_nic(channels) * (its.message + nbytes * its.net_byte)
    inside, between = (work, its.nvlink), (work, net + its.net)
    far = servers.nodes if 1 < servers.nodes < servers.ranks and channels > 1 else servers.nodes - 1
    stages = [inside] * (servers.ranks - 1 - far) + [between] * far  # a ring comes back to the root's server
    slowest = [(net, 0.0 * net - net)] if servers.nodes > 1 else []  # its way is counted
    found = pipeline_ns(its.launch, pieces, [*stages, *slowest])[:, 0, 0]
    if its.name in STREAMED:  # only the root keeps a piece that long
        found = found - (servers.ranks - 2) * work[:, 0, 0]
    return found


def _each(asked: _Asked, one: Callable[[Mapping[str, float]], float]) -> Any:
    """Of one case after the other."""
    count = max(1, asked.costs.cases)
    columns = {name: np.broadcast_to(asked.cost(name), (count,)) for name in asked.costs}
    return np.array([one({name: float(column[k]) for name, column in columns.items()}) for k in range(count)])


def _tree(asked: _Asked) -> Any:
    servers, channels = asked.servers, asked.channels
    share = ceil(asked.size / channels)
    cut = tree_cut(asked.choice.protocol, share, servers, asked.settings)
    rounds = ceil(share / cut.chunk)
    nbytes = ceil(share / rounds)
    lanes = max(1, asked.of_a_nic(channels) // 2)

    def one(costs: Mapping[str, float]) -> float:
        its = Protocol.of(Costs(costs), asked.choice.protocol)
        byte, slice_ns, message, net_byte = (x.item() for x in (its.byte, its.slice, its.message, its.net_byte))
        link = its.link_byte.item() * channels if servers.gpus > 1 else 0.0
        work = max(2 * byte, link) * nbytes + slice_ns  # half of the threads
        inside = Inside(servers.gpus, work, 0.0, its.nvlink.item(), its.name in STREAMED)
        between = Between(lanes * (message + nbytes * net_byte), its.net.item())
        return tree_ns(servers.nodes, rounds, costs["launch"], inside, between)

    return _each(asked, one)


def _nvls_tree(asked: _Asked) -> Any:
    """Each head adds up its share with the switch, and passes it on by trees among servers, over its own NIC."""
    servers, channels, heads = asked.servers, asked.choice.channels, asked.servers.heads.number
    together = channels * heads
    chunk = nvls_tree_chunk(asked.size, channels, heads, servers.nodes)
    rounds = max(1, ceil(asked.size / (together * chunk)))
    nbytes = ceil(asked.size / (together * rounds))
    lanes = max(1, channels // 2)

    def one(costs: Mapping[str, float]) -> float:
        its = Protocol.of(Costs(costs), "simple")
        switch = nbytes * lanes * heads * 8e9 / costs["nvls.rate"] * 2 + its.slice.item()
        inside = Inside(1, switch, switch, 0.0)
        between = Between(lanes * (its.message.item() + nbytes * its.net_byte.item()), its.net.item())
        return costs["nvls.hop"] + tree_ns(servers.nodes, rounds, costs["launch"], inside, between)

    return _each(asked, one)


def _nvls(asked: _Asked) -> Any:
    """The switch adds up and copies: one server, or with switches of the network that add up (CollNet)."""
    servers, channels, heads = asked.servers, asked.choice.channels, asked.servers.heads.number
    together, chunk = channels * heads, nvls_chunk(asked.size, channels, heads)
    rounds = max(1, ceil(asked.size / (together * chunk)))
    nbytes = asked.size / rounds
    half = asked.collective != "all_reduce"
    rate, simple = asked.cost("nvls.rate"), Protocol.of(asked.costs, "simple")
    switch = nbytes * 8e9 / rate * ((servers.gpus - 1) / servers.gpus if half else 1.0) + simple.slice[:, 0, 0]
    stages = [(switch, asked.cost("nvls.hop") / (1 if half else 2))] * (1 if half else 2)
    if servers.nodes > 1:
        stages.insert(1, _over_switches(asked, nbytes / heads, channels))
    return pipeline_ns(asked.cost("launch"), rounds, stages)


def _over_switches(asked: _Asked, nbytes: float, channels: int) -> tuple[Any, Any]:
    """What a NIC sends to switches that add up, and gets back."""
    its = asked.its
    busy = (channels * its.message + nbytes * its.net_byte)[:, 0, 0]
    return busy, busy + 2 * its.net[:, 0, 0]


def _collnet(asked: _Asked) -> Any:
    """Shares to the GPUs at NICs, over switches that add up, and back; direct: all at once, chain: one by one."""
    servers, its, channels = asked.servers, asked.its, asked.channels
    direct = asked.choice.algorithm == "collnet_direct"
    slot = slot_bytes("simple", asked.settings) if direct else 256 << 10
    heads = min(servers.gpus, servers.nics)
    rounds = max(1, ceil(asked.size / (channels * (heads if direct else 1) * slot)))
    nbytes = asked.size / rounds
    work = (nbytes / channels * np.maximum(its.byte, its.link_byte * channels) + its.slice)[:, 0, 0]
    hop = its.nvlink[:, 0, 0]
    inside = [(work, hop)] * ((1 if direct else servers.gpus - 1) if servers.gpus > 1 else 0)
    net = _over_switches(asked, nbytes / servers.nics, asked.of_a_nic(channels))
    return pipeline_ns(asked.cost("launch"), rounds, [*inside, net, *inside])


def _pat(asked: _Asked) -> Any:
    """What is busiest in each round, one behind the other, and the hops of a tree's longest way."""
    its, servers, channels = asked.its, asked.servers, asked.channels
    chunk = pat_chunk(asked.collective, asked.size, channels, asked.settings)
    share = ceil(asked.size / servers.ranks / channels)
    passes = max(1, ceil(share / chunk))
    nbytes = ceil(share / passes)
    at_once = max(1, slot_bytes("simple", asked.settings) // max(nbytes, 1))
    busy: Any = 0.0
    hops: Any = 0.0
    for todo in pat_rounds(servers.ranks, at_once):
        count = nbytes * len(todo.come)
        work = (its.slice + count * its.byte)[:, 0, 0]
        net = asked.of_a_nic(channels) * (its.message + count * its.net_byte)[:, 0, 0]
        busy = busy + np.maximum(work, net)
        hops = np.maximum(hops, np.minimum(work, net) + its.net[:, 0, 0])
    return asked.cost("launch") + passes * busy + (servers.ranks - 1).bit_length() * hops


def _p2p(asked: _Asked) -> Any:
    """Chunk behind chunk, by what keeps them longest: channels with their proxy, or links."""
    servers, its, settings, of_peer = asked.servers, asked.its, asked.settings, asked.choice.channels
    message = message_bytes(asked.collective, asked.size, servers)
    chunk = chunk_of(message, its.name, servers, settings, slot_bytes("ll", settings))
    chunks = max(1, ceil(message / of_peer / chunk))
    nbytes = ceil(message / of_peer / chunks)
    own = (its.byte * nbytes + its.slice)[:, 0, 0] if its.name == "ll" else nbytes * 8e9 / asked.cost("p2p.rate")
    clock = own + under_way(asked.collective, of_peer, servers, settings) * asked.cost("p2p.turn")
    net = asked.cost("net.message") + nbytes * 8e9 / asked.cost("nic.rate") * servers.gpus / servers.nics
    link = nbytes * its.link_byte[:, 0, 0]
    launch, far, near = asked.cost("launch"), its.net[:, 0, 0], its.nvlink[:, 0, 0]
    passed = servers.gpus > 1 and settings.pxn
    if asked.collective == "send_recv":
        if servers.nodes == 1:
            return launch + near + clock + link + (chunks - 1) * np.maximum(clock, of_peer * link)
        return launch + clock + of_peer * net + far + near * passed + (chunks - 1) * np.maximum(clock, of_peer * net)
    others, outside, beside = servers.ranks - 1, servers.ranks - servers.gpus, servers.gpus - 1
    channels = min(servers.channels_of_messages(settings), others * of_peer)
    clocks = ceil(others * of_peer / channels) * chunks * clock
    handed = outside * beside / servers.gpus if passed else 0.0
    links = (beside + handed) * of_peer * chunks * link
    if servers.nodes == 1:
        return launch + near + np.maximum(clocks, links)
    last = channels * outside / others * net  # channels' chunks come to the NIC together
    nic = clock + outside * of_peer * chunks * net
    return launch + far + near * passed + np.maximum(np.maximum(clocks + last, nic), links)


_TIMES: Mapping[str, Callable[[_Asked], Any]] = {
    "ring": _ring,
    "tree": _tree,
    "nvls": _nvls,
    "nvls_tree": _nvls_tree,
    "pat": _pat,
    "collnet_direct": _collnet,
    "collnet_chain": _collnet,
    "p2p": _p2p,
}
