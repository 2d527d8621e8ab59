"""Follows a run while it goes on: the workers' output, fabricd's events, and who is still alive.

One loop reads all workers' pipes and fabricd's events. It ends when all workers are done, or a moment after the first
sign of failure: the moment is for the other signs to come in, from which the cause is told.

Nobody is judged by how long something takes on this machine: a process that has ended or is stopped is seen in /proc,
for the rest there is patience (hardware.patience). fabricd is asked every second for a sign of life; it answers whom it
waits for itself, and that is shown.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hardware.client import Fabricd, FabricdError, FabricdSilent
from hardware.patience import Patience
from testbed.base.worker_output import OutputParser, UnexpectedLine
from testbed.fabric.waits import in_words
from testbed.live.workers import WorkerPipe, WorkerProcess
from testbed.machine.memory import killed_for_want
from testbed.machine.processes import Running, ended
from testbed.run.diagnosis import Symptoms

TICK_S = 0.1
GRACE_S = 0.4  # from the first sign of failure to the end, unless all workers have ended before
LINGER_S = 3.0  # for a worker that is done to end
LOSSY_S = 1.5  # real clock: if frames without a flow still come after this time, twice, the missing flow is the cause
SHOWN_S = 3.0  # from then on it is shown for whom the run waits


class Watch:
    """Follows a run until its end (`run`). What was seen is in `symptoms`, and was passed to the callbacks as it came.

    What `workers` print `parser` checks. `processes` are fabricd and the fabric's other processes, by name. `retry_s`
    is the wall time after which a NIC sends again (0 with the virtual clock), `patience_s` how long a worker that does
    not start is waited for. `on_line` gets every measurement line of a worker, `on_progress` its progress lines,
    `on_text` (rank, text) what is no JSON line, `on_event` every event with `wall_s` added (since `began`),
    `on_waiting` (whom, seconds) for whom the run waits, and how long. `forgives` says whether a rank's end is not the
    run's: then it is followed until all have ended.
    """

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        parser: OutputParser,
        hardware: Fabricd,
        processes: Mapping[str, Running],
        *,
        retry_s: float = 0.0,
        patience_s: float = 60.0,
        on_line: Callable[[dict[str, Any]], None],
        on_progress: Callable[[dict[str, Any]], None],
        on_text: Callable[[int, str], None],
        on_event: Callable[[dict[str, Any]], None],
        on_waiting: Callable[[str, float], None],
        forgives: Callable[[], bool] = lambda: False,
        began: float | None = None,
    ) -> None:
        self.symptoms = Symptoms()
        self._workers = workers
        self._ranks = {rank for process in workers for rank in process.ranks}
        self._hardware = hardware
        self._processes = dict(processes)
        self._on_line, self._on_progress, self._on_text, self._on_event = on_line, on_progress, on_text, on_event
        self._on_waiting = on_waiting
        self._forgives = forgives
        self._retry_s = retry_s
        self._patience_s = patience_s
        self._patience: dict[str, Patience] = {}  # with processes that are looked at, by name
        self._absent_since: float | None = None
        self._hung_on_purpose: set[str] = set()  # faults that keep the controller from running
        self._began = time.monotonic() if began is None else began
        self._killed_for_want = killed_for_want()
        self._sayings = parser
        self._ends: set[int] = set()  # of workers that have closed their pipes
        self._seen_dead: dict[int, float] = {}
        self._asked: set[int] = set()  # ranks that have not answered yet for whom their tasks wait
        self._lossy_checks: list[tuple[float, int]] = []  # (when, frames without a flow by then)
        self._selector = selectors.DefaultSelector()
        for process in workers:
            for output in filter(None, (process.output, process.errors)):
                self._selector.register(output.fd, selectors.EVENT_READ, (process, output))
        self.symptoms.sharing = {r: process.ranks for process in workers if process.ranks[1:] for r in process.ranks}
        self._hardware.subscribe(acts="agent")
        self._selector.register(self._hardware.fileno(), selectors.EVENT_READ, None)

    def run(self) -> Symptoms:
        """Returns when all workers have ended, or shortly after the run has failed."""
        failed_at: float | None = None
        while True:
            self._read(TICK_S)
            self._look()
            now = time.monotonic()
            if self._goes_on():
                if len(self.symptoms.exits) == len(self._ranks):
                    break
            elif self.symptoms.failed:
                if failed_at is None:
                    failed_at = now
                    self._ask_tasks()
                all_ended = len(self.symptoms.exits) == len(self._ranks)
                if (self.symptoms.conclusive and not self._asked) or all_ended or now - failed_at > GRACE_S:
                    break
            elif self._ended():
                break
        self._read(0)
        return self.symptoms

    def _goes_on(self) -> bool:
        """Whether it has failed, and somebody is there to start the workers again when they have ended."""
        symptoms = self.symptoms
        beyond = symptoms.conclusive or any(True for _ in symptoms.of_kind("stalled", "ovs_lost"))
        return symptoms.failed and not beyond and self._forgives()

    def kill(self, rank: int) -> None:
        """Ends a rank's process."""
        next(process for process in self._workers if rank in process.ranks).end()

    def take_events(self) -> None:
        """Takes what fabricd has said meanwhile."""
        self._read_events()

    def note(self, kind: str, **more: Any) -> None:
        """Adds an event of the testbed's own."""
        self._take_event({"event": kind, **more})

    def _ask_tasks(self) -> None:
        """Asks ranks that have tasks for whom they wait (workloads/tasks/runner.py)."""
        for process in self._workers:
            its = self.symptoms.waiting.keys() & set(process.ranks) - self.symptoms.done - self.symptoms.exits.keys()
            if its:
                self._asked |= its
                process.worker.kill(signal.SIGUSR1)

    def close(self) -> None:
        """Closes the pipes."""
        self._forget_hardware()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()

    # -- reading

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if key.fd in self._ends:
                self._ends.discard(key.fd)
                self._close(key.fd)
            elif key.data is not None:
                self._read_worker(*key.data)
        if "fabricd" in self._processes:
            self._read_events()

    def _read_worker(self, process: WorkerProcess, output: WorkerPipe) -> None:
        for line in output.read() or ():
            if output is process.output:
                self._take_line(process.ranks, line)
            else:
                self._take_text(process.ranks, line)
        if not output.open:
            self._close(output.fd)
            if not process.open:
                self._wait_for_end(process)

    def _wait_for_end(self, process: WorkerProcess) -> None:
        """Has `_read` return as soon as the worker ends, which has closed its pipes: that is a moment later."""
        with suppress(OSError):
            end = os.pidfd_open(process.worker.pid)
            self._ends.add(end)
            self._selector.register(end, selectors.EVENT_READ, None)

    def _close(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)

    def _take_text(self, owners: Sequence[int], text: bytes) -> None:
        """Text does not say which of the process's ranks it is from: it goes into the logs of all."""
        for rank in owners:
            if kept := self._sayings.text(rank, text):
                self._on_text(rank, kept)

    def _take_line(self, owners: Sequence[int], text: bytes) -> None:
        rank = owners[0] if len(owners) == 1 else self._sayings.speaker(owners, text)
        try:
            line = self._sayings.line(rank, text)
        except UnexpectedLine as why:
            what = f"its worker printed a line that is not as it should be ({why})"
            line = {"kind": "error", "rank": rank, "what": what}
        if line is None:
            self._take_text(owners, text)
        elif line["kind"] in ("collective", "flow", "program", "said", "tasks", "timeline"):
            self._on_line(line)
        elif line["kind"] == "waiting":
            self.symptoms.waiting[rank] = line
            self._asked.discard(rank)
        elif line["kind"] == "progress":
            self._on_progress(line)
        elif line["kind"] == "done":
            self.symptoms.done.add(rank)
        elif not any(e["rank"] == rank for e in self.symptoms.errors):  # only the first one: the others follow from it
            self.symptoms.errors.append(line)
            self.note("worker_error", rank=rank, what=line["what"])

    def _read_events(self) -> None:
        """Takes fabricd's new events, and notes its end if the connection has broken."""
        try:
            for event in self._hardware.events(0.0):
                self._take_event(event)
        except FabricdError as error:
            self._fabricd_gone(error)

    def _ask(self, op: str) -> dict[str, Any]:
        """A request's answer; empty if fabricd is gone."""
        try:
            return self._hardware.request(op)
        except FabricdError as error:
            self._fabricd_gone(error)
            return {}

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "act" and event["spec"].get("controller") == "hung":
            (self._hung_on_purpose.add if event["on"] else self._hung_on_purpose.discard)(event["fault"])
        event = {**event, "wall_s": round(time.monotonic() - self._began, 3)}
        self.symptoms.events.append(event)
        self._on_event(event)
        if event["event"] == "forwarding_drop" and not self._lossy_checks:
            self._lossy_checks.append((time.monotonic() + LOSSY_S, 0))

    # -- looking after processes

    def _look(self) -> None:
        for one in self._workers:
            if one.ranks[0] in self.symptoms.exits or (code := one.worker.poll()) is None:
                continue
            # First read its last output. But another process may keep its pipe open: do not wait long.
            seen = self._seen_dead.setdefault(one.ranks[0], time.monotonic())
            if not one.open or time.monotonic() - seen > GRACE_S:
                self.symptoms.exits |= dict.fromkeys(one.ranks, code)
        for name in [n for n, process in self._processes.items() if process.poll() is not None]:
            if name == "fabricd":
                self._fabricd_gone(None)
            else:
                self.note(f"{name}_died", code=self._processes.pop(name).poll())
        self._look_for_stopped()
        if "fabricd" in self._processes:
            self._pulse()
        if "fabricd" in self._processes and not self.symptoms.failed:
            self._look_for_absent()
            self._look_for_losses()

    def _pulse(self) -> None:
        """Checks that fabricd answers, and shows for whom it waits."""
        try:
            self._hardware.pulse()
        except FabricdError as error:
            self._fabricd_gone(error)
            return
        waits = self._hardware.waits
        since = max((w.get("silent_s", 0.0) for w in waits), default=0.0)
        if any(w["who"] == "absent" for w in waits):
            self._absent_since = self._absent_since or time.monotonic()
            since = max(since, time.monotonic() - self._absent_since)
        if self._hardware.patience.silent_s >= SHOWN_S:
            self._on_waiting("fabricd, the emulated hardware", self._hardware.patience.silent_s)
        elif since >= SHOWN_S:
            self._on_waiting(in_words(waits), since)

    def _look_for_stopped(self) -> None:
        """Notes processes that are stopped. fabricd judges workers itself, and its client judges fabricd."""
        for name, process in self._processes.items():
            if name == "fabricd" or (name == "controller" and self._hung_on_purpose):
                continue
            if name not in self._patience:
                self._patience[name] = Patience(process.pid, float("inf"))
            patience = self._patience[name]
            was = patience.stopped
            patience.look()
            if patience.stopped and not was:
                self.note(f"{name}_stopped", pid=process.pid)

    def _look_for_absent(self) -> None:
        """Looks after workers that have not reached fabricd: fabricd cannot see that they hang."""
        absent = {w["rank"] for w in self._hardware.waits if w["who"] == "absent"} & self._ranks
        absent -= self.symptoms.done
        for process in self._workers:
            ours, first = absent.intersection(process.ranks), process.ranks[0]
            if not ours or getattr(process.worker, "starting", False) or first in self.symptoms.exits:
                continue  # its container is being made, or it has ended
            name = f"rank {first}"
            if name not in self._patience:
                self._patience[name] = Patience(process.worker.pid, self._patience_s, family=True)
            if why := self._patience[name].look():
                self.symptoms.absent |= dict.fromkeys(sorted(ours), why)

    def _look_for_losses(self) -> None:
        """Looks for frames that find no flow again and again: with the real clock, a queue pair gives up too late.

        If it retries too rarely to be seen twice, one frame is enough, unless the controller is at work. With the
        virtual clock the emulated hardware decides when to give up.
        """
        if not self._retry_s or not self._lossy_checks or time.monotonic() < self._lossy_checks[-1][0]:
            return
        drops = self._ask("counters").get("drops", [])
        count = sum(d["count"] for d in drops if d["reason"] == "forwarding" and _is_missed(d["headers"]))
        before = self._lossy_checks[-1][1]
        rare = self._retry_s > LOSSY_S and not any(self.symptoms.of_kind("port"))
        self.symptoms.lossy = before > 0 and (count > before or rare)
        self._lossy_checks.append((time.monotonic() + LOSSY_S, count))

    def _ended(self) -> bool:
        """Whether all workers are done, and have ended or had the time to."""
        if len(self.symptoms.done) < len(self._ranks):
            return False
        lingering = [r for process in self._workers for r in process.ranks if r not in self.symptoms.exits]
        for process in self._workers:
            if (first := process.ranks[0]) in self.symptoms.exits:
                continue
            name = f"end of rank {first}"
            if name not in self._patience:
                self._patience[name] = Patience(process.worker.pid, LINGER_S, family=True)
            if self._patience[name].look():
                self.note("workers_linger", ranks=lingering)
                return True
        return not lingering

    def _fabricd_gone(self, error: FabricdError | None) -> None:
        """Notes that fabricd has ended (its exit code comes a moment after the connection broke) or does not answer."""
        self._forget_hardware()
        process = self._processes.pop("fabricd")
        if isinstance(error, FabricdSilent):
            self.symptoms.fabricd_gone = error.does
            return
        patience = Patience(process.pid, LINGER_S)
        while process.poll() is None and not patience.look():
            time.sleep(0.01)
        code = process.poll()
        self.symptoms.fabricd_exit = code
        self.symptoms.fabricd_gone = "closed its connection" if code is None else ended(code)
        if code == -signal.SIGKILL and killed_for_want() > self._killed_for_want:
            self.symptoms.fabricd_gone += ", by the kernel, which was short of memory,"

    def _forget_hardware(self) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._hardware.fileno())


def _is_missed(headers: str) -> bool:
    """Whether a lost frame matters: it is of a queue pair, which cannot go on without it.

    Hosts with kernel interfaces also send multicast that no flow forwards and that nobody needs.  Offloads repair their
    losses themselves.
    """
    offloads = ("RoCE RC MULTICAST", "RoCE RC RESULT", "RoCE RC CONTRIBUTE")
    return "RoCE" in headers and not any(kind in headers for kind in offloads)
