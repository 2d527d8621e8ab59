"""Programs of a step as processes in their ranks' containers: started, waited for, and what came of them.

Servers start with the step, the others `after_ns` later if there are servers; with the real clock as soon as the
servers listen, if that is later.  While programs run the worker waits at the fabric, which counts the emulated time of
what they do; what they compute, and how long they take to start and to end, takes none (docs/fabricd-protocol.md).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from workloads.base import executable, process_table
from workloads.base.failed import Failed
from workloads.parts.context import Context
from workloads.parts.iteration import Emit
from workloads.verbs import wire
from workloads.verbs.wire import Record

SERVER = "server"
KEPT_BYTES = 4 << 20
"""Of each of a program's outputs."""
LINGER_NS = 10e6
"""Emulated time that servers have for ending when their clients have."""
_LISTEN, _CLIENTS_ENDED = 0x8001, 0x8002  # of a step's tags
_PIECE = 50_000  # characters of a line of output
_LOOK_S = 0.5
_MANY = 1 << 30  # records: more than ever come
_PATIENCE_S = 10.0  # wall time for servers to listen, and for programs that are asked to end
_SAID = 300  # characters of a program's last words in an error


@dataclass
class _Running:
    """A program under way."""

    told: Mapping[str, Any]
    process: subprocess.Popen[bytes]
    outputs: Mapping[str, IO[bytes]]
    began_ns: float
    ended: int  # a descriptor that becomes readable then
    stopped: bool = False  # by us

    @property
    def name(self) -> str:
        return str(self.told["argv"][0]).rpartition("/")[2]

    @property
    def serves(self) -> bool:
        return bool(self.told["role"] == SERVER)

    def said(self, output: str) -> str:
        file = self.outputs[output]
        file.seek(0)
        text = file.read(KEPT_BYTES + 1)
        more = f"\n[more than {KEPT_BYTES >> 20} MiB: the rest is not kept]\n" if len(text) > KEPT_BYTES else ""
        return text[:KEPT_BYTES].decode(errors="replace") + more

    def last_words(self) -> str:
        said = self.said("err").strip() or self.said("out").strip()
        return " / ".join(filter(None, map(str.strip, said.splitlines())))[-_SAID:]

    def signal(self, number: int) -> None:
        """It, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Programs:
    """A rank's programs of a step.  `run` raises Failed if one cannot be started, fails, or does not end."""

    def __init__(self, context: Context, plan: Mapping[str, Any], number: int, tag: int, emit: Emit) -> None:
        self.device, self.plan, self.number, self.tag, self.emit = context.device, plan, number, tag, emit
        self.mine = [one for one in plan["processes"] if one["rank"] == self.device.rank]
        self.with_servers = any(one["role"] == SERVER for one in plan["processes"])
        self.running: list[_Running] = []
        self.through: list[_Running] = []

    def run(self, start_ns: float) -> None:
        """All of them, from the step's start on."""
        deadline = start_ns + self.plan["timeout_ns"]
        others = [one for one in self.mine if one["role"] != SERVER]
        try:
            self._start(one for one in self.mine if one["role"] == SERVER)
            if self.with_servers:
                self._servers_first(start_ns + self.plan["after_ns"] if others else start_ns)
            self._start(others)
            end_ns = self._wait(deadline)
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        finally:
            self.through.sort(key=lambda one: one.told["number"])
            for one in self.through:
                self._tell_output(one)
        for one in self.through:
            self._tell(one, end_ns)

    # -- starting

    def _start(self, programs: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> None:
        for told in programs:
            self.running.append(self._started(told))

    def _started(self, told: Mapping[str, Any]) -> _Running:
        place = 1 + self.mine.index(told)  # two that are at work at a time differ in it
        argv, env = told["argv"], {**os.environ, **told["env"], "RAILBED_PLACE": str(place)}
        outputs = {key: tempfile.TemporaryFile() for key in ("out", "err")}  # noqa: SIM115 - read when it has ended
        if not self.device.real_clock and (why := executable.has_own_clock(argv[0], env.get("PATH", os.defpath))):
            raise Failed(f"{argv[0]} {why}: it cannot run with the virtual clock", "clock: real")
        try:
            process = subprocess.Popen(
                argv, env=env, cwd="/tmp", stdin=subprocess.DEVNULL,
                stdout=outputs["out"], stderr=outputs["err"], start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            hint = "install its package, or bring it with workers.bind or workers.image (docs/programs.md)"
            raise Failed(f"there is no program {argv[0]} in the rank's container", hint) from None
        except OSError as error:
            raise Failed(f"{argv[0]} cannot be run: {error.strerror}") from None
        return _Running(told, process, outputs, self.device.time_ns, os.pidfd_open(process.pid))

    def _servers_first(self, until_ns: float) -> None:
        """Waits until clients may begin.  With the real clock, how long servers take is up to the machine."""
        device, patience = self.device, time.monotonic() + _PATIENCE_S
        while device.real_clock and time.monotonic() < patience and self._some_do_not_listen():
            self._once(device.time_ns)
            time.sleep(0.02)
        if device.real_clock:
            device.sync(self.tag + _LISTEN, len(self.plan["ranks"]))
        while self.running and device.time_ns < until_ns:
            self._once(until_ns)
        if device.time_ns < until_ns:
            device.wait(_MANY, until_ns)

    def _some_do_not_listen(self) -> bool:
        return not all(process_table.listens(one.process.pid) for one in self.running)

    # -- waiting

    def _wait(self, deadline_ns: float) -> float:
        """Until all have ended: servers when their clients have, and a little later if they do not by themselves.

        Returns the time at which ours had.
        """
        device, limit, clients_ended = self.device, deadline_ns, not self.with_servers
        while not all(one.serves for one in self.running):
            self._once(deadline_ns)
            self._in_time(deadline_ns)
        if self.with_servers:
            device.ask_sync(self.tag + _CLIENTS_ENDED, len(self.plan["ranks"]))
        while self.running:
            if any(record.kind == wire.SYNCED for record in self._once(limit)):
                clients_ended, limit = True, device.answered_ps / 1000 + LINGER_NS
            if not clients_ended:
                self._in_time(deadline_ns)
            elif device.answered_ps / 1000 >= limit:
                self._end(signal.SIGTERM)
        device.await_programs(0, deadline_ns)
        clients_ended |= any(record.kind == wire.SYNCED for record in device.programs_awaited())
        end_ns = device.time_ns
        if not clients_ended:
            device.sync_answer(self.tag + _CLIENTS_ENDED)
        return end_ns

    def _in_time(self, deadline_ns: float) -> None:
        if self.running and self.device.answered_ps / 1000 >= deadline_ns:
            names = ", ".join(dict.fromkeys(one.name for one in self.running))
            limit = f"{self.plan['timeout_ns'] / 1e9:g}s of emulated time"
            raise Failed(f"{names} had not ended after {limit}", "timeout: 100s, if it takes that long")

    def _once(self, until_ns: float) -> Sequence[Record]:
        """Until something happens: a program has ended, a record is due, or it is that late.  What is due."""
        device = self.device
        device.await_programs(len(self.running), until_ns)
        poll = select.poll()
        for fd in (device.fileno(), *(one.ended for one in self.running)):
            poll.register(fd, select.POLLIN)
        busy = self._cpu_ticks()
        while not (seen := poll.poll(_LOOK_S * 1000)):
            if busy != (busy := self._cpu_ticks()):
                break
        if device.fileno() not in (fd for fd, _ in seen):
            device.interrupt()
        due = device.programs_awaited()
        for one in [one for one in self.running if one.process.poll() is not None]:
            self._reaped(one)
        return due

    def _cpu_ticks(self) -> int:
        """What the programs have used: those that use some more are not hung."""
        return process_table.cpu_ticks({one.process.pid for one in self.running})

    def _reaped(self, one: _Running) -> None:
        self.running.remove(one)
        self.through.append(one)
        os.close(one.ended)
        code = one.process.returncode
        if code and not one.stopped and not self.plan["may_fail"]:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            said = f": {words}" if (words := one.last_words()) else ""
            hint = "the run's folder programs/ has all that it printed; may_fail: true makes that a result"
            raise Failed(f"{one.name} {how}{said}", hint)

    def _end(self, number: int) -> None:
        """Ends what runs, with SIGKILL if that does not help."""
        for one in self.running:
            one.stopped = True
            one.signal(number)
        patience = time.monotonic() + _PATIENCE_S
        while self.running:
            one = self.running[0]
            try:
                one.process.wait(max(patience - time.monotonic(), 0))
                self._reaped(one)
            except subprocess.TimeoutExpired:
                one.signal(signal.SIGKILL)

    # -- telling

    def _tell_output(self, one: _Running) -> None:
        for output in one.outputs:
            text = one.said(output)
            for at in range(0, len(text), _PIECE):
                said = {"program": one.told["number"], "output": output, "text": text[at : at + _PIECE]}
                self.emit({"kind": "said", "step": self.number, **said, "rank": self.device.rank})

    def _tell(self, one: _Running, end_ns: float) -> None:
        code = None if one.stopped else one.process.returncode
        line = {"program": one.told["number"], "rank": self.device.rank, "code": code}
        self.emit({"kind": "program", "step": self.number, **line, "start_ns": one.began_ns, "end_ns": end_ns})
