"""A sweep whose points run several at a time: handed out, brought home, run again where a machine was lost.

The sweep's folder, its rows, its table and all figures are those of `testbed run` without `--on`. A point that was lost
with a machine runs again on another. So does one that failed, once: was it the point's fault or the machine's
(blame.py)? `--retries` runs it again in any case.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store.folder import RunFolder
from results.store.sweeps import described
from testbed.base.errors import InputError, MachineError, Problem, UserError
from testbed.base.progress import Progress
from testbed.base.this_process import caught
from testbed.fabric.fork_server import ControllerServer
from testbed.live.standing import Standing
from testbed.machine.processes import machine
from testbed.machines import known
from testbed.machines.blame import Blame
from testbed.machines.engine import Backend, Dispatcher, Ended, Here, InTurn, Lost
from testbed.machines.identity import file_hashes, point_hash, resolved_hash
from testbed.machines.needs import memory_of, room
from testbed.machines.processes import Processes
from testbed.machines.where import HERE, Other
from testbed.run import sweep as sweeps

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.machines.remote import RemoteMachine

KILLED_MOST = 3
"""How often a point may be killed, or lost with its machine, before it is given up: there may be no memory for it."""
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
    _reached: list[RemoteMachine] = field(default_factory=list)

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
        from testbed.machines.remote import RemoteMachine, all_of

        progress.stage(f"reaching {len(self.others)} machines")
        self._reached = all_of(RemoteMachine, self.others)
        self._each_once()
        named = sweeps.points(experiment) if sweeps.count(experiment) <= sweeps.CHECKED else ()
        files: dict[str, str] = {}
        for each in (experiment, *(p.experiment for p in named)):
            files |= file_hashes(each)
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
        problems = []
        for remote in self._reached:
            if before := seen.get(remote.machine):
                problems.append(Problem(f"{remote.name} is {before}", remote.other.place, "name each machine once"))
            seen.setdefault(remote.machine, f"the same machine as {remote.name}")
        if problems:
            raise InputError(problems[0].what, problems[0].where, problems[0].hint, problems[1:])

    # -- what was done before

    def _taken_over(self) -> known.Rows:
        total = len(self._waiting)
        done: list[tuple[int, dict[str, Any]]] = []
        for path in [self.again] if self.again else known.earlier(self._folder, self._experiment.name):
            earlier = known.done_in(path)
            taken = 0
            for number in list(self._waiting) if earlier else ():
                try:
                    point = self._point(number)
                except InputError:
                    continue
                if point.sha256 in earlier:
                    row, run = earlier[point.sha256]
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
            engine = self._started(stack)
            self._places = {remote.name: remote.points for remote in self._reached}
            self._places |= {HERE: self.here} if self.here else {}
            self._remotes = {remote.name: remote for remote in self._reached}
            yield from self._hand_out(engine)
            while self._out or self._waiting or self._again:
                event = engine.events.get()
                if isinstance(event, Lost):
                    engine.retire(event.place)
                    self._lost(event)
                elif (point := self._out.pop(event.number, None)) is not None:
                    row = self._row(point, event, engine)
                    if row is not None:
                        yield point.number, row
                yield from self._hand_out(engine)

    def _started(self, stack: ExitStack) -> Dispatcher | InTurn:
        """An engine, and workers on all machines. What was begun ends with the stack."""
        remotes = self._reached
        if self.here == 1 and not remotes:
            controllers = stack.enter_context(ControllerServer())
            return InTurn(self._in_turn(stack.enter_context(Standing(controllers))))
        aside = self._folder.path / ASIDE
        aside.mkdir()
        stack.callback(shutil.rmtree, aside, ignore_errors=True)
        processes, places = None, list[Backend](remotes)
        if self.here:
            processes = Processes(aside)
            stack.callback(processes.close)
            places.append(Here(processes, self.here, room()))
        dispatcher = Dispatcher(places)
        stack.callback(self._end, dispatcher, processes, remotes)
        if remotes:
            from testbed.machines.remote import all_of

            self._progress.stage("starting the workers")

            def lost(name: str, why: str) -> None:
                dispatcher.events.put(Lost(name, why))

            all_of(lambda remote: remote.start(sys.argv, aside, lost), remotes)
        return dispatcher

    def _in_turn(self, standing: Standing) -> Callable[[int], dict[str, Any]]:
        """Runs a point in this process, as a sweep without `--on` does."""
        from testbed.machines.point import answer_of

        def run(number: int) -> dict[str, Any]:
            began, experiment = time.monotonic(), self._out[number].experiment
            place = standing.place(experiment, self._progress)
            answer = answer_of(experiment, self._folder.path / f"point-{number}", self._progress, place)
            if stopped := answer.get("row", {}).get("stopped"):
                raise SystemExit(stopped)
            return {**answer, "seconds": round(time.monotonic() - began, 3)}

        return run

    def _end(self, engine: Dispatcher, processes: Processes | None, remotes: Sequence[RemoteMachine]) -> None:
        """What still runs ends, and takes its fabric down; another Ctrl-C must not disturb that."""
        with caught(lambda number: None):
            engine.cancel()
            if processes:
                processes.stop()
            self._end_others(remotes)
            if processes and (killed := processes.wait()):
                text = f"{killed} points here did not end, and were killed; testbed clean, if that says so"
                self._progress.note(text)
            for remote in remotes:
                remote.tidied()

    def _end_others(self, remotes: Sequence[RemoteMachine]) -> None:
        if not remotes:
            return
        from testbed.machines.remote import all_of

        ended = all_of(lambda remote: remote.lost or remote.end(), remotes)
        for remote, sure in zip(remotes, ended, strict=True):
            if not sure:
                self._progress.note(f"{remote.name}: not known to have ended; testbed clean there")

    def _lost(self, lost: Lost) -> None:
        """Its points run on others: each says so itself. Raises MachineError if there is no other."""
        if self._places.pop(lost.place, None) is None:
            return
        remote = self._remotes.get(lost.place)
        if remote:
            remote.tidy_later(self._progress.note)
        if not self._places:
            place = remote.other.place if remote else ""
            what = f"{lost.place} is lost, and there is no other machine left"
            raise MachineError(f"{what}: {lost.why}", place, "start it again: it goes on")
        self._progress.note(f"{lost.place} is lost: its points run on {', '.join(self._places)} ({lost.why})")

    def _retire(self, place: str, why: str, engine: Dispatcher | InTurn) -> None:
        """A machine that is there, and gets no more points."""
        self._progress.note(f"{place} runs no more points: {why}")
        self._places.pop(place, None)
        engine.retire(place)
        if remote := self._remotes.get(place):
            remote.end_later(self._progress.note)

    def _hand_out(self, engine: Dispatcher | InTurn) -> known.Rows:
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
                    self._report(number, row, "")
                    yield number, row
                    continue
            self._out[point.number] = point
            memory = memory_of(point.experiment)
            engine.submit(point.number, self._order(point), memory, frozenset(point.failed_at))

    def _point(self, number: int) -> _Point:
        experiment = sweeps.at(self._experiment, number)
        values, _ = sweeps.point(self._experiment, number)
        return _Point(number, experiment, values, point_hash(experiment))

    def _order(self, point: _Point) -> dict[str, Any]:
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

    def _row(self, point: _Point, ended: Ended, engine: Dispatcher | InTurn) -> dict[str, Any] | None:
        """The point's row; None if it runs again. Raises UserError for what no other machine could do better."""
        answer = ended.answer
        for text in answer.get("warnings", ()):
            self._progress.warn(text)
        for text in answer.get("notes", ()):
            self._progress.note(f"{described(point.values)}: {text}")
        if ended.problem:
            raise ended.problem
        if "mistake" in answer:
            row = {**point.values, **self._mistake(answer["mistake"])}
            known.note(self._folder, point.sha256, row, ended.place, answer.get("seconds"))
            self._report(point.number, row, "")
            return row
        if "problem" in answer:
            problem = answer["problem"]
            if self._places.keys() - {ended.place}:
                self._retire(ended.place, f"{problem['what']} ({problem['hint']})", engine)
                self._again.append(point)
                return None
            raise UserError.of(problem)
        row = answer.get("row") or {"error": ended.error or answer.get("bug") or self._killed(answer)}
        if "run" in row and not known.run_of(point.number, row["run"]):
            row = {"error": f"{ended.place} names a folder that is none of this point's: {row['run']!r:.80}"}
        if (why := self._why_again(point, ended, row)) is not None:
            self._runs_again(point, why)
            return None
        row.pop("stopped", None)
        if "packed" in answer and "run" in row:
            try:
                known.brought_home(answer["packed"], self._folder.path / row["run"])
            except ValueError as error:
                row = {"error": f"{ended.place} has sent a folder that cannot be read: {error}"}
        self._judge(point, ended.place, row, engine)
        row = {**point.values, **row}
        known.note(self._folder, point.sha256, row, ended.place, answer.get("seconds"))
        self._report(point.number, row, self._duration(ended) if "error" not in row else "")
        return row

    def _why_again(self, point: _Point, ended: Ended, row: dict[str, Any]) -> str | None:
        """Why a point runs once more; None if this was its last time."""
        answer = ended.answer
        if ended.gone or answer.get("stopped"):  # with its machine
            point.killed += ended.gone
            return f"{ended.place} is lost" if point.killed < KILLED_MOST else None
        if "killed" in answer or "stopped" in row:  # somebody has killed its process, or told it to stop, not us
            point.killed += 1
            point.failed_at.append(ended.place)
            if point.killed < KILLED_MOST:
                return str(row["error"]) if "killed" in answer else "it was told to stop"
        elif "error" in row:
            point.failed_at.append(ended.place)
            if self._blame.again(point.failed_at, row["error"], self._places):
                return f"{row['error']} (on {ended.place})" if self.others else str(row["error"])
        return None

    def _judge(self, point: _Point, place: str, row: dict[str, Any], engine: Dispatcher | InTurn) -> None:
        """Whose fault it was that it failed here, or before."""
        if "error" in row:
            self._blame.failed(point.failed_at, row["error"])
            return
        for other, count in self._blame.done(point.failed_at, place).items():
            if other in self._places and self._places.keys() - {other}:
                self._retire(other, f"{count} points failed there that others could run", engine)

    def _mistake(self, mistake: dict[str, Any]) -> dict[str, Any]:
        """What its row says: with the place in the user's file, not in the point's text."""
        where = mistake["where"]
        if match := re.fullmatch(r"point(?::\d+)?: (.+)", where):
            path = [int(key) if key.isdecimal() else key for key in re.findall(r"[^.\[\]]+", match[1])]
            where = self._experiment.place(*path)
        return sweeps.impossible(InputError(mistake["what"], where, mistake["hint"]))

    def _duration(self, ended: Ended) -> str:
        where = f"on {ended.place}, " if self.others else ""
        return f" ({where}{ended.answer['seconds']:.1f} s)"

    @staticmethod
    def _killed(answer: dict[str, Any]) -> str:
        return (
            f"its process was killed by signal {answer['killed']}" if answer.get("killed") else "its process has died"
        )

    def _runs_again(self, point: _Point, why: str) -> None:
        self._progress.note(f"{described(point.values)} runs again: {why}")
        for path in self._folder.path.glob(f"point-{point.number}*"):
            if path.name.partition(".")[0] == f"point-{point.number}":
                shutil.rmtree(path, ignore_errors=True)
        self._again.append(point)

    def _report(self, number: int, row: dict[str, Any], how: str) -> None:
        self._progress.point_ended(described(sweeps.point(self._experiment, number)[0]) + how)
        sweeps.say_if_failed(self._experiment, number, row, self._folder, self._progress)
