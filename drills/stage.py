"""A world on which a case is played: its healthy history, its herrings, its faults at their times.

Twins are further stages of the same case: without the faults, without the student, or mended when he first acted. Time
is emulated, so whatever differs between two of them differs for that reason alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import TYPE_CHECKING, Any, Protocol

from drills.sheet.carried import measured
from drills.sheet.case import Case, Drawn
from drills.sheet.truth import Cause
from testbed.base.errors import UserError

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.faults import Injection
    from testbed.world.steps import Step
    from topologies.graph.fabric import Fabric

LONGEST_STEP = 20
"""Times the warm-up after which the first step must have ended."""


class DrillWorld(Protocol):
    """What a drill uses of a world (testbed/world) that stands still, or on the real clock goes on."""

    @property
    def time_ns(self) -> int: ...
    @property
    def steps(self) -> Sequence[Step]: ...
    @property
    def fabric(self) -> Fabric: ...
    @property
    def experiment(self) -> Experiment:
        """With the workload that is repeated now."""
        ...

    def advance(self, ns: int) -> None: ...
    def until(self, condition: str | Callable[[Any], bool], limit_ns: int) -> bool: ...
    def counters(self) -> Mapping[str, Any]: ...
    def put_in(self, injection: Injection, name: str | None = None) -> str: ...
    def take_out(self, name: str) -> Any: ...
    def digest(self) -> str: ...
    def request(self, op: str, **arguments: Any) -> dict[str, Any]: ...
    def close(self) -> None: ...


Up = Callable[[Case], DrillWorld]
"""Brings up the world of a case: fabric and job, and nothing of its faults."""


def world_of(case: Case) -> DrillWorld:
    if case.drill.on_real_clock:
        from testbed.world.real import RealWorld

        return RealWorld.up(case.experiment, opaque=True)
    from testbed.world.world import World

    return World.up(case.experiment, opaque=True)


@dataclass
class Stage:
    """One world of a case. `healthy` leaves its faults out, whatever the case says."""

    case: Case
    world: DrillWorld
    drawn: Drawn
    began_ns: int  # when the student gets it
    healthy_step_ns: float
    healthy_period_ns: float = 0.0
    """From the start of one healthy step to the next: a job's speed counts the gap between steps, too."""
    zero_ns: int = 0
    """From which times of the drill's file count: on the real clock the end of the job's first step, as the start takes
    as long as the machine takes."""
    later: list[tuple[int, Injection]] = field(default_factory=list)
    """Faults that were put in during the game, and when."""
    _faults: list[str] = field(default_factory=list)
    _ids: int = 0

    @classmethod
    def up(cls, case: Case, up: Up = world_of, *, healthy: bool = False, begin: bool = True) -> Stage:
        """The world at the moment when the student gets it (`begin` False: when all is put in). Raises UserError."""
        world = up(case)
        try:
            drill = case.drill
            if not world.until(lambda w: bool(w.steps), LONGEST_STEP * round(drill.warmup)):
                hint = "a smaller job, or a longer warm-up"
                raise UserError("no step of the job ends in the healthy world", drill.place("job"), hint)
            drawn = case.draw(measured(world.fabric, case.experiment, world.counters()["ports"]))
            zero = world.time_ns if drill.on_real_clock else 0
            began_ns = max(zero + round(drill.begins_ns), world.time_ns)
            stage = cls(case, world, drawn, began_ns, 0.0, zero_ns=zero)
            for herring in drawn.benign:
                stage._put_in(_from_now(herring, world.time_ns - zero))
            for fault in () if healthy else drawn.faults:
                stage._faults.append(stage._put_in(_from_now(fault, world.time_ns - zero)))
            stage.until_ns(zero + round(drill.warmup))
            steps = [step for step in world.steps if step.start_ns >= zero]
            if not steps:
                raise UserError("no step of the job ends within the warm-up", drill.place("warmup"), "a longer one")
            # a first step may connect, and so take longer
            stage.healthy_step_ns = median_high(step.end_ns - step.start_ns for step in steps)
            usual = steps[1:] or steps
            stage.healthy_period_ns = (usual[-1].end_ns - usual[0].start_ns) / len(usual)
            if begin:
                stage.until_ns(stage.began_ns)
            return stage
        except BaseException:
            world.close()
            raise

    def until_ns(self, time_ns: int) -> None:
        """Lets time pass up to a moment."""
        if time_ns > self.world.time_ns:
            self.world.advance(time_ns - self.world.time_ns)

    def put_in(self, injection: Injection) -> Cause:
        """One more fault, now; the truth has it from now on. Raises CannotInject, FabricdError."""
        cause, drawn = self.case.cause(injection), self.drawn
        self._faults.append(self._put_in(injection))
        self.later.append((self.world.time_ns, injection))
        self.drawn = replace(drawn, faults=(*drawn.faults, injection), truth=(*drawn.truth, cause))
        return cause

    def _put_in(self, injection: Injection) -> str:
        """Under an id that does not tell faults from herrings."""
        self._ids += 1
        return self.world.put_in(injection, f"w{self._ids}")

    def written(self) -> list[dict[str, Any]]:
        """The faults with their parameters; all times are of this world."""
        first = len(self.drawn.faults) - len(self.later)
        later = [replace(injection, at=injection.at + at_ns) for at_ns, injection in self.later]
        return [injection.written() for injection in (*self.drawn.faults[:first], *later)]

    def mend(self) -> None:
        """Takes the faults out, as if they had never been put in."""
        for name in self._faults:
            self.world.take_out(name)
        self._faults = []

    def close(self) -> None:
        self.world.close()


def _from_now(injection: Injection, now_ns: float) -> Injection:
    """Its time counted from now: a world takes it so."""
    return replace(injection, at=max(0.0, injection.at - now_ns))
