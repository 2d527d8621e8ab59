"""Where the ranks of a large fabric are, and which links between switches their messages take, as arrays.

Of several spines or cores ECMP's hash takes one for each flow, as on any fabric: by addresses that encode places, UDP
source ports, and the switches' datapath ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from topologies.graph.address import BASE
from topologies.ranks.dateline import beyond
from topologies.ranks.ring_order import snake

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ranks = NDArray[np.int64]
    Stage = tuple[NDArray[np.int64], NDArray[np.int64]]  # numbers of messages, and the link that each takes
    Hashed = Callable[[Ranks, int], Ranks]  # at the switches with these datapath ids, which have so many equal ports
    Flows = Callable[[Ranks, Ranks, Ranks, Ranks], Hashed]  # from ranks to ranks, and their addresses


class Places(Protocol):
    """Where ranks are, and how messages go from one to another beyond their own cables."""

    @property
    def ranks(self) -> int: ...

    @property
    def links(self) -> int:
        """How many links there are between switches."""

    @property
    def switches(self) -> int:
        """Switches on the longest of the shortest ways between two NICs."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Of the grid that the ranks are; () if they are none."""

    @property
    def order(self) -> Sequence[int]:
        """In which a ring takes them."""

    def between(self, source: Ranks, target: Ranks, flows: Flows) -> Iterator[Stage]:
        """The stages between the first switch and the last.  `flows`: where they go, where there is a choice."""

    def across(self, links: Sequence[int], target: int) -> Sequence[bool]:
        """On which of these links between switches what goes to this rank is before a dateline; (): on none."""

    def ends(self) -> tuple[Ranks, Ranks]:
        """From which switch and to which each link between switches leads; -1: there is none of this number."""

    def leaf(self, rank: Ranks) -> Ranks:
        """The numbers of the switches that these ranks hang on."""

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        """Which pairs share a scale-up domain."""


@dataclass(frozen=True)
class Grid:
    """A torus or ring: a switch and a host at each place; dimension order, the shorter way round."""

    dims: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return prod(self.dims)

    @property
    def links(self) -> int:
        return self.ranks * 2 * len(self.dims)

    @property
    def switches(self) -> int:
        return 1 + sum(size // 2 for size in self.dims)

    @property
    def order(self) -> Sequence[int]:
        return snake(self.dims)

    def between(self, source: Ranks, target: Ranks, flows: Flows) -> Iterator[Stage]:
        at = source.copy()
        for dim, n in enumerate(self.dims):
            stride = prod(self.dims[dim + 1 :])
            ahead = (target // stride - at // stride) % n
            up = ahead <= n // 2
            left = np.where(up, ahead, n - ahead)
            while (going := np.flatnonzero(left)).size:
                here = at[going]
                yield going, (here * len(self.dims) + dim) * 2 + up[going]
                place = here // stride % n
                at[going] = here + ((place + np.where(up[going], 1, -1)) % n - place) * stride
                left[going] -= 1

    def across(self, links: Sequence[int], target: int) -> Sequence[bool]:
        found = []
        for link in links:
            (here, dim), up = divmod(link // 2, len(self.dims)), bool(link % 2)
            n, stride = self.dims[dim], prod(self.dims[dim + 1 :])
            found.append(target // stride % n in beyond(n, here // stride % n, upwards=up))
        return found

    def ends(self) -> tuple[Ranks, Ranks]:
        me = np.arange(self.ranks)
        to = np.full((self.ranks, len(self.dims), 2), -1)
        for dim, n in enumerate(self.dims):
            stride = prod(self.dims[dim + 1 :])
            place = me // stride % n
            to[:, dim, 1] = me + ((place + 1) % n - place) * stride
            if n > 2:
                to[:, dim, 0] = me + ((place - 1) % n - place) * stride
        return np.repeat(me, 2 * len(self.dims)), to.reshape(-1)

    def leaf(self, rank: Ranks) -> Ranks:
        return rank

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        return np.zeros(len(source), bool)


@dataclass(frozen=True)
class Tiers:
    """Ranks `per` to a leaf, leaves `leaves` to a pod, joined by `spines`, and pods by `cores`.  A star: one leaf."""

    per: int
    leaves: int = 1
    spines: int = 0
    pods: int = 1
    cores: int = 0

    dims: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        return self.per * self.leaves * self.pods

    @property
    def links(self) -> int:
        return 2 * self.pods * self.spines * (self.leaves + self.cores)

    @property
    def switches(self) -> int:
        return 5 if self.pods > 1 else 3 if self.leaves > 1 else 1

    @property
    def order(self) -> Sequence[int]:
        return range(self.ranks)

    def between(self, source: Ranks, target: Ranks, flows: Flows) -> Iterator[Stage]:
        far = np.flatnonzero(source // self.per != target // self.per)
        if not far.size:
            return
        source, target = source[far], target[far]
        leaf = source // self.per, target // self.per
        pod = leaf[0] // self.leaves, leaf[1] // self.leaves
        hashed = _chosen(flows, source, target, self._ip(source), self._ip(target))
        switches = self.pods * self.leaves
        up = hashed(leaf[0] + 1, self.spines)
        core = hashed(switches + pod[0] * self.spines + up + 1, self.cores)
        other = np.flatnonzero(pod[0] != pod[1])
        down = np.where(pod[0] == pod[1], up, hashed(switches + self.pods * self.spines + core + 1, self.spines))
        edge, above = switches * self.spines, self.pods * self.spines * self.cores
        yield far, leaf[0] * self.spines + up
        if other.size:
            yield far[other], 2 * edge + ((pod[0] * self.spines + up) * self.cores + core)[other]
            yield far[other], 2 * edge + above + ((pod[1] * self.spines + down) * self.cores + core)[other]
        yield far, edge + leaf[1] * self.spines + down

    def _ip(self, rank: Ranks) -> Ranks:
        leaf = rank // self.per
        return BASE | leaf // self.leaves << 16 | leaf % self.leaves << 8 | rank % self.per + 1

    def across(self, links: Sequence[int], target: int) -> Sequence[bool]:
        return ()

    def ends(self) -> tuple[Ranks, Ranks]:
        n_leaves, n_spines = self.leaves * self.pods, self.spines * self.pods
        leaf, choice = np.divmod(np.arange(n_leaves * self.spines), max(self.spines, 1))
        spine = n_leaves + leaf // self.leaves * self.spines + choice
        above, core = np.divmod(np.arange(n_spines * self.cores), max(self.cores, 1))
        above, core = n_leaves + above, n_leaves + n_spines + core
        return np.concatenate([leaf, spine, above, core]), np.concatenate([spine, leaf, core, above])

    def leaf(self, rank: Ranks) -> Ranks:
        return np.asarray(rank // self.per)

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        return np.zeros(len(source), bool)


@dataclass(frozen=True)
class Rails:
    """Servers of `gpus`: NIC r of each on rail r, spines join the rails."""

    servers: int
    gpus: int
    spines: int
    scale_up: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return self.servers, self.gpus

    @property
    def ranks(self) -> int:
        return self.servers * self.gpus

    @property
    def links(self) -> int:
        return 2 * self.gpus * self.spines

    @property
    def switches(self) -> int:
        return 3 if self.gpus > 1 else 1

    @property
    def order(self) -> Sequence[int]:
        return snake(self.dims)

    def between(self, source: Ranks, target: Ranks, flows: Flows) -> Iterator[Stage]:
        far = np.flatnonzero(source % self.gpus != target % self.gpus)
        if far.size:
            source, target = source[far], target[far]
            rail = source % self.gpus, target % self.gpus
            spine = _chosen(flows, source, target, self._ip(source), self._ip(target))(rail[0] + 1, self.spines)
            yield far, rail[0] * self.spines + spine
            yield far, self.gpus * self.spines + rail[1] * self.spines + spine

    def _ip(self, rank: Ranks) -> Ranks:
        return BASE | rank % self.gpus << 16 | rank // self.gpus + 1

    def across(self, links: Sequence[int], target: int) -> Sequence[bool]:
        return ()

    def ends(self) -> tuple[Ranks, Ranks]:
        rail, spine = np.divmod(np.arange(self.gpus * self.spines), max(self.spines, 1))
        return np.concatenate([rail, self.gpus + spine]), np.concatenate([self.gpus + spine, rail])

    def leaf(self, rank: Ranks) -> Ranks:
        return np.asarray(rank % self.gpus)

    def inside(self, source: Ranks, target: Ranks) -> NDArray[np.bool_]:
        if not self.scale_up:
            return np.zeros(len(source), bool)
        return np.asarray(source // self.gpus == target // self.gpus)


def _chosen(flows: Flows, source: Ranks, target: Ranks, source_ip: Ranks, target_ip: Ranks) -> Hashed:
    """What ECMP takes of several equal ways for some messages; nobody asks where there is one."""
    asked = cache(lambda: flows(source, target, source_ip, target_ip))
    return lambda dpid, members: asked()(dpid, members) if members > 1 else np.zeros_like(dpid)


KINDS = ("star", "ring", "torus", "rail", "clos")


def places_of(kind: str, params: Mapping[str, Any], *, scale_up: bool = False) -> Places:
    """Where the ranks of such a fabric are."""
    p = {key: value for key, value in params.items() if key not in ("links", "direct")}
    if kind == "star":
        return Tiers(per=p["hosts"])
    if kind == "rail":
        return Rails(p["servers"], p["gpus"], p["spines"], scale_up and p["gpus"] > 1)
    if kind == "clos":
        return Tiers(p["hosts_per_leaf"] * p.get("gpus", 1), p["leaves"], p["spines"], p["pods"], p["cores"])
    return Grid(tuple(p["dims"]) if kind == "torus" else (p["nodes"],))
