"""Follows a run while it goes on: the workers' output, fabricd's events, and who is still alive.

One loop reads all workers' pipes and fabricd's events. It ends when all workers are done, or a moment after the first
sign of failure: the moment is for the other signs to come in, from which the cause is told.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from hardware.client import FabricdError
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

    def request(self, op: str, timeout: float | None = 30.0, **arguments: Any) -> dict[str, Any]: ...

    def subscribe(self, *, acts: str | None = None) -> None: ...

    def events(self, timeout: float | None = 0.0) -> Iterable[dict[str, Any]]: ...

    def fileno(self) -> int: ...


class Watch:
    """`run` until the end; what was seen is in `evidence`, and was given to the callbacks as it came.

    `retry_s` is the wall time after which a NIC sends again (virtual clock: 0, it is not wall time that passes).
    `on_line` gets every measurement line of a worker, `on_progress` those that say how far it is, `on_text` (rank,
    text) what is no JSON line, `on_event` every event with `wall_s` added.
    """

    def __init__(
        self,
        workers: Mapping[int, Process],
        pipes: Mapping[int, int],
        hardware: Hardware,
        processes: Mapping[str, Process],
        *,
        retry_s: float = 0.0,
        on_line: Callable[[dict[str, Any]], None],
        on_progress: Callable[[dict[str, Any]], None],
        on_text: Callable[[int, str], None],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self.evidence = Evidence()
        self._workers = dict(workers)
        self._hardware = hardware
        self._processes = dict(processes)
        self._on_line, self._on_progress, self._on_text, self._on_event = on_line, on_progress, on_text, on_event
        self._retry_s = retry_s
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
        self._hardware.subscribe(acts="agent")
        self._selector.register(self._hardware.fileno(), selectors.EVENT_READ, None)

    def run(self) -> Evidence:
        """Returns when all workers are done and have ended, or shortly after the run has failed."""
        failed_at: float | None = None
        while True:
            self._read(TICK_S)
            self._look()
            now = time.monotonic()
            if self.evidence.failed:
                failed_at = failed_at or now
                if self.evidence.clear or now - failed_at > GRACE_S or len(self.evidence.exits) == len(self._workers):
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
        self._forget_hardware()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()

    # -- reading

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                self._read_worker(key.data, key.fd)
        if "fabricd" in self._processes:
            self._read_events()

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
        elif kind == "progress":
            self._on_progress({**line, "rank": rank})
        elif kind == "error":
            self.evidence.errors.append({**line, "rank": rank})
            self.note("worker_error", rank=rank, what=line.get("what"))
        elif kind == "done":
            self.evidence.done.add(rank)

    def _read_events(self) -> None:
        """What fabricd has said since; its end, if the connection broke."""
        try:
            for event in self._hardware.events(0.0):
                self._take_event(event)
        except FabricdError:
            self._fabricd_gone()

    def _ask(self, op: str) -> dict[str, Any]:
        """A request's answer; empty if fabricd is gone."""
        try:
            return self._hardware.request(op)
        except FabricdError:
            self._fabricd_gone()
            return {}

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
            if name == "fabricd":
                self._fabricd_gone()
            else:
                self.note(f"{name}_died", code=self._processes.pop(name).poll())
        if self.evidence.fabricd_exit is None and not self.evidence.failed:
            self._look_for_absent()
            self._look_for_losses()

    def _look_for_absent(self) -> None:
        """Workers that do not even start are only seen by waiting for them."""
        waited = time.monotonic() - self._began
        if self._all_here or waited < START_S + len(self._workers) / 4:
            return
        absent = {w["rank"] for w in self._ask("status").get("workers", []) if w["state"] == "absent"}
        self._all_here = True
        self.evidence.absent = sorted(absent & set(self._workers) - self.evidence.done)

    def _look_for_losses(self) -> None:
        """Frames that keep finding no flow: with the real clock, a queue pair takes long to give up by itself.

        If it sends again too rarely to be seen at it, one frame is enough, unless the controller is at work.
        """
        if not self._lossy_checks or time.monotonic() < self._lossy_checks[-1][0]:
            return
        drops = self._ask("counters").get("drops", [])
        count = sum(d["count"] for d in drops if d["reason"] == "forwarding" and _is_missed(d["headers"]))
        before = self._lossy_checks[-1][1]
        rare = self._retry_s > LOSSY_S and not any(self.evidence.of("port"))
        self.evidence.lossy = before > 0 and (count > before or rare)
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

    def _fabricd_gone(self) -> None:
        """The connection broke: notes how fabricd ended, for which it may need a moment."""
        self._forget_hardware()
        process = self._processes.pop("fabricd")
        deadline = time.monotonic() + 1
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.evidence.fabricd_exit = process.poll() or 0

    def _forget_hardware(self) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._hardware.fileno())


def _is_missed(headers: str) -> bool:
    """Of a queue pair, which will not go on without it.

    Hosts with kernel interfaces also send multicast of their own that no flow forwards, and nobody misses it.  Offloads
    look after themselves: what the network does not bring, the ranks fetch.
    """
    offloads = ("RoCE RC MULTICAST", "RoCE RC RESULT", "RoCE RC CONTRIBUTE")
    return "RoCE" in headers and not any(kind in headers for kind in offloads)
