"""What a collective library does for each size of a step: its choice, cut and timed for this fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError
from testbed.experiment.blocks.layout import group
from testbed.plan.offloads import lacking, told_of
from topologies.ranks.grid import NoGrid, servers_and_gpus
from workloads.base.vocabulary import DTYPES
from workloads.collectives.manner import Manner
from workloads.library.choice import Choice, NoChoice, choose
from workloads.library.costs import EFFICIENCY, Costs
from workloads.library.peers import chunk_of, message_bytes, under_way
from workloads.library.pieces import (
    STEPS,
    Cut,
    channels_worth,
    nvls_tree_chunk,
    pat_chunk,
    ring_cut,
    slot_bytes,
    tree_cut,
)
from workloads.library.schedules.orders import ring
from workloads.library.schedules.predicted import hop_of
from workloads.library.servers import Servers
from workloads.library.settings import Settings
from workloads.registry import by_library, choices

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.experiment.library import Library
    from testbed.plan.routes import Routes

MOST_WAYS = 16
"""Of a step that differ in algorithm, protocol or channels: ranks connect for each."""


@dataclass(frozen=True)
class ByLibrary:
    """Of one step.  `place`: of the step in the file."""

    experiment: Experiment
    routes: Routes
    step: CollectiveStep
    place: str

    @cached_property
    def ranks(self) -> list[int]:
        """Server by server."""
        written = self.step.ranks
        return sorted(range(self.routes.fabric.ranks) if written is None else written)

    @cached_property
    def servers(self) -> Servers:
        """Raises InputError where they are not alike."""
        fabric, library = self.routes.fabric, self.experiment.library
        assert library is not None
        nodes, gpus = len(self.ranks), 1
        domains = [{nic.name for nic in (fabric.nics[rank] for rank in self.ranks)} & {*one} for one in fabric.scale_up]
        if any(len(one) == len(self.ranks) for one in domains):
            nodes, gpus = 1, len(self.ranks)
        elif any(len(one) > 1 for one in domains):
            try:
                nodes, gpus = servers_and_gpus(fabric, self.ranks)
            except NoGrid as wrong:
                raise InputError(wrong.what, self.place, wrong.hint) from None
        rate = self.routes.basis.hardware.cable_rate_bps
        return Servers(nodes, gpus, gpus, rate, library.gpu, library.host, True, library.version)

    @cached_property
    def settings(self) -> Settings:
        assert self.experiment.library is not None
        return settings_of(self.experiment.library)

    def chosen(self) -> dict[str, dict[str, Any]]:
        """size -> algorithm, and all that its ranks need to know.  Raises InputError."""
        found = {}
        for size_bytes in self.step.sizes:
            choice = self.choice(size_bytes)
            told = self._by_hosts(choice, size_bytes) or self._by_switches(choice, size_bytes)
            channels = told["library"]["channels"] if "library" in told else choice.channels
            label = f"{choice.algorithm}/{choice.protocol}/{channels}"
            found[str(size_bytes)] = {**told, "expected_ns": {label: round(choice.expected_us * 1e3, 3)}}
        if len({(its["algorithm"], *way_of(its)) for its in found.values()}) > MOST_WAYS:
            raise InputError(f"a step in more than {MOST_WAYS} ways", self.place, "fewer sizes in a step")
        return found

    def _by_hosts(self, choice: Choice, size_bytes: int) -> dict[str, Any]:
        """What a library's own lanes do; {}: they do not."""
        name = f"nccl_{choice.algorithm}"
        if name not in by_library()[self.step.collective]:
            return {}
        return {"algorithm": name, "ranks": self.ranks, "library": asdict(self.manner(choice, size_bytes))}

    def _by_switches(self, choice: Choice, size_bytes: int) -> dict[str, Any]:
        """What switches of domains and of the network add up is an offload of the fabric's.  Raises InputError."""
        step, several = self.step, self.servers.nodes > 1
        name = "collnet_nvls" if choice.algorithm == "nvls" and several else choice.algorithm
        what = f"the library takes {choice.algorithm} for {step.collective} of {size_bytes} B here"
        entry = next(
            (its for its in choices(step.collective, offloads=True) if its.name == name and its.offloaded), None
        )
        can = ", ".join(its.removeprefix("nccl_") for its in by_library()[step.collective])
        hint = f"env: {{NCCL_ALGO: {can}}} leaves what is always carried out"
        if entry is None:
            raise InputError(f"{what}, which is not carried out", self.place, hint)
        if why := lacking(entry, step, self.experiment, len(self.ranks)):
            raise InputError(f"{what}, and {why}", self.place, hint)
        try:
            told = group(entry, step.ranks, self.routes.fabric)
        except NoGrid as wrong:
            raise InputError(f"{what}: {wrong.what}", self.place, hint) from None
        return {"algorithm": name, **told, **told_of(entry, step, self.routes.basis, self.routes.costs.reduce_bps)}

    def choice(self, size_bytes: int) -> Choice:
        assert self.experiment.library is not None
        return choice_of(self.experiment.library, self.step.collective, size_bytes, self.servers, self.place)

    def manner(self, choice: Choice, size_bytes: int) -> Manner:
        library, servers = self.experiment.library, self.servers
        assert library is not None
        costs, width = Costs.of(library.numbers()), DTYPES[self.step.dtype]
        own = "" if choice.protocol == "simple" else f"{choice.protocol}."
        channels, cut = self._cut(choice, size_bytes)
        launch, byte = costs["launch"], 8e9 / costs[f"{own}cta.rate"]
        crossing = choice.algorithm == "ring" and servers.found.crossing and servers.nodes > 1
        near, far = self._hops(crossing)
        later = max(0.0, costs[f"{own}nvlink.hop"] - near)
        if choice.algorithm == "nvls_tree":  # of each piece as long as all of them together take the switch
            launch, byte, later = launch + costs["nvls.hop"], channels * servers.nics * 8e9 / costs["nvls.rate"], 0.0
        slice_ns = costs[f"{own}cta.slice"]
        if choice.algorithm == "p2p":
            turns = under_way(self.step.collective, choice.channels, servers, self.settings)
            slice_ns = turns * costs["p2p.turn"] + (slice_ns if own else 0.0)
            byte = byte if own else 8e9 / costs["p2p.rate"]
        return Manner(
            width=width,
            gpus=servers.gpus,
            nics=servers.nics,
            channels=channels,
            protocol=choice.protocol,
            crossing=crossing,
            pxn=self.settings.pxn,
            chunk=max(cut.chunk // width * width, width),
            slices=cut.slices,
            least=cut.least,
            slots=cut.slots,
            launch=launch,
            byte=byte,
            slice=slice_ns,
            near=later,
            far=max(0.0, costs[f"{own}net.hop"] - far),
            padded=1 / EFFICIENCY[choice.protocol],
            of_peer=choice.channels if choice.algorithm == "p2p" else 1,
        )

    def _cut(self, choice: Choice, size_bytes: int) -> tuple[int, Cut]:
        """Channels that get something, and in which pieces."""
        servers, channels = self.servers, choice.channels
        if choice.algorithm == "p2p":
            message = message_bytes(self.step.collective, size_bytes, servers)
            ll_slot = slot_bytes("ll", self.settings)
            chunk = chunk_of(message, choice.protocol, servers, self.settings, ll_slot)
            return servers.channels_of_messages(self.settings), Cut(chunk, 1, 1, STEPS)
        if choice.algorithm == "nvls_tree":
            chunk = nvls_tree_chunk(size_bytes, channels, servers.nics, servers.nodes)
            return channels, Cut(chunk, 1, 1, STEPS)
        if choice.algorithm == "pat":
            return channels, Cut(pat_chunk(self.step.collective, size_bytes, channels, self.settings), 1, 1, STEPS)
        channels = channels_worth(self.step.collective, size_bytes, servers.ranks, choice.protocol, channels)
        if choice.algorithm == "tree":
            return channels, tree_cut(choice.protocol, ceil(size_bytes / channels), servers, self.settings)
        if self.step.collective in ("broadcast", "reduce"):  # slot by slot
            return channels, Cut(slot_bytes(choice.protocol, self.settings), 1, 1, STEPS)
        return channels, ring_cut(choice.protocol, self.settings)

    def _hops(self, crossing: bool) -> tuple[float, float]:
        """What the fabric itself takes of a hop in a server, and of one to another."""
        servers, ways, costs = self.servers, self.routes.ways(self.ranks), self.routes.costs
        order = ring(0, servers.ranks, servers.gpus, servers.nics, crossing=crossing)
        near = far = 0.0
        if servers.gpus > 1:
            near = hop_of(ways.path([(order[0], order[1])]), costs)[0]
        if servers.nodes > 1:
            last = order[servers.gpus - 1] if crossing else order[0]
            far = hop_of(ways.path([(last, order[servers.gpus])]), costs)[0]
        return near, far


def settings_of(library: Library) -> Settings:
    told = {"NCCL_MIN_CTAS": library.channels, "NCCL_MAX_CTAS": library.channels} if library.channels else {}
    return Settings.of({**told, **library.env})


def choice_of(library: Library, collective: str, size_bytes: int, servers: Servers, place: str) -> Choice:
    """What a library takes for a size: of its table, or as its tuner does.  Raises InputError."""
    if library.choice != "tuner":
        for line in library.table:
            if line.collective == collective and (line.up_to is None or size_bytes <= line.up_to):
                return Choice(line.algorithm, line.protocol, line.channels)
        raise InputError(f"library.table has no line for {collective} of {size_bytes} B", place, "add one")
    try:
        return choose(collective, size_bytes, servers, settings_of(library))
    except NoChoice as none:
        raise InputError(none.what, place, none.hint) from None


def way_of(told: Any) -> Sequence[Any]:
    """What ranks connect for, of what a library's choice has told them."""
    library = told.get("library") or {}
    return (library["protocol"], library["channels"]) if library else ()
