"""What is asked of a step of a workload: each kind is a class in this room that answers for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pydantic import Field, ValidationInfo

from testbed.base.types import Model, mistake
from testbed.experiment.blocks.fabric import dscp_of
from testbed.experiment.blocks.transport import Own

if TYPE_CHECKING:
    from testbed.experiment.blocks.clock import Clock
    from testbed.experiment.blocks.fabric import FabricSpec
    from topologies.graph.fabric import Fabric
    from workloads.base.entry import Algorithm
    from workloads.steps.plan.training import Training

Path = tuple[str | int, ...]
Found = tuple[Path, str, str]  # path, what, hint


class Blocks(Protocol):
    """What a step is checked against."""

    @property
    def seed(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def fabric(self) -> FabricSpec: ...
    @property
    def workload(self) -> Sequence[Step]: ...
    @property
    def inject(self) -> Sequence[Any]: ...
    @property
    def library(self) -> Any: ...


class Step(Model):
    """A kind of step: what holds where it says nothing else."""

    kind: ClassVar[str]
    """The key that it is known by, and what messages call it."""
    title: ClassVar[str]
    """For its table in docs/experiment.md."""
    tables: ClassVar[Mapping[str, str]] = {}
    """Title -> model of what has a table of its own behind it."""
    unpredictable: ClassVar[str] = ""
    """Why there is no model of what it takes."""

    transport: Own | None = Field(
        default=None,
        description="what it sends by, where that is other than `transport` further above: any of its keys "
        "(docs/mixed-controls.md)",
    )

    def own_transports(self) -> Iterator[tuple[Path, tuple[Own | None, ...]]]:
        """What it, its groups and its flows send by, each over those before it, and where that is said."""
        if self.transport:
            yield ("transport",), (self.transport,)

    @classmethod
    def written_algorithms(cls, written: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """(collective, algorithm) that such a step names, as it is written: nothing of it has been checked."""
        yield from _pairs(written.get("algorithm"))

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        """What is wrong with it on this fabric, with paths from the step on."""
        yield from ()

    def beside(self, at: Path, blocks: Blocks) -> Iterator[Found]:
        """What the experiment cannot have beside it, with whole paths; `at` is its own."""
        yield from ()

    def algorithms(self, ranks: int) -> list[tuple[str, str]]:
        """(collective, algorithm) of all that it does on a fabric of so many ranks, as far as it says so."""
        return list(getattr(self, "algorithm", {}).items())

    def alone(self, endpoints: Collection[int]) -> Collection[int]:
        """Those of a fabric's endpoints that share a worker's process with nobody."""
        return ()

    def considered(self) -> Iterator[tuple[Any, Algorithm]]:
        """The offloads that `auto` is to look at, too, and the collective that it is about."""
        yield from ()

    def named(self) -> Iterator[tuple[Any, Algorithm]]:
        """The algorithm of ours that it names, and the collective that it is of."""
        yield from ()

    def not_predicted(self) -> Iterator[Found]:
        """What there is no model of, with paths from the step on."""
        if self.unpredictable:
            yield (), self.unpredictable, ""

    def quickly(self, fabric: Fabric) -> Self:
        """The same without what takes long to choose: to see who sends what to whom."""
        return self

    def place_of_group(self, name: str) -> Path:
        """Where a group of its graph stands, from the step on."""
        return (self.kind,)

    @property
    def label(self) -> str:
        """What it does, in words for whoever waits."""
        return self.kind

    @property
    def offered(self) -> float | None:
        """The share of its line rate that a sender offers, of flows that are drawn; None: they are written."""
        return None

    @property
    def scaled_by(self) -> int:
        """What bytes, computations and latencies are divided by."""
        return 1

    def unscalable(self) -> Iterator[Found]:
        """What of it does not become 1/s of itself, with paths from the step on."""
        yield from ()

    def whole(self) -> Self:
        """The same without what makes it small enough to be run."""
        return self

    def training(self) -> Training | None:
        """What is trained, of the whole model, if anything is."""
        return None


def _pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    """Of `{COLLECTIVE: ALGORITHM}`, if it is that."""
    if isinstance(value, dict):
        yield from value.items()


def under(written: Any, key: str) -> Mapping[str, Any]:
    """The mapping at a key of what has not been checked; an empty one if there is none."""
    value = written.get(key) if isinstance(written, dict) else None
    return value if isinstance(value, dict) else {}


def below(path: Path, found: Iterator[Found]) -> Iterator[Found]:
    """The same with paths from further above."""
    return (((*path, *rest), what, hint) for rest, what, hint in found)


def rank_out_of_range(rank: int, ranks: int) -> tuple[str, str] | None:
    """What is wrong with a rank of a fabric that has so many, and which there are."""
    if 0 <= rank < ranks:
        return None
    return f"there is no rank {rank}", f"this fabric has ranks 0 to {ranks - 1}"


class OfGroup(Protocol):
    """What holds for a group of ranks."""

    @property
    def transport(self) -> Own | None: ...


def of_groups(
    at: Path, above: Own | None, groups: Mapping[str, OfGroup]
) -> Iterator[tuple[Path, tuple[Own | None, ...]]]:
    """What groups send by, over what their step does; `at` is the step's own key."""
    for name, group in groups.items():
        if group.transport:
            yield (*at, "groups", name, "transport"), (above, group.transport)


def no_dscp(its: int | None, spec: FabricSpec) -> tuple[str, str] | None:
    """What is wrong with a class that packets should have, and what to do, if no DSCP is in it."""
    if its is None or dscp_of(its, spec) is not None:
        return None
    what = f"no DSCP is in class {its}, so nothing can be sent in it"
    return what, f"fabric.switch.dscp: {{{its * 8}: {its}}} beside the others"


def absolute(value: str, info: ValidationInfo) -> str:
    """A file's path as it is seen from the folder of the experiment file."""
    if not value:
        raise mistake("the name of the file is empty", "a path relative to the experiment file")
    directory: Any = (info.context or {}).get("directory", ".")
    return str(FilePath(directory, value).absolute())
