"""Collectives that many groups of ranks do at the same time on one large fabric, and messages of all ranks at a time.

Groups that are alike begin together, so what one takes depends on the links that it shares with the others: the loads
of all groups' messages are added up, and the slowest group is followed.  One that shares nothing, of a few ranks, is
followed message by message.  Where cables differ, so do groups: each that is unlike the others is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from topologies.ranks.grid import NoGrid, lengths
from workloads.base.entry import Algorithm, named
from workloads.times.case import Case
from workloads.times.expected import expected_ns
from workloads.times.messages import Costs, Path, received_ns, sent_ns
from workloads.times.wide.around import Ring, host_ring_over_ns
from workloads.times.wide.both_ways import Some
from workloads.times.wide.model import OverRing, model_of
from workloads.times.wide.places import Rails
from workloads.times.wide.rounds import Round, Rounds, rounds_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.times.wide.fabric import Wide

    Groups = NDArray[np.int64]  # a row of ranks for each
    DomainTime = Callable[[int, int, Path, Costs], float]

FEW = 32
"""Ranks of a group that is followed message by message, as on a small fabric, where it shares nothing."""


def has_model(entry: Algorithm, ranks: int, *, alone: bool, dims: Sequence[int] = ()) -> bool:
    """Whether there is one for groups of so many.  `alone`: that share no link (Together.alone).

    `dims`: of the grids that they are.
    """
    grid = entry.layout == "grid"
    if not entry.min_ranks <= ranks <= (entry.max_ranks or ranks) or not entry.fits(ranks, dims if grid else ()):
        return False
    if alone and entry.schedule and (not entry.shaped or (grid and dims)):
        return True
    if entry.layout == "rails":
        return bool(entry.schedule) and "parts" not in entry.extra
    model = model_of(entry)
    return model.among is not None and model.fits(ranks)


@dataclass(frozen=True)
class Together:
    """`hosts`: the ways of what hosts send, through scale-up domains, too; `nics`: over the network alone."""

    hosts: Wide
    nics: Wide
    costs: Costs
    seed: int = 1
    _known: dict[int, tuple[Groups, bool]] = field(default_factory=dict, compare=False, repr=False)

    def collective_ns(self, entry: Algorithm, groups: Groups, size_bytes: int, width: int) -> float:
        """Of all these groups' at once."""
        n, options = groups.shape[1], dict[str, Any]()
        if entry.layout == "rails":  # each rank has its own cable, and no message leaves its rail
            ways = Some(self.hosts, np.sort(groups[0]).tolist())
            options["dims"] = self.on_rails(groups)
            case = Case.of(entry, n, size_bytes, width, options, self.seed, self.costs, ways)
            return float(named(entry.time)(case))
        if entry.schedule and self.alone(groups):
            options["dims"] = self.dims(groups) if entry.layout == "grid" else []
            unlike = (Some(self.hosts, ranks) for ranks in self._unlike(groups))
            cases = (Case.of(entry, n, size_bytes, width, options, self.seed, self.costs, its) for its in unlike)
            return max(expected_ns(entry, case) for case in cases)
        model = model_of(entry)
        assert model.among is not None  # see has_model
        return float(model.among(self, groups, size_bytes, width))

    def dims(self, groups: Groups) -> list[int]:
        """Of the grids that these are: those of one place left out; [] if they are none."""
        with suppress(NoGrid):
            if dims := self.hosts.places.dims:
                return [n for n in lengths(dims, sorted(groups[0].tolist())) if n > 1]
        return []

    def alone(self, groups: Groups) -> bool:
        """Whether these are small, and no message inside one takes a link that one inside another may take."""
        if groups.shape[1] > FEW:
            return False
        if id(groups) not in self._known:
            self._known[id(groups)] = groups, self._apart(groups)  # kept, so that its id stays its own
        return self._known[id(groups)][1]

    def on_rails(self, groups: Groups) -> tuple[int, int] | None:
        """Servers and GPUs, if all groups are as many GPUs on the same rails of several servers, and cables alike."""
        places = self.hosts.places
        if not isinstance(places, Rails) or not self.hosts.scale_up or self.hosts.own:
            return None
        server, rail = np.divmod(np.sort(groups, axis=1), places.gpus)
        gpus = int((server[0] == server[0, 0]).sum())
        if gpus == 1 or gpus == groups.shape[1] or groups.shape[1] % gpus:
            return None
        server, rail = (its.reshape(len(groups), -1, gpus) for its in (server, rail))
        whole = (server == server[:, :, :1]).all() and (rail == rail[:, :1]).all()
        return (server.shape[1], gpus) if whole else None

    def in_domains(self, groups: Groups) -> bool:
        """Whether each group is of one scale-up domain."""
        places = self.hosts.places
        if not isinstance(places, Rails) or not self.hosts.scale_up:
            return False
        server = groups // places.gpus
        return bool((server == server[:, :1]).all())

    def _apart(self, groups: Groups) -> bool:
        ways = self.hosts
        owner = np.full(4 * ways.places.ranks + ways.places.links, -1, np.int64)
        source, own = groups.reshape(-1), np.repeat(np.arange(len(groups)), groups.shape[1])
        for far in range(1, groups.shape[1]):
            target = np.roll(groups, -far, axis=1).reshape(-1)
            for which, ids in ways.stages(source, target):
                users = owner[ids]
                owner[ids] = own[which]
                if ((users >= 0) & (users != own[which])).any() or (owner[ids] != own[which]).any():
                    return False
        return True

    def message_ns(self, source: Groups, target: Groups, numbers: Groups, size_bytes: int) -> tuple[float, float]:
        """Of the slowest of `those` (numbers of messages), all of which are sent at a time: received, and known."""
        edges = self.hosts.edges(source, target)
        kinds = [edges.kinds[k].shared for k in np.unique(edges.which[numbers])]
        host_ns = self.costs.post_ns + self.costs.wake_ns
        received, sent = (max(done(size_bytes, path, self.costs) for path in kinds) for done in (received_ns, sent_ns))
        return host_ns + received, host_ns + sent

    def along_ns(self, dims: Sequence[int], order: Sequence[int], size_bytes: int, width: int) -> float:
        """All-reduce among all ranks of a grid, as rings along its dimensions in this order, and back."""
        places, count, total_ns = np.arange(self.hosts.places.ranks).reshape(tuple(dims)), size_bytes // width, 0.0
        for dim in order:
            groups, n = np.moveaxis(places, dim, -1).reshape(-1, dims[dim]), dims[dim]
            for reduces in (True, False):
                total_ns += self.hosts_ring_ns(groups, [reduces] * (n - 1), count, width)
            count = -(-count // n)
        return total_ns

    def _unlike(self, groups: Groups) -> Groups:
        """Those that stand for all."""
        if self.hosts.own is None:
            return groups[:1]
        like = [
            self.hosts.likeness(groups.reshape(-1), np.roll(groups, -far, axis=1).reshape(-1)).reshape(groups.shape)
            for far in range(1, groups.shape[1])
        ]
        _, first = np.unique(np.concatenate(like, axis=1), axis=0, return_index=True)
        return groups[np.sort(first)]

    def _slowest(self, ways: Wide, groups: Groups, size_bytes: int) -> list[Ring]:
        """The ring of the group whose edges take longest; where cables differ, of each that is unlike the others."""
        edges = ways.edges(groups.reshape(-1), np.roll(groups, -1, axis=1).reshape(-1))
        which = edges.which.reshape(groups.shape)
        if ways.own:
            return [Ring(edges.kinds, row) for row in np.unique(which, axis=0)]
        chunk = -(-size_bytes // groups.shape[1])
        edge_ns = np.array([received_ns(chunk, kind.shared, self.costs) for kind in edges.kinds])[which]
        worst = int(np.lexsort((edge_ns.sum(axis=1), edge_ns.max(axis=1)))[-1])
        return [Ring(edges.kinds, which[worst])]

    # What models are made of (models.py): of all these groups' at once

    def domains_ns(self, groups: Groups, size_bytes: int, width: int, of: DomainTime) -> float:
        """In scale-up domains, of which each GPU has its own link."""
        assert self.hosts.scale_up is not None
        return of(groups.shape[1], size_bytes, Path((self.hosts.scale_up,), scale_up=True), self.costs)

    def nics_ring_ns(self, groups: Groups, size_bytes: int, width: int, form: OverRing) -> float:
        """Rings of NICs."""
        rings = self._slowest(self.nics, groups, size_bytes)
        return max(form(size_bytes, ring, self.costs, 0, ring) for ring in rings)

    def hosts_ring_ns(self, groups: Groups, reduces: Sequence[bool], count: int, width: int) -> float:
        """Rings of hosts, hop by hop, with `count` elements among all of a group."""
        chunk_bytes = -(-count // groups.shape[1]) * width
        rings = self._slowest(self.hosts, groups, chunk_bytes * groups.shape[1])
        return max(host_ring_over_ns(reduces, chunk_bytes, ring, self.costs) for ring in rings)

    def rounds_ns(self, groups: Groups, size_bytes: int, width: int, of: Rounds) -> float:
        """Rounds of all ranks."""
        n, every = groups.shape[1], self.hosts.places.ranks

        def rounds() -> Iterator[Round]:
            for one in of(n, size_bytes // width, width):
                to = np.arange(every)
                to[groups] = groups[:, one.to]
                yield one._replace(to=to)

        return rounds_ns(rounds(), self.hosts, self.costs)

    def spread_ns(self, groups: Groups, size_bytes: int, width: int) -> float:
        """As of all ranks (all_to_all.py): the busiest link's messages, and the last one's way."""
        n, costs, ways = groups.shape[1], self.costs, self.hosts
        chunk_bytes: int = -(-(size_bytes // width) // n) * width
        loads = np.zeros(4 * ways.places.ranks + ways.places.links, np.int64)
        source = groups.reshape(-1)
        for far in range(1, n):
            target = np.roll(groups, -far, axis=1).reshape(-1)
            for _, ids in ways.stages(source, target):
                loads += np.bincount(ids, minlength=len(loads))
        first = self._unlike(groups)
        paths, which = ways.alone(np.repeat(first[:, 0], n - 1), first[:, 1:].reshape(-1))
        alone = np.array([max(received_ns(chunk_bytes, p, costs), sent_ns(chunk_bytes, p, costs)) for p in paths])
        posted = float((np.tile(np.arange(1, n), len(first)) * costs.post_ns + alone[which]).max())
        wire = chunk_bytes + costs.headers_bytes(chunk_bytes)
        rates = np.full(len(loads), ways.cable.rate_bps)
        if ways.own:
            rates /= ways.own.slowness[ways.own.which]
        if ways.scale_up:
            rates[2 * ways.places.ranks : 4 * ways.places.ranks] = ways.scale_up.rate_bps
        crowd_ns = float((np.maximum(loads - 1, 0) / rates).max()) * wire * 8e9
        return costs.wake_ns + max(posted, costs.post_ns + float(alone.max()) + crowd_ns)
