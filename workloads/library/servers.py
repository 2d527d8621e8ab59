"""What the library finds when it starts: servers with GPUs and NICs, and how many channels it makes of them.

NCCL looks for as many rings as there are NICs (src/graph/search.cc), doubles fast ones, and then all of them
(src/graph/connect.cc, 2.30.7): 2 NICs of 400 Gb/s make 8 channels of Hopper, 4 or 8 make 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from workloads.library.settings import Settings

GPUS = ("volta", "ampere", "hopper", "blackwell")
HOSTS = ("intel", "amd", "arm", "power")
MOST_CHANNELS = 64  # MAXCHANNELS, src/include/device.h

_NVLINK_GBPS = {"volta": 20.0 * 6, "ampere": 20.0 * 12, "hopper": 20.6 * 18, "blackwell": 40.1 * 18}
_PCIE_GBPS = {"volta": 12.0, "ampere": 24.0, "hopper": 48.0, "blackwell": 96.0}
_SPEEDS: dict[str, dict[str, tuple[float, ...]]] = {
    "inside": {
        "volta": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
        "hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
        "blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
    },
    "between": {
        "volta": (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
        "hopper": (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
        "blackwell": (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    },
}


class Rings(NamedTuple):
    """`gbps`: what each is to carry.  `crossing`: they leave a server by another NIC than they came in by."""

    number: int
    gbps: float
    crossing: bool


class Heads(NamedTuple):
    """`gbps`: of each, inside its server; `between_gbps`: and over its NIC."""

    number: int
    gbps: float
    between_gbps: float


@dataclass(frozen=True)
class Servers:
    """Equal servers.  `gpus` and `nics`: of each, that take part; `nic_bps`: of one NIC; one server needs no NIC."""

    nodes: int
    gpus: int
    nics: int = 1
    nic_bps: float = 400e9
    gpu: str = "hopper"
    host: str = "intel"
    nvlink: bool = True
    version: str = "2.30.7"

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    @property
    def number(self) -> tuple[int, ...]:
        """The version's, to be compared."""
        return tuple(int(part) for part in self.version.split(".")[:3])

    @property
    def generation(self) -> int:
        return GPUS.index(self.gpu)

    @property
    def link_gbps(self) -> float:
        """GB/s of a GPU into its server, as NCCL counts (src/graph/topo.h)."""
        return (_NVLINK_GBPS if self.nvlink else _PCIE_GBPS)[self.gpu]

    @cached_property
    def found(self) -> Rings:
        """What the search finds for rings and trees (src/graph/search.cc).

        The fastest rings of which each NIC has one.  What leaves a server over its own NIC reaches it through that
        NIC's GPU (PXN); where NVLink has no room for that, rings come in by one NIC and leave by another.
        """
        if self.nodes == 1:
            speed = self._speeds("inside")[0]
            return self._doubled(max(1, int(self.link_gbps / speed + 1e-9)), float(speed), crossing=False)
        net, link = min(self.nic_bps / 8e9, _PCIE_GBPS[self.gpu]), self.link_gbps
        alone = self.gpus == 1
        for speed in self._speeds("between"):
            if speed > net + 1e-9:
                continue
            if alone or speed * self.nics <= link:
                return self._doubled(self.nics, float(speed), crossing=False)
            if self.nics % 2 == 0 and self.nics == self.gpus and speed * (self.gpus - 1) <= link:
                return self._doubled(self.nics, float(speed), crossing=True)
        return Rings(self.nics, min(net, link / self.nics), False)

    def _doubled(self, rings: int, speed: float, *, crossing: bool) -> Rings:
        """Fast ones are two of half the speed (ncclTopoDupChannels)."""
        if speed < 25.0 or (self.generation >= 2 and speed < 50.0 and rings > 4):
            return Rings(rings, speed, crossing)
        return Rings(2 * rings, speed / 2, crossing)

    @cached_property
    def heads(self) -> Heads:
        """What it finds for NVLS: which GPUs pull, as fast as the switch gives each its share and twice that."""
        heads = self.gpus if self.nodes == 1 else min(self.gpus, self.nics)
        where = "inside" if self.nodes == 1 else "between"
        net = min(self.nic_bps / 8e9, _PCIE_GBPS[self.gpu]) if self.nodes > 1 else float("inf")
        fits = [speed for speed in self._speeds(where) if speed <= net + 1e-9]
        inside = next((speed for speed in fits if speed * (heads + 1) <= self.link_gbps), fits[-1] if fits else 0.0)
        between = next((speed for speed in fits if speed <= 2 * inside), inside)
        return Heads(heads, float(inside), float(between))

    def _speeds(self, where: str) -> tuple[float, ...]:
        its = _SPEEDS[where]
        return its.get(self.gpu, its["volta"])

    def channels(self, settings: Settings) -> int:
        """As the library makes them."""
        channels = min(2 * self.found.number, MOST_CHANNELS)
        if self.generation >= 2 and self.nodes > 1 and self.found.gbps > 45.0 and channels < 16:
            channels *= 2
        return max(min(channels, settings.most_channels or MOST_CHANNELS), settings.least_channels or 1)

    def channels_of_messages(self, settings: Settings) -> int:
        """That messages to all peers share."""
        return _power_up(self.channels(settings))

    def channels_of_peer(self, settings: Settings) -> int:
        """Channels of point-to-point messages to a rank elsewhere (src/graph/paths.cc)."""
        if settings.channels_of_net_peer:
            return min(settings.channels_of_net_peer, _power_up(self.channels(settings)))
        if self.nodes == 1:
            return min(
                _power_up(self.channels(settings)), _power_up(max(2, 2 * int(self.link_gbps / _PER_LINK[self.gpu])))
            )
        nics = max(1, self.nics // self.gpus)  # that are a GPU's own
        wanted = max(nics, -(-int(nics * self.nic_bps / 8e9) // settings.channel_gbps))
        per_peer, all_of_them = _power_up(wanted), _power_up(self.channels(settings))
        while per_peer * -(-self.ranks // _PEERS_AT_ONCE) > all_of_them and per_peer > 1:
            per_peer //= 2
        return per_peer


_PER_LINK = {"volta": 20.0, "ampere": 20.0, "hopper": 20.6, "blackwell": 40.1}
_PEERS_AT_ONCE = 8  # NCCL_MAX_DEV_WORK_P2P_PER_BATCH, src/include/device.h


def _power_up(n: int) -> int:
    return 1 << (n - 1).bit_length()
