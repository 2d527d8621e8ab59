"""Follows a run while it goes on: the workers' output, fabricd's events, and who is still alive.

One loop in one thread reads all workers' pipes; fabricd's events come from a thread of their own, because its client
blocks. The loop ends when all workers are done, or a moment after the first sign of failure: the moment is for the
other signs to come in, from which the cause is told.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from testbed.evidence import Evidence

TICK_S = 0.1
GRACE_S = 0.4  # from the first sign of failure to the end, unless all workers have ended before
LINGER_S = 3.0  # for a worker that is done to end
START_S = 30.0  # for the workers to reach fabricd, and as much longer as there are ranks / 4
LOSSY_S = 1.5  # frames without a flow that still come after this and once more after it: nobody mends that
MAX_LINE = 1 << 20


class Process(Protocol):
    """A worker, fabricd or a controller: `poll` gives its return code, None while it runs."""

    def poll(self) -> int | None: ...


class Hardware(Protocol):
    """What is needed of hardware.client.Fabricd."""

    def request(self, op: str, **args: Any) -> dict[str, Any]: ...

    def events(self) -> Iterable[dict[str, Any]]: ...


class Watch:
    """`run` until the end; what was seen is in `evidence`, and was given to the callbacks as it came.

    `on_line` gets every measurement line of a worker, `on_text` (rank, text) what is no JSON line, `on_event` every
    event with `wall_s` added.
    """

    def __init__(
        self,
        workers: Mapping[int, Process],
        pipes: Mapping[int, int],
        hardware: Hardware,
        processes: Mapping[str, Process],
        *,
        on_line: Callable[[dict[str, Any]], None],
        on_text: Callable[[int, str], None],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self.evidence = Evidence()
        self._workers = dict(workers)
        self._hardware = hardware
        self._processes = dict(processes)
        self._on_line, self._on_text, self._on_event = on_line, on_text, on_event
        self._began = time.monotonic()
        self._open = set(pipes)
        self._tails = dict.fromkeys(pipes, b"")
        self._all_here = False
        self._seen_dead: dict[int, float] = {}
        self._done_at: float | None = None
        self._lossy_checks: list[tuple[float, int]] = []  # (when, frames without a flow by then)
        self._selector = selectors.DefaultSelector()
        for rank, pipe in pipes.items():
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, rank)
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        threading.Thread(target=self._follow_events, daemon=True, name="fabricd events").start()

    def run(self) -> Evidence:
        """Returns when all workers are done and have ended, or shortly after the run has failed."""
        failed_at: float | None = None
        while True:
            self._read(TICK_S)
            self._look()
            now = time.monotonic()
            if self.evidence.failed:
                failed_at = failed_at or now
                if now - failed_at > GRACE_S or len(self.evidence.exits) == len(self._workers):
                    break
            elif self._ended(now):
                break
        self._read(0)
        return self.evidence

    def note(self, kind: str, **more: Any) -> None:
        """Adds an event that the testbed itself saw."""
        self._take_event({"event": kind, **more})

    def close(self) -> None:
        """Lets go of the pipes."""
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()

    # -- reading

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                if not os.read(key.fd, 4096):
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
            else:
                self._read_worker(key.data, key.fd)
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            if event is not None:
                self._take_event(event)
            elif self.evidence.fabricd_exit is None:
                self.evidence.fabricd_exit = self._fabricd_code()

    def _read_worker(self, rank: int, pipe: int) -> None:
        data = os.read(pipe, 1 << 16)
        *lines, tail = (self._tails[rank] + data).split(b"\n")
        if len(tail) > MAX_LINE:
            lines, tail = [*lines, tail], b""
        self._tails[rank] = tail
        for line in lines:
            self._take_line(rank, line)
        if not data:
            if tail:
                self._take_line(rank, tail)
            self._selector.unregister(pipe)
            os.close(pipe)
            self._open.discard(rank)

    def _take_line(self, rank: int, text: bytes) -> None:
        try:
            line = json.loads(text)
            kind = line["kind"]
        except (ValueError, TypeError, KeyError):
            self._on_text(rank, text.decode(errors="replace"))
            return
        if kind in ("collective", "flow"):
            self._on_line({**line, "rank": rank})
        elif kind == "error":
            self.evidence.errors.append({**line, "rank": rank})
            self.note("worker_error", rank=rank, what=line.get("what"))
        elif kind == "done":
            self.evidence.done.add(rank)

    def _follow_events(self) -> None:
        """In a thread: hands fabricd's events over, and None when there will be no more."""
        try:
            for event in self._hardware.events():
                self._hand_over(event)
        except (OSError, ValueError, EOFError):
            pass  # the connection broke: fabricd is gone
        self._hand_over(None)
        os.close(self._wake_write)

    def _hand_over(self, event: dict[str, Any] | None) -> None:
        self._events.put(event)
        with suppress(OSError):  # full: the loop is about to wake anyway; broken: it is over
            os.write(self._wake_write, b"x")

    def _take_event(self, event: dict[str, Any]) -> None:
        event = {**event, "wall_s": round(time.monotonic() - self._began, 3)}
        self.evidence.events.append(event)
        self._on_event(event)
        if event["event"] == "forwarding_drop" and not self._lossy_checks:
            self._lossy_checks.append((time.monotonic() + LOSSY_S, 0))

    # -- looking after processes

    def _look(self) -> None:
        for rank, worker in self._workers.items():
            if rank in self.evidence.exits or (code := worker.poll()) is None:
                continue
            # First read what it said last, but do not wait for somebody else who holds its pipe open.
            seen = self._seen_dead.setdefault(rank, time.monotonic())
            if rank not in self._open or time.monotonic() - seen > GRACE_S:
                self.evidence.exits[rank] = code
        for name in [n for n, process in self._processes.items() if process.poll() is not None]:
            code = self._processes.pop(name).poll() or 0
            if name == "fabricd":
                self.evidence.fabricd_exit = code
            else:
                self.note(f"{name}_died", code=code)
        if self.evidence.fabricd_exit is None and not self.evidence.failed:
            self._look_for_absent()
            self._look_for_losses()

    def _look_for_absent(self) -> None:
        """Workers that do not even start are only seen by waiting for them."""
        waited = time.monotonic() - self._began
        if self._all_here or waited < START_S + len(self._workers) / 4:
            return
        states = {w["rank"]: w["state"] for w in self._hardware.request("status")["workers"]}
        self._all_here = True
        self.evidence.absent = [
            r for r in self._workers if states.get(r, "absent") == "absent" and r not in self.evidence.done
        ]

    def _look_for_losses(self) -> None:
        """Frames that keep finding no flow: with the real clock, a queue pair takes long to give up by itself."""
        if not self._lossy_checks or time.monotonic() < self._lossy_checks[-1][0]:
            return
        drops = self._hardware.request("counters")["drops"]
        count = sum(d["count"] for d in drops if d["reason"] == "forwarding" and _is_roce(d["headers"]))
        before = self._lossy_checks[-1][1]
        self.evidence.lossy = 0 < before < count
        self._lossy_checks.append((time.monotonic() + LOSSY_S, count))

    def _ended(self, now: float) -> bool:
        """All workers are done and have ended, or had the time to."""
        if len(self.evidence.done) < len(self._workers):
            return False
        self._done_at = self._done_at or now
        lingering = [r for r in self._workers if r not in self.evidence.exits]
        if lingering and now - self._done_at > LINGER_S:
            self.note("workers_linger", ranks=lingering)
            return True
        return not lingering

    def _fabricd_code(self) -> int:
        """How fabricd ended, a moment after its connection broke."""
        process = self._processes.pop("fabricd", None)
        deadline = time.monotonic() + 1
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return (process.poll() if process is not None else None) or 0


def _is_roce(headers: str) -> bool:
    """Hosts with kernel interfaces also send multicast of their own that no flow forwards, and nobody misses it."""
    return "4791" in headers
