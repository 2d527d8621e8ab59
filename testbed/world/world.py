"""A world: a fabric with the virtual clock that stands still unless it is told to go on, and a job on it without end.

Everything that can be read at a hold follows from the experiment, its seed and what was asked of the world, in that
order. Not from the machine, nor from how long anybody thinks. See docs/held.md.
"""

from __future__ import annotations

import hashlib
import json
import select
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hardware.client import FabricdError, FabricdSilent
from testbed.base.errors import UserError
from testbed.experiment.overrides import override
from testbed.fabric.lab import Lab
from testbed.fabric.postmortem import why_dead
from testbed.faults.base import fault_id
from testbed.inject.agent import NAME as AGENT
from testbed.inject.agent import Agent
from testbed.operate.record import Done, log
from testbed.plan import together
from testbed.plan.hardware import line_rate_bps
from testbed.world.condition import parse
from testbed.world.history import PERIOD_NS, Counters, History, emulated
from testbed.world.job import Job, plan_of
from testbed.world.steps import Step

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection
    from topologies import Fabric

LOOK_S = 0.25
READS = frozenset({"counters", "status", "waits", "faults", "flows", "traffic_results", "parameters", "log"})
"""Requests to fabricd that change nothing."""
_UNSAID = frozenset({"held", "act", "ping", "ovs_slow"})  # events that are no news of the emulated world
_GRAIN_NS = (500, 2_000, PERIOD_NS)
_GRAINS_PER_STEP = 16
OPAQUE = "world"
RESTART_STEP_NS, RESTART_NS = 1_000, 10_000_000


class WorldGone(UserError):
    """The world cannot go on: fabricd, Open vSwitch or a worker is gone or hangs."""


@dataclass
class World:
    """Made by `up`. As a context manager it closes itself. Its calls belong to one thread at a time."""

    lab: Lab
    experiment: Experiment
    job: Job
    time_ns: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)  # what fabricd has told of, in order
    _history: History = field(default_factory=History)
    _going: int | None = None  # a hold that was asked for and not waited for: somebody has interrupted us
    _agent: Agent | None = None
    _closed: bool = False

    # -- up

    @classmethod
    def up(cls, experiment: Experiment, *, opaque: bool = False, faults: bool = True) -> World:
        """Brings the fabric up, with the workload as its job; the clock is held at 0, the job about to begin.

        `faults`: those of `inject:` are put in. `opaque`: the fabric's directory does not have the experiment's name;
        faults are never in it. Raises UserError; nothing is left then.
        """
        hidden = {"inject": [], "capture": [], **({"name": OPAQUE} if opaque else {})}
        lab = Lab.up(experiment.model_copy(update=hidden))
        try:
            return cls._begin(lab, experiment, experiment.inject if faults else ())
        except BaseException:
            lab.down()
            raise

    @classmethod
    def _begin(cls, lab: Lab, experiment: Experiment, injections: Sequence[Injection]) -> World:
        lab.fabricd.subscribe(acts=AGENT)
        lab.fabricd.request("run_until", time_ns=0)
        requests: list[dict[str, Any]] = []
        for number, injection in enumerate(injections, 1):
            place = _place(injection, lab, experiment, experiment.seed + number - 1)
            requests += injection.requests(place, f"f{number}", now_ns=0.0)
        world = cls(lab, experiment, Job.start(lab, experiment, together.struck(requests)))
        world._agent = Agent(lab, world.job.kill)
        try:
            for request in requests:
                lab.fabricd.request("inject", **request)
            lab.fabricd.request("start", ranks=world.job.ranks)
            world._going = 0
            world._wait()
            world._remember()
        except BaseException:
            world.job.close()
            raise
        return world

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    # -- time

    def advance(self, ns: int) -> None:
        """Lets time go on by exactly so much. Raises WorldGone."""
        end = self._now() + ns
        while self.time_ns < end:
            snapshot = (self.time_ns // PERIOD_NS + 1) * PERIOD_NS
            self._go(min(end, snapshot))
            if self.time_ns == snapshot:
                self._remember()

    def advance_steps(self, count: int, limit_ns: int) -> bool:
        """Until so many more steps have ended, but for no longer than `limit_ns`; returns whether they have."""
        goal = len(self.steps) + count
        return self.until(lambda world: len(world.steps) >= goal, limit_ns)

    def until(self, condition: str | Callable[[World], bool], limit_ns: int) -> bool:
        """Until the condition is met, but for no longer than `limit_ns`; returns whether it is.

        It is looked at now, and then every 16th of a step or so. Raises InputError for one that does not parse.
        """
        met = parse(condition).watched(self) if isinstance(condition, str) else condition
        end = self._now() + limit_ns
        while not met(self):
            if self.time_ns >= end:
                return False
            self.advance(min(self._grain(), end - self.time_ns))
        return True

    def _grain(self) -> int:
        """How far to go before the next look: less than a step takes, more when none has ended for long."""
        least, first, most = _GRAIN_NS
        best = self.best_ns
        usual = round(best / _GRAINS_PER_STEP) if best else first
        idle = self.time_ns - round(self.steps[-1].end_ns if self.steps else 0)
        return min(max(usual, least, idle // _GRAINS_PER_STEP), most)

    def _now(self) -> int:
        """The time of the hold; finishes what was interrupted."""
        if self._going is not None:
            self._wait()
        return self.time_ns

    def _go(self, time_ns: int) -> None:
        self._now()
        with _Gone(self):
            self.lab.fabricd.request("run_until", time_ns=time_ns)
        self._going = time_ns
        self._wait()

    def _wait(self) -> None:
        """Until the clock is held at the time that was asked for; all lines up to it are then read."""
        fabricd = self.lab.fabricd
        with _Gone(self):
            while self._going is not None:
                for event in fabricd.events(0.0):
                    self._event(event)
                if self._going is not None:
                    self._sleep()
        self.job.read()

    def _sleep(self) -> None:
        poll = select.poll()
        for fd in (self.lab.fabricd.fileno(), *self.job.pipes):
            poll.register(fd, select.POLLIN)
        heard = poll.poll(LOOK_S * 1000)
        self.job.read()
        if not heard:
            self.lab.fabricd.pulse()
            self._look_at_workers()

    def _event(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "act":
            assert self._agent
            self._agent.act(event)
        elif kind == "held" and event["time_ns"] == self._going:
            assert self._going is not None
            self.time_ns, self._going = self._going, None
        elif kind == "worker_hung":
            raise WorldGone(f"the worker of rank {event['rank']} hangs: {event['reason']}")
        elif kind == "ovs_lost":
            raise WorldGone(event["reason"])
        if kind not in _UNSAID:
            self.events.append(event)

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
        self._history.add(self.time_ns, self.counters())

    def heed(self) -> None:
        """Does what fabricd asks for between two of our calls, because others have asked it for something."""
        with _Gone(self):
            for event in self.lab.fabricd.events(0.0):
                self._event(event)

    def restart(self, workload: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Ends the job's workers, and starts it anew: with another workload, if one is given as a file would have it.

        As long passes as the fabric takes to forget its offloads. Raises InputError for a workload that does not fit
        (then nothing has happened), WorldGone.
        """
        self._now()
        experiment = self.with_workload(workload)
        self.job.end()
        while any(w["state"] in ("running", "waiting") for w in self.request("status")["workers"]):
            self._sleep()  # until fabricd has seen that they are gone
        with _Gone(self):
            for event in self.lab.fabricd.events(0.0):
                if event["event"] != "worker_lost":  # that they are gone is no news
                    self._event(event)
        end = self.time_ns + RESTART_NS
        while (why := self._next_job()) is not None:
            if self.time_ns >= end:
                raise WorldGone(f"the job cannot start anew: {why}")
            self.advance(RESTART_STEP_NS)
        self.experiment = experiment
        self.job = Job.start(self.lab, experiment, self._struck(), self.job.said)
        self._agent = Agent(self.lab, self.job.kill)
        with _Gone(self):
            self.lab.fabricd.request("run_until", time_ns=self.time_ns)
            self.lab.fabricd.request("start", ranks=self.job.ranks)
        self._going = self.time_ns
        self._wait()

    def with_workload(self, workload: Sequence[Mapping[str, Any]] | None) -> Experiment:
        """The experiment with another workload. Raises InputError if it does not fit."""
        changed = [] if workload is None else [f"workload={json.dumps([*workload])}"]
        experiment = override(self.experiment, changed)
        plan_of(experiment)
        return experiment

    def _next_job(self) -> str | None:
        """None, or why the ranks may not connect once more yet."""
        try:
            self.lab.fabricd.request("next_job")
        except FabricdSilent:
            raise
        except FabricdError as error:
            return str(error)
        return None

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
        """Counters at every 50 us since the beginning."""
        return self._history

    def actions(self) -> Sequence[Done]:
        """What operators have done."""
        return log(self.lab.dir)

    def digest(self) -> str:
        """Of all that can be read at this hold: equal in two worlds of which the same was asked."""
        status = self.request("status")
        readable = [
            self.time_ns,
            emulated(self.counters()),
            [step.to_dict() for step in self.steps],
            self.errors,
            status["workers"],
            [_without_number(fault) for fault in self.request("faults")["faults"]],
            [{**flow, "fast_packets": None} for flow in self.lab.flows()],  # whichever way they went
            self.events,
        ]
        return hashlib.sha256(json.dumps(readable, sort_keys=True).encode()).hexdigest()

    # -- changes

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """A request to fabricd. What it changes it changes now; returns when all of that has happened.

        Raises FabricdError if it is refused.
        """
        self._now()
        answer = self.lab.fabricd.request(op, **arguments)
        if op not in READS:
            self.settle()
        return answer

    def settle(self) -> None:
        """Returns when all has happened that happens now: after changes that were made in other ways."""
        self._go(self._now())

    def put_in(self, injection: Injection, name: str | None = None) -> str:
        """Puts a fault in, now; its times count from now. Returns its id. Raises CannotInject, FabricdError."""
        name = name or self._free_name()
        place = _place(injection, self.lab, self.experiment, self.experiment.seed)
        done: list[str] = []
        try:
            for request in injection.requests(place, name, now_ns=self._now()):
                self.lab.fabricd.request("inject", **request)
                done.append(request["fault"])
        except BaseException:
            for one in done:
                self.lab.fabricd.request("heal", fault=one)
            raise
        self.settle()
        return name

    def take_out(self, name: str) -> list[str]:
        """Heals a fault, or `all`; returns the ids. There may be none of that name."""
        self._now()
        every = self.lab.fabricd.request("faults")["faults"]
        here = [f["fault"] for f in every if not f["request"].get("operator")]
        chosen = [fault for fault in here if name in ("all", fault_id(fault))]
        for fault in chosen:
            self.lab.fabricd.request("heal", fault=fault)
        self.settle()
        return list(dict.fromkeys(fault_id(fault) for fault in chosen))

    def _free_name(self) -> str:
        taken = {fault_id(f["fault"]) for f in self.counters()["faults"]}
        return next(f"f{k}" for k in range(1, len(taken) + 2) if f"f{k}" not in taken)

    # -- the end

    def close(self) -> None:
        """Takes the fabric down; nothing of it is left. Raises MachineError if that fails."""
        if not self._closed:
            self._closed = True
            self.job.close()
            self.lab.down()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Gone:
    """Says of a fabricd that is gone why, as WorldGone."""

    def __init__(self, world: World) -> None:
        self._lab = world.lab

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(value, FabricdError):
            hint = f"testbed clean {self._lab.id}"
            raise WorldGone(f"fabric {self._lab.id} cannot go on: {value}", why_dead(self._lab.record), hint) from None


def _without_number(fault: dict[str, Any]) -> dict[str, Any]:
    """Without the number that the request had among all: how much was read before is no matter of the world."""
    return {**fault, "request": {key: value for key, value in fault["request"].items() if key != "id"}}


def _place(injection: Injection, lab: Lab, experiment: Experiment, seed: int) -> Any:
    rate = line_rate_bps(experiment, lab.fabric, range(lab.fabric.ranks))
    return injection.place(lab.fabric, rate, seed, experiment.transport.cc.name)
