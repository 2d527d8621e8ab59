"""What all worlds have in common: a fabric with a job on it without end, what it has said, and what was put in.

A world stands still unless it is told to go on (world.py), or it goes on by itself (real.py). How time passes is all in
which they differ.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from hardware.client import FabricdError, FabricdGone
from testbed.base.errors import UserError
from testbed.experiment.overrides import override
from testbed.fabric.lab import Lab
from testbed.fabric.parts import trouble, why_dead
from testbed.faults.base import fault_id
from testbed.inject import faults
from testbed.inject.agent import Agent
from testbed.machine.jsonlines import HasFileno, ready
from testbed.machine.processes import wait_for
from testbed.operate.record import Done, log
from testbed.plan import together
from testbed.world.condition import parse
from testbed.world.history import Counters, History
from testbed.world.job import Job, plan_of
from testbed.world.steps import Step

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection
    from topologies import Fabric

READS = frozenset(
    {"counters", "status", "waits", "faults", "flows", "traffic_results", "parameters", "programs", "log"}
)
"""Requests to fabricd that change nothing."""
_UNSAID = frozenset({"held", "act", "ping", "ovs_slow", "program_ended"})  # no news of the emulated world
OPAQUE = "world"
_END_S = 2.0


class WorldGone(UserError):
    """The world cannot go on: fabricd, Open vSwitch or a worker is gone or hangs."""


class Stopped(UserError):
    """A part of the fabric stands still. As soon as it goes on, so can the world."""


def always() -> bool:
    return True


@dataclass
class AnyWorld(ABC):
    """Made by `up`. As a context manager it closes itself. Its calls belong to one thread at a time."""

    lab: Lab
    experiment: Experiment
    job: Job
    events: list[dict[str, Any]] = field(default_factory=list)  # what fabricd has told of, in order
    wanted: Callable[[], bool] = always
    """Whether somebody still waits for `advance` and `until`: they end early if not."""
    _history: History = field(default_factory=History)
    _agent: Agent | None = None
    _closed: bool = False
    _opaque: bool = False
    _abouts: dict[str, Any] = field(default_factory=dict)  # by fault's id: what fabricd is not told of it

    # -- up

    @classmethod
    def up(cls, experiment: Experiment, *, opaque: bool = False, faults: bool = True) -> Self:
        """Brings the fabric up, with the workload as its job.

        `faults`: those of `inject:` are put in. `opaque`: the fabric's directory does not have the experiment's name
        (faults are never in it), and fabricd is told of what is put in later what it does, not what it is called.
        Raises UserError; nothing is left then.
        """
        hidden = {"inject": [], "capture": [], **({"name": OPAQUE} if opaque else {})}
        lab = Lab.up(experiment.model_copy(update=hidden))
        try:
            world = cls._begin(lab, experiment, experiment.inject if faults else ())
            world._opaque = opaque
            return world
        except BaseException:
            lab.down()
            raise

    @classmethod
    @abstractmethod
    def _begin(cls, lab: Lab, experiment: Experiment, injections: Sequence[Injection]) -> Self: ...

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    # -- time

    @property
    @abstractmethod
    def time_ns(self) -> int: ...

    @abstractmethod
    def advance(self, ns: int) -> None:
        """Lets so much time pass."""

    def until(self, condition: str | Callable[[Any], bool], limit_ns: int) -> bool:
        """Until the condition is met, but for no longer than `limit_ns`; returns whether it is.

        It is looked at now, and again and again. Raises InputError for one that does not parse.
        """
        met = parse(condition).watched(self) if isinstance(condition, str) else condition
        end = self._now() + limit_ns
        while not met(self):
            if (left := end - self._now()) <= 0 or not self.wanted():
                return False
            self._towards(left)
        return True

    @abstractmethod
    def _towards(self, left_ns: int) -> None:
        """Lets some time pass, but no more than that, before a condition is looked at again."""

    @abstractmethod
    def _now(self) -> int: ...

    @abstractmethod
    def settle(self) -> None:
        """Returns when all has happened that happens now: after changes that were made in other ways."""

    def advance_steps(self, count: int, limit_ns: int) -> bool:
        """Until so many more steps have ended, but for no longer than `limit_ns`; returns whether they have."""
        goal = len(self.steps) + count
        return self.until(lambda world: len(world.steps) >= goal, limit_ns)

    def _event(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "act":
            assert self._agent
            self._agent.act(event)
        elif kind == "worker_hung":
            raise WorldGone(f"the worker of rank {event['rank']} hangs: {event['reason']}")
        elif kind == "own_failed":
            raise WorldGone(f"{event['name']}: {event['function']}() {event['reason']}")
        elif kind == "ovs_lost":
            raise WorldGone(event["reason"])
        elif kind == "part_lost":
            look_at_parts(self.lab)
        if kind not in _UNSAID:
            self.events.append(event)

    def _hear(self, wall_s: float) -> None:
        """Waits until something is said, but for no longer than that; who says nothing is looked at."""
        lab = self.lab
        files: list[int | HasFileno] = [lab.fabricd, lab.supervision, *self.job.pipes]
        heard = ready(files, wall_s)
        self.job.read()
        if not heard or lab.supervision in heard:
            look_at_parts(lab)
        if not heard:
            with explaining(lab):
                lab.fabricd.pulse()
                self._look_at_workers()

    def _look_at_workers(self) -> None:
        """A worker that has ended before it has connected would be waited for, for ever."""
        ended = self.job.ended()
        if not ended:
            return
        absent = {w["rank"] for w in self.lab.fabricd.request("status")["workers"] if w["state"] == "absent"}
        for rank, why in ended.items():
            if rank in absent:
                raise WorldGone(f"the worker of rank {rank} does not start: {why}")

    def _remember(self) -> None:
        self._history.add(self._now(), self.counters())

    def heed(self) -> None:
        """Does what fabricd asks for between two of our calls, because others have asked it for something."""
        with explaining(self.lab):
            for event in self.lab.fabricd.events(0.0):
                self._event(event)

    # -- the job

    def with_workload(self, workload: Sequence[Mapping[str, Any]] | None) -> Experiment:
        """The experiment with another workload. Raises InputError if it does not fit."""
        changed = [] if workload is None else [f"workload={json.dumps([*workload])}"]
        experiment = override(self.experiment, changed)
        plan_of(experiment)
        return experiment

    def _struck(self) -> set[int]:
        return together.struck(fault["request"] for fault in self.request("faults")["faults"])

    # -- reads

    @property
    def steps(self) -> list[Step]:
        """All steps of the job that have ended by now."""
        return self.job.said.steps

    @property
    def best_ns(self) -> float | None:
        """The time of the quickest step, None before the first has ended."""
        return self.job.said.best_ns

    @property
    def errors(self) -> dict[int, str]:
        """The ranks whose workers have given up, each with why."""
        return self.job.said.errors

    def counters(self) -> Counters:
        """All of fabricd's counters, now."""
        return self.request("counters")

    def history(self) -> History:
        """Counters that were kept since the beginning."""
        return self._history

    def actions(self) -> Sequence[Done]:
        """What operators have done."""
        return log(self.lab.dir)

    # -- changes

    @abstractmethod
    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """A request to fabricd. Raises FabricdError if it is refused."""

    def _named(self, op: str, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer of fabricd's, with the names of faults that it was not told."""
        for fault in answer["faults"] if op == "faults" else ():
            if (about := self._abouts.get(fault_id(fault["fault"]))) is not None:
                fault["request"]["about"] = about
        return answer

    def put_in(self, injection: Injection, name: str | None = None) -> str:
        """Puts a fault in, now; its times count from now. Returns its id. Raises CannotInject, FabricdError."""
        name = name or faults.free_name(self)
        lab = self.lab
        requests = faults.requests_of(
            [injection], [name], self.experiment, lab.fabric, now_ns=self._now(), programs=lab.kernel
        )
        if self._opaque:
            self._abouts[name] = [request.pop("about") for request in requests][-1]
        faults.put_in(lab.fabricd, requests)
        self.settle()
        return name

    def take_out(self, name: str) -> list[str]:
        """Heals a fault, or `all`; returns the ids. There may be none of that name."""
        self._now()
        healed = faults.heal(self.lab.fabricd, faults.named(self.lab.fabricd, [name]))
        self.settle()
        return healed

    # -- the end

    def close(self) -> None:
        """Takes the fabric down; nothing of it is left. Raises MachineError if that fails."""
        if not self._closed:
            self._closed = True
            self.job.close()
            self.lab.down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def look_at_parts(lab: Lab) -> None:
    """Raises WorldGone for a part without which the fabric cannot go on, Stopped for one that stands still."""
    lab.supervision.look()
    found = trouble(lab.record)
    if found and found.over:
        lab.supervision.settle()
        found = trouble(lab.record)
    if found:
        what = f"fabric {lab.id} cannot go on: {found.what}"
        if found.over:
            raise WorldGone(what, str(lab.dir), f"testbed clean {lab.id}")
        raise Stopped(what, str(lab.dir), found.hint)


@contextmanager
def explaining(lab: Lab) -> Iterator[None]:
    """Says of a fabricd that is gone why, as WorldGone; of one that stands still that it does, as Stopped."""
    try:
        yield
    except FabricdError as error:
        if isinstance(error, FabricdGone):  # its connection closes first
            wait_for(lambda: not lab.record.processes["fabricd"].alive(), _END_S)
        look_at_parts(lab)
        what, hint = f"fabric {lab.id} cannot go on: {error}", f"testbed clean {lab.id}"
        raise WorldGone(what, why_dead(lab.record), hint) from None
