"""A sweep whose points run several at a time: handed out, brought home, run again where a machine was lost.

The sweep's folder, its rows and its table are those of `testbed run` without `--on`, and so are all figures. What was
lost with a machine runs again, on another. A point that failed on one runs once more on another, which tells the
point's fault from the machine's: a machine at which points fail that others can run gets no more. As often as
`--retries` says it runs again in any case.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store.folder import RunFolder
from results.store.sweeps import described
from testbed.base.errors import InputError, MachineError, Problem, UserError
from testbed.base.progress import Progress
from testbed.base.this_process import caught
from testbed.fabric.fork_server import ControllerServer
from testbed.machine.processes import machine
from testbed.machines import known
from testbed.machines.blame import Blame
from testbed.machines.engine import Ended, Engine, Here, InTurn, Lost, Place
from testbed.machines.identity import file_hashes, point_hash, resolved_hash
from testbed.machines.needs import memory_of, room
from testbed.machines.processes import Processes
from testbed.machines.where import HERE, Other
from testbed.run import sweep as sweeps

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.machines.remote import Remote

KILLED_MOST = 3
"""A point whose process is killed, or lost with its machine, so often is given up: there may be no memory for it."""
ASIDE = ".aside"
"""Of the sweep's folder while it runs: who runs points here, and what comes home."""


@dataclass
class _Point:
    """A point that is to run, or runs."""

    number: int
    experiment: Experiment
    values: dict[str, Any]
    sha256: str
    failed_at: list[str] = field(default_factory=list)
    """Where, in this order."""
    killed: int = 0


@dataclass
class OnMachines:
    """A Runner: so many points at a time on this machine, and as many as they have room for on others."""

    here: int = 0
    others: Sequence[Other] = ()
    retries: int = 0
    again: Path | None = None
    """A finished sweep whose failed points are to run again."""
    _waiting: deque[int] = field(default_factory=deque)
    _out: dict[int, _Point] = field(default_factory=dict)
    _reached: list[Remote] = field(default_factory=list)

    def __enter__(self) -> OnMachines:
        return self

    def __exit__(self, *_: object) -> None:
        for remote in self._reached:
            remote.close()

    def __call__(self, experiment: Experiment, folder: RunFolder, progress: Progress) -> known.Rows:
        self._experiment, self._folder, self._progress = experiment, folder, progress
        self._waiting = deque(range(sweeps.count(experiment)))
        self._out = {}
        self._again: deque[_Point] = deque()
        self._blame = Blame(self.retries)
        yield from self._taken_over()
        if self._waiting:
            yield from self._run()

    # -- before anything runs

    def reach(self, experiment: Experiment, progress: Progress) -> None:
        """Reaches the other machines, which must all be fit for this sweep. Raises UserError."""
        if not self.others:
            return
        from testbed.machines.remote import Remote, all_of

        progress.stage(f"reaching {len(self.others)} machines")
        self._reached = all_of(Remote, self.others)
        self._each_once()
        named = sweeps.points(experiment) if sweeps.count(experiment) <= sweeps.CHECKED else ()
        files: dict[str, str] = {}
        for one in (experiment, *(p.experiment for p in named)):
            files |= file_hashes(one)
        sweep = {
            "text": json.dumps({**experiment.written(), "sweep": experiment.sweep}),
            "name": experiment.name,
            "directory": str(experiment.directory.absolute()),
            "files": files,
        }
        progress.stage("having all machines check the sweep")
        all_of(lambda remote: remote.check(sweep), self._reached)

    def _each_once(self) -> None:
        """Raises InputError for a machine that two names lead to: its points would take each other's room."""
        seen = {machine(): f"this machine, which runs {self.here} points already"} if self.here else {}
        found = []
        for remote in self._reached:
            if before := seen.get(remote.machine):
                found.append(Problem(f"{remote.name} is {before}", remote.other.place, "name each machine once"))
            seen.setdefault(remote.machine, f"the same machine as {remote.name}")
        if found:
            raise InputError(found[0].what, found[0].where, found[0].hint, found[1:])

    # -- what was done before

    def _taken_over(self) -> known.Rows:
        """The points that an earlier start has done."""
        total = len(self._waiting)
        done: list[tuple[int, dict[str, Any]]] = []
        for path in [self.again] if self.again else known.earlier(self._folder, self._experiment.name):
            its = known.done_in(path)
            taken = 0
            for number in list(self._waiting) if its else ():
                try:
                    point = self._point(number)
                except InputError:
                    continue
                if point.sha256 in its:
                    row, run = its[point.sha256]
                    try:
                        known.take_over(path / run, self._folder.path / f"point-{number}")
                    except OSError:  # somebody removes it: it runs again
                        shutil.rmtree(self._folder.path / f"point-{number}", ignore_errors=True)
                        continue
                    row = {**row, **point.values, "run": f"point-{number}"}
                    known.note(self._folder, point.sha256, row, str(path))
                    self._waiting.remove(number)
                    done.append((number, row))
                    taken += 1
            if taken:
                self._progress.note(f"{taken} of {total} points are done already, in {path}")
        self._progress.points(total, len(done))
        yield from done

    # -- what is to be done

    def _run(self) -> known.Rows:
        with ExitStack() as stack:
            started = self._started(stack)
            self._places = {remote.name: remote.points for remote in self._reached}
            self._places |= {HERE: self.here} if self.here else {}
            self._remotes = {remote.name: remote for remote in self._reached}
            yield from self._hand_out(started)
            while self._out or self._waiting or self._again:
                said = started.said.get()
                if isinstance(said, Lost):
                    started.retire(said.place)
                    self._lost(said)
                elif (point := self._out.pop(said.number, None)) is not None:
                    row = self._row(point, said, started)
                    if row is not None:
                        yield point.number, row
                yield from self._hand_out(started)

    def _started(self, stack: ExitStack) -> Engine | InTurn:
        """An engine, and workers on all machines. What was begun ends with the stack."""
        remotes = self._reached
        if self.here == 1 and not remotes:
            return InTurn(self._in_turn(stack.enter_context(ControllerServer())))
        aside = self._folder.path / ASIDE
        aside.mkdir()
        stack.callback(shutil.rmtree, aside, ignore_errors=True)
        processes, places = None, list[Place](remotes)
        if self.here:
            processes = Processes(aside)
            stack.callback(processes.close)
            places.append(Here(processes, self.here, room()))
        made = Engine(places)
        stack.callback(self._end, made, processes, remotes)
        if remotes:
            from testbed.machines.remote import all_of

            self._progress.stage("starting the workers")
            all_of(lambda r: r.start(sys.argv, aside, lambda name, why: made.said.put(Lost(name, why))), remotes)
        return made

    def _in_turn(self, controllers: ControllerServer) -> Callable[[int], dict[str, Any]]:
        """Runs a point in this process, as a sweep without `--on` does."""
        from testbed.machines.point import told

        def run(number: int) -> dict[str, Any]:
            began, experiment = time.monotonic(), self._out[number].experiment
            with closing(controllers.seat(experiment.control.library)) as seat:
                said = told(experiment, self._folder.path / f"point-{number}", self._progress, seat)
            if stopped := said.get("row", {}).get("stopped"):
                raise SystemExit(stopped)
            return {**said, "seconds": round(time.monotonic() - began, 3)}

        return run

    def _end(self, started: Engine, processes: Processes | None, remotes: Sequence[Remote]) -> None:
        """What still runs ends, and takes its fabric down; another Ctrl-C must not disturb that."""
        with caught(lambda number: None):
            started.cancel()
            if processes:
                processes.stop()
            self._end_others(remotes)
            if processes and (killed := processes.wait()):
                self._progress.note(
                    f"{killed} points here did not end, and were killed; testbed clean, if that says so"
                )
            for remote in remotes:
                remote.tidied()

    def _end_others(self, remotes: Sequence[Remote]) -> None:
        if not remotes:
            return
        from testbed.machines.remote import all_of

        ended = all_of(lambda remote: remote.lost or remote.end(), remotes)
        for remote, sure in zip(remotes, ended, strict=True):
            if not sure:
                self._progress.note(f"{remote.name}: not known to have ended; testbed clean there")

    def _lost(self, said: Lost) -> None:
        """Its points run on others: each says so itself. Raises MachineError if there is no other."""
        if self._places.pop(said.place, None) is None:
            return
        remote = self._remotes.get(said.place)
        if remote:
            remote.tidy_later(self._progress.note)
        if not self._places:
            place = remote.other.place if remote else ""
            what = f"{said.place} is lost, and there is no other machine left"
            raise MachineError(f"{what}: {said.why}", place, "start it again: it goes on")
        self._progress.note(f"{said.place} is lost: its points run on {', '.join(self._places)} ({said.why})")

    def _retire(self, place: str, why: str, started: Engine | InTurn) -> None:
        """A machine that is there, and gets no more points."""
        self._progress.note(f"{place} runs no more points: {why}")
        self._places.pop(place, None)
        started.retire(place)
        if remote := self._remotes.get(place):
            remote.end_later(self._progress.note)

    def _hand_out(self, started: Engine | InTurn) -> known.Rows:
        """Hands out as many points as can run at a time; those that are impossible end at once."""
        while len(self._out) < sum(self._places.values()) and (self._again or self._waiting):
            if self._again:
                point = self._again.popleft()
            else:
                number = self._waiting.popleft()
                try:
                    point = self._point(number)
                except InputError as error:
                    row = {**sweeps.point(self._experiment, number)[0], **sweeps.impossible(error)}
                    self._say(number, row, "")
                    yield number, row
                    continue
            self._out[point.number] = point
            memory = memory_of(point.experiment)
            started.submit(point.number, self._told(point), memory, frozenset(point.failed_at))

    def _point(self, number: int) -> _Point:
        experiment = sweeps.at(self._experiment, number)
        values, _ = sweeps.point(self._experiment, number)
        return _Point(number, experiment, values, point_hash(experiment))

    def _told(self, point: _Point) -> dict[str, Any]:
        """What its process needs to know (point.py)."""
        return {
            "text": json.dumps(point.experiment.written()),
            "name": "point",
            "directory": str(point.experiment.directory.absolute()),
            "resolved": resolved_hash(point.experiment),
            "folder": str(self._folder.path / f"point-{point.number}"),
            "run": f"point-{point.number}",
            "library": point.experiment.control.library,
        }

    def _row(self, point: _Point, said: Ended, started: Engine | InTurn) -> dict[str, Any] | None:
        """The point's row; None if it runs again. Raises UserError for what no other machine could do better."""
        told = said.told
        for text in told.get("warnings", ()):
            self._progress.warn(text)
        for text in told.get("notes", ()):
            self._progress.note(f"{described(point.values)}: {text}")
        if said.problem:
            raise said.problem
        if "mistake" in told:
            row = {**point.values, **self._mistake(told["mistake"])}
            known.note(self._folder, point.sha256, row, said.place, told.get("seconds"))
            self._say(point.number, row, "")
            return row
        if "problem" in told:
            problem = told["problem"]
            if self._places.keys() - {said.place}:
                self._retire(said.place, f"{problem['what']} ({problem['hint']})", started)
                self._again.append(point)
                return None
            raise UserError.of(problem)
        row = told.get("row") or {"error": said.error or told.get("bug") or self._killed(told)}
        if "run" in row and not known.run_of(point.number, row["run"]):
            row = {"error": f"{said.place} names a folder that is none of this point's: {row['run']!r:.80}"}
        if (why := self._why_again(point, said, row)) is not None:
            self._runs_again(point, why)
            return None
        row.pop("stopped", None)
        if "packed" in told and "run" in row:
            try:
                known.brought_home(told["packed"], self._folder.path / row["run"])
            except ValueError as error:
                row = {"error": f"{said.place} has sent a folder that cannot be read: {error}"}
        self._judge(point, said.place, row, started)
        row = {**point.values, **row}
        known.note(self._folder, point.sha256, row, said.place, told.get("seconds"))
        self._say(point.number, row, self._how(said) if "error" not in row else "")
        return row

    def _why_again(self, point: _Point, said: Ended, row: dict[str, Any]) -> str | None:
        """Why a point runs once more; None if this was its last time."""
        told = said.told
        if said.gone or told.get("stopped"):  # with its machine
            point.killed += said.gone
            return f"{said.place} is lost" if point.killed < KILLED_MOST else None
        if "killed" in told or "stopped" in row:  # somebody has killed its process, or told it to stop, not us
            point.killed += 1
            point.failed_at.append(said.place)
            if point.killed < KILLED_MOST:
                return str(row["error"]) if "killed" in told else "it was told to stop"
        elif "error" in row:
            point.failed_at.append(said.place)
            if self._blame.again(point.failed_at, row["error"], self._places):
                return f"{row['error']} (on {said.place})" if self.others else str(row["error"])
        return None

    def _judge(self, point: _Point, place: str, row: dict[str, Any], started: Engine | InTurn) -> None:
        """Whose fault it was that it failed here, or before."""
        if "error" in row:
            self._blame.failed(point.failed_at, row["error"])
            return
        for other, count in self._blame.done(point.failed_at, place).items():
            if other in self._places and self._places.keys() - {other}:
                self._retire(other, f"{count} points failed there that others could run", started)

    def _mistake(self, said: dict[str, Any]) -> dict[str, Any]:
        """What its row says: with the place in the user's file, not in the point's text."""
        where = said["where"]
        if its := re.fullmatch(r"point(?::\d+)?: (.+)", where):
            path = [int(one) if one.isdecimal() else one for one in re.findall(r"[^.\[\]]+", its[1])]
            where = self._experiment.place(*path)
        return sweeps.impossible(InputError(said["what"], where, said["hint"]))

    def _how(self, said: Ended) -> str:
        where = f"on {said.place}, " if self.others else ""
        return f" ({where}{said.told['seconds']:.1f} s)"

    @staticmethod
    def _killed(told: dict[str, Any]) -> str:
        return f"its process was killed by signal {told['killed']}" if told.get("killed") else "its process has died"

    def _runs_again(self, point: _Point, why: str) -> None:
        self._progress.note(f"{described(point.values)} runs again: {why}")
        for path in self._folder.path.glob(f"point-{point.number}*"):
            if path.name.partition(".")[0] == f"point-{point.number}":
                shutil.rmtree(path, ignore_errors=True)
        self._again.append(point)

    def _say(self, number: int, row: dict[str, Any], how: str) -> None:
        self._progress.point_ended(described(sweeps.point(self._experiment, number)[0]) + how)
        sweeps.say_if_failed(self._experiment, number, row, self._folder, self._progress)
