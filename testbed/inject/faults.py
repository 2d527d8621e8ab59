"""The faults in a fabric, as fabricd keeps them: put in, listed, taken out. Whoever does so does it by these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from testbed.base.errors import InputError
from testbed.experiment.basis import Basis
from testbed.faults.base import fault_id

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection, Place
    from topologies.graph.fabric import Fabric

Row = dict[str, Any]
"""A primitive, as fabricd lists it."""


class TakesRequests(Protocol):
    """fabricd, or a world that holds it."""

    def request(self, op: str, **arguments: Any) -> dict[str, Any]: ...


def injected(fabricd: TakesRequests) -> list[Row]:
    """The primitives of all faults, without what operators have configured."""
    return [row for row in fabricd.request("faults")["faults"] if not row["request"].get("operator")]


def named(fabricd: TakesRequests, names: Collection[str]) -> list[Row]:
    """Those of the faults with these ids, or, if `all` is among them, of all."""
    return [row for row in injected(fabricd) if "all" in names or fault_id(row["fault"]) in names]


def ids(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of the faults that these are primitives of, in order."""
    return list(dict.fromkeys(fault_id(row["fault"]) for row in rows))


def no_such_fault(name: str, fabricd: TakesRequests) -> InputError:
    """What to say when there is no fault of this id."""
    known = ", ".join(ids(injected(fabricd)))
    return InputError(f"there is no fault {name!r}", "command line", f"there are {known}" if known else "there is none")


def free_name(fabricd: TakesRequests) -> str:
    """f1, f2 ..: the first that no fault has or has had."""
    taken = ids(fabricd.request("counters")["faults"])
    return next(f"f{k}" for k in range(1, len(taken) + 2) if f"f{k}" not in taken)


def place_of(
    injection: Injection, experiment: Experiment, fabric: Fabric, *, nth: int = 0, programs: bool = False
) -> Place:
    """`fabric` is the experiment's graph. `nth`: of the experiment's faults, so that its draws are its own; `programs`:
    ranks run programs besides workers. Raises CannotInject."""
    basis = Basis(experiment)
    rate, control = basis.line_rate_bps(range(fabric.ranks)), basis.transport.cc.short
    place = injection.place(fabric, rate, experiment.seed + nth, control, basis.built)
    return replace(place, programs=programs)


def requests_of(
    injections: Sequence[Injection], names: Sequence[str], experiment: Experiment, fabric: Fabric, *,
    now_ns: float = 0.0, programs: bool = False,
) -> list[Row]:  # fmt: skip
    """What puts them in; their times count from `now_ns`. `fabric`, `programs`: as `place_of`. Raises CannotInject."""
    found: list[Row] = []
    for nth, (injection, name) in enumerate(zip(injections, names, strict=True)):
        place = place_of(injection, experiment, fabric, nth=nth, programs=programs)
        found += injection.requests(place, name, now_ns=now_ns)
    return found


def put_in(fabricd: TakesRequests, requests: Iterable[Row]) -> None:
    """Puts all primitives in, or none. Raises FabricdError."""
    done: list[Row] = []
    try:
        for request in requests:
            fabricd.request("inject", **request)
            done.append(request)
    except BaseException:
        heal(fabricd, done)
        raise


def heal(fabricd: TakesRequests, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Takes primitives out; returns the ids of their faults."""
    there = list(rows)
    for row in there:
        fabricd.request("heal", fault=row["fault"])
    return ids(there)
