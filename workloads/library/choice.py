"""Which algorithm and protocol the library takes: by its tuner's table, latency + size / bandwidth, wrong choices too.

Derived from src/graph/tuning.cc and topoGetAlgoInfo (src/enqueue.cc) of NCCL 2.21 to 2.30.  It knows nothing of what a
cluster's parts really take (costs.py): it is what NCCL believes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from workloads.library.constants import NVLS_EFFICIENCY, Constants, constants_of
from workloads.library.peers import channels_of, message_bytes, protocol_of
from workloads.library.servers import Servers
from workloads.library.settings import ALGORITHMS, FUNCTIONS, PROTOCOLS, Settings

PEER_TO_PEER = ("send_recv", "all_to_all", "gather", "scatter")
"""What has no tuner: messages from rank to rank."""
_THREADS = {"ll": 512, "ll128": 640, "simple": 512}
_OF_A_THREAD = {"ll": 8, "ll128": 8, "simple": 64}
"""Bytes, of which there must be so many for each thread of each channel."""
_NVLS_CHANNELS = {"hopper": 16, "blackwell": 32}


class NoChoice(ValueError):
    """Nothing is left to choose from; and a hint."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@dataclass(frozen=True)
class Choice:
    """An algorithm, a protocol, and on how many channels at most; what the tuner thinks that it takes."""

    algorithm: str
    protocol: str
    channels: int
    expected_us: float = field(default=0.0, compare=False)


def choose(collective: str, size_bytes: int, servers: Servers, settings: Settings | None = None) -> Choice:
    """Raises NoChoice."""
    settings = settings or Settings()
    if collective in PEER_TO_PEER:
        message = message_bytes(collective, size_bytes, servers)
        channels = channels_of(message, servers, settings)
        return Choice("p2p", protocol_of(message, channels, servers, settings), channels)
    if collective not in FUNCTIONS:
        raise NoChoice(f"the library has no {collective}", f"of {', '.join((*FUNCTIONS, *PEER_TO_PEER))}")
    times = dict(expected_us(collective, size_bytes, servers, settings))
    if not times:
        what = f"NCCL_ALGO and NCCL_PROTO leave nothing for {collective}"
        raise NoChoice(what, "ring with simple is always possible")
    algorithm, protocol = min(times, key=lambda pair: times[pair])
    channels = _channels(algorithm, protocol, size_bytes, servers, settings)
    return Choice(algorithm, protocol, channels, times[algorithm, protocol])


def _channels(algorithm: str, protocol: str, size_bytes: int, servers: Servers, settings: Settings) -> int:
    """As many as there are enough bytes for."""
    if algorithm in ("nvls", "nvls_tree"):
        return _NVLS_CHANNELS.get(servers.gpu, 16)
    threads = (settings.ll128_threads if protocol == "ll128" else settings.threads) or _THREADS[protocol]
    enough = threads * _OF_A_THREAD[protocol] * (servers.ranks if (algorithm, protocol) == ("ring", "ll") else 1)
    return max(1, min(servers.channels(settings), size_bytes // enough))


def expected_us(
    collective: str, size_bytes: int, servers: Servers, settings: Settings
) -> Iterator[tuple[tuple[str, str], float]]:
    """Of each algorithm and protocol that are possible and allowed, in the order in which they are looked at."""
    table = _Table(servers, settings, constants_of(servers.number))
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            bandwidth = table.bandwidth(collective, algorithm, protocol)
            if bandwidth > 0 and table.allowed(collective, algorithm, protocol):
                yield (algorithm, protocol), table.time_us(collective, algorithm, protocol, size_bytes, bandwidth)


@dataclass(frozen=True)
class _Table:
    """What the tuner knows of these servers."""

    servers: Servers
    settings: Settings
    its: Constants

    @property
    def several(self) -> int:
        """Which of a row's bandwidths."""
        return min(self.servers.nodes, 3) - 1

    def allowed(self, collective: str, algorithm: str, protocol: str) -> bool:
        settings, servers = self.settings, self.servers
        if (collective, algorithm) not in settings.algorithms or (collective, protocol) not in settings.protocols:
            return False
        if protocol == "ll128" and not settings.protocols.names(collective):  # PXN only from Hopper on
            through_pxn = settings.pxn and servers.nodes > 1 and servers.gpus > 1
            return servers.nvlink and (servers.generation >= 2 or not through_pxn)
        return True

    def bandwidth(self, collective: str, algorithm: str, protocol: str) -> float:
        """GB/s of the collective's size; 0: not possible."""
        if not self._possible(collective, algorithm, protocol):
            return 0.0
        return self._bus(collective, algorithm, protocol) * self._ratio(collective, algorithm)

    def _possible(self, collective: str, algorithm: str, protocol: str) -> bool:
        servers, settings = self.servers, self.settings
        inside, one_server = servers.gpus, servers.nodes == 1
        gathers = collective in ("all_gather", "reduce_scatter")
        if algorithm == "ring":
            return True
        if algorithm == "tree":
            return collective == "all_reduce"
        if protocol != "simple":
            return False
        if algorithm == "pat":
            enabled = settings.pat if settings.pat is not None else inside == 1
            return gathers and self.its.pat is not None and enabled
        has_switch = servers.nvlink and inside > 1
        if algorithm in ("collnet_direct", "collnet_chain"):
            if not settings.collnet or one_server or inside > 8:
                return False
            return collective == "all_reduce" and (has_switch or algorithm == "collnet_chain")
        nvls = settings.nvls and has_switch and inside > 2 and servers.generation >= 2
        if algorithm == "nvls":
            between = not one_server and (gathers or not settings.collnet)
            return nvls and not between and (gathers or collective == "all_reduce")
        return nvls and not one_server and collective == "all_reduce"

    def _bus(self, collective: str, algorithm: str, protocol: str) -> float:
        """GB/s of all channels together, before it is one of the collective's size."""
        servers, its, several = self.servers, self.its, self.several
        rings, speed, _ = servers.found
        generation = servers.generation
        if algorithm in ("nvls", "nvls_tree"):
            return self._nvls(collective, algorithm)
        bus = rings * speed
        row = generation if servers.nodes == 1 else int(servers.host == "amd")
        ll = its.ll[row][several]
        if algorithm == "ring":
            if protocol == "ll":
                return min(ll, bus * 0.5)
            if protocol == "ll128":
                share = its.ring_ll128_alone if servers.gpus < 2 else 0.92
                return min(bus * share, rings * its.ring_ll128[generation][several])
        if algorithm == "tree":
            bus = min(bus * 0.92, rings * its.tree[generation][several])
            if protocol == "ll":
                bus = min(bus / 3.8, ll)
            if protocol == "ll128":
                share = 7 / 9 if servers.nodes == 1 else 120 / 128
                bus = min(bus * share, rings * its.tree_ll128[generation][several])
            return bus * (0.85 if self._plain_tree else 1.0)
        if algorithm == "pat":
            return bus * (its.pat or 0.0)
        if algorithm == "collnet_direct":
            factor = servers.gpus / rings
            bus /= factor - (factor - 1) / 2
            return bus * (0.85 if generation >= 2 else 1.0)
        return bus

    @property
    def _plain_tree(self) -> bool:
        """Children and parent at the same GPU: NCCL takes it on Hopper and later, and with one GPU a server."""
        return self.servers.nodes > 1 and (self.servers.generation >= 2 or self.servers.gpus == 1)

    def _nvls(self, collective: str, algorithm: str) -> float:
        servers, (heads, inside, between) = self.servers, self.servers.heads
        tree, pair = algorithm == "nvls_tree", servers.nodes <= 2
        if self.its.nvls_tree is None:
            return heads * min(inside, between if pair or not tree else between / 2)
        if heads < 2:
            return 0.0
        inside *= NVLS_EFFICIENCY[servers.generation] * (heads - 1) / heads
        inside *= 2.0 if collective == "all_reduce" else (servers.gpus - 1) / servers.gpus
        between *= 2 if pair and tree else 1
        return heads * min(inside, between, self.its.nvls_tree[servers.generation][self.several] if tree else inside)

    def _ratio(self, collective: str, algorithm: str) -> float:
        ranks, steps = self.servers.ranks, self._steps(collective)
        if collective in ("all_gather", "reduce_scatter") and algorithm != "ring":
            return 1.0
        if algorithm == "ring" or (self.its.nvls_tree is not None and algorithm in ("nvls", "nvls_tree")):
            return ranks / steps
        return 5 / 6 if algorithm in ("nvls", "nvls_tree") else 0.5

    def _steps(self, collective: str) -> int:
        ranks = self.servers.ranks
        return {"all_reduce": 2 * (ranks - 1), "broadcast": ranks, "reduce": ranks}.get(collective, ranks - 1) or 1

    def _latency(self, collective: str, algorithm: str, protocol: str) -> float:
        servers, k = self.servers, PROTOCOLS.index(protocol)
        nodes, inside = servers.nodes, servers.gpus
        base = self.its.base.get(algorithm, (0.0, 0.0, 0.0))[k]
        near = self.its.hop["nvlink" if servers.nvlink else "pci"][algorithm][k]
        exposed = "tree" if inside == 1 and not self.its.both_ways_per_node else algorithm
        far = self.its.hop["net"][exposed][k]
        depth = nodes.bit_length() - 1
        if algorithm == "ring":
            return base + self._around(collective, near, far, k)
        if algorithm == "tree":
            return base + 2 * ((inside - 1) * near + depth * far)
        if algorithm == "collnet_direct":
            return 2 * (min(1, inside - 1) * near + (inside - 1) * 0.4) + far
        if algorithm == "collnet_chain":
            return 2 * (inside - 1) * near + far
        if algorithm == "nvls":
            return near + (far if nodes > 1 else 0.0)
        if algorithm == "nvls_tree":
            return near + 2 * depth * far
        return 8.0 + depth * (far / 3.5) + servers.ranks * 2.8

    def _around(self, collective: str, near: float, far: float, protocol: int) -> float:
        servers, steps = self.servers, self._steps(collective)
        nodes = servers.nodes
        if collective in ("broadcast", "reduce"):  # the channels of equal servers are the same
            kind = "net" if nodes > 1 else "nvlink" if servers.nvlink else "pci"
            return self.its.hop[kind]["ring"][protocol]
        if nodes > 1:
            near = max(near, self._overhead * (3 if protocol == 2 else 1))
        between = 0 if nodes == 1 else nodes - 1
        if collective == "all_reduce" and nodes > 1:
            between = 2 * nodes if self.its.both_ways_per_node else 2 * (nodes - 1)
        return (steps - between) * near + between * far

    @property
    def _overhead(self) -> float:
        if self.settings.net_overhead_us is not None:
            return self.settings.net_overhead_us
        return 2.0 if self.servers.host == "amd" else 1.0

    def time_us(self, collective: str, algorithm: str, protocol: str, size_bytes: int, bandwidth: float) -> float:
        servers, latency = self.servers, self._latency(collective, algorithm, protocol)
        factors = self.its.tree_factors[protocol]
        octave = (size_bytes >> 6).bit_length() - 1
        late = self.servers.generation == 3 and servers.host in ("intel", "amd") and servers.number >= (2, 29)
        corrected = algorithm == "tree" or (algorithm == "nvls_tree" and late)
        if collective == "all_reduce" and corrected and 0 <= octave < (23 if algorithm == "tree" else len(factors)):
            bandwidth *= factors[octave]
        share = size_bytes // (servers.channels(self.settings) * servers.ranks)
        flat = (algorithm, protocol, collective) == ("ring", "simple", "all_reduce") and share >= 64
        if flat and servers.nodes > 1:
            latency *= 1.4 if servers.generation >= 1 else 1.9
        return latency + size_bytes / (1000 * bandwidth)
