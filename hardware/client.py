"""Client of a fabricd: starts the process and speaks its control socket (docs/fabricd-protocol.md)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from hardware.patience import DEFAULT_S, LOOK_S, Patience

BINARY = Path(__file__).parent / "bin" / "fabricd"
SOURCES = Path(__file__).parent / "fabricd"
CHECKOUT = Path(__file__).resolve().parents[1] / ".git"
PULSE_S = 1.0
_WRITES = ("capture", "sample")  # requests to write the file at `path`: fabricd itself may open none


def _huge_pages(tunables: str) -> str:
    """For malloc(): in a large fabric TLB misses cost more than the accesses. The user's own settings win."""
    return ":".join(["glibc.malloc.hugetlb=1", *([tunables] if tunables else [])])


def newer_source(binary: Path, sources: Path = SOURCES) -> Path | None:
    """A source of fabricd that was changed after `binary` was built, if there is one."""
    built = binary.stat().st_mtime_ns
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(sources) for name in names)
    newest = max(((os.stat(path).st_mtime_ns, path) for path in paths if path.endswith((".c", ".h"))), default=(0, ""))
    return Path(newest[1]) if newest[0] > built else None


class FabricdError(Exception):
    """fabricd refused a request, did not start, or is gone; the text says which."""


class FabricdSoAlready(FabricdError):
    """A fault to be injected is there already, or one to be healed is not."""


class FabricdLost(FabricdError):
    """Nobody answers at this control socket any more."""

    def __init__(self, text: str, control: Path | None = None) -> None:
        super().__init__(text)
        self.control = control


class FabricdGone(FabricdLost):
    """fabricd has ended, or is about to."""


class FabricdSilent(FabricdLost):
    """fabricd runs, but does not answer any more (see hardware.patience); `does` says so behind its name."""

    def __init__(self, does: str, control: Path | None = None) -> None:
        super().__init__(f"fabricd {does}", control)
        self.does = does


class Fabricd:
    """One connection to a fabricd's control socket.

    Requests are answered in order; events that come in between are kept for `events()`.  While an answer is
    due, fabricd is pinged every second (`pulse`); `patience` decides how long to wait.
    """

    def __init__(
        self,
        control: Path | str,
        process: subprocess.Popen[bytes] | None = None,
        *,
        patience_s: float = DEFAULT_S,
    ) -> None:
        self.control = Path(control)
        self.process = process
        self.waits: list[dict[str, Any]] = []
        self.time_ns = 0.0  # when it said so
        self._pulsed: int | None = None
        self._pulsed_at = 0.0
        self._events: deque[dict[str, Any]] = deque()
        self._answers: deque[dict[str, Any]] = deque()
        self._input = bytearray()
        self._last_id = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(control))
        except OSError as error:
            self._socket.close()
            raise FabricdGone(f"{control}: {error.strerror}; fabricd does not run", self.control) from error
        peer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.patience = Patience(struct.unpack("3i", peer)[0], patience_s)

    @classmethod
    def start(
        cls,
        config: Mapping[str, Any],
        directory: Path,
        *,
        binary: Path = BINARY,
        user: int = 0,
        fifo: bool = False,
        log: IO[bytes] | int | None = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> Fabricd:
        """Start a fabricd in `directory` and wait until it is ready.

        fabricd.json, control.sock and workers/RANK/sock are made there.  `user` is the user and group that it becomes
        once it has all open (0: it stays who we are), without any privilege.  `before` is a command that becomes
        fabricd by exec, such as nsenter; `pass_fds` are descriptors that it keeps open.  Raises FabricdError with
        fabricd's own words when it cannot.
        """
        if not binary.exists():
            raise FabricdError(f"{binary} is missing: build it with `python -m hardware.build`")
        if binary == BINARY and CHECKOUT.exists() and (newer := newer_source(binary, SOURCES)):
            # Python and fabricd of different days do not understand each other, and nobody would guess why.
            raise FabricdError(f"{binary} is older than {newer}: build it again with `python -m hardware.build`")
        workers = directory / "workers"
        workers.mkdir(exist_ok=True)
        config_file = directory / "fabricd.json"
        config_file.write_text(json.dumps(config))
        control = directory / "control.sock"
        command = [str(binary), "--config", str(config_file), "--control", str(control), "--workers", str(workers)]
        command += ["--user", str(user), *(["--fifo"] if fifo else [])]
        process = subprocess.Popen(
            [*before, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            pass_fds=pass_fds,
            env={**os.environ, "GLIBC_TUNABLES": _huge_pages(os.environ.get("GLIBC_TUNABLES", "")), **(env or {})},
        )
        patience_s = config.get("patience_ms", DEFAULT_S * 1000) / 1000
        try:
            cls._await_ready(process, Patience(process.pid, patience_s))
            return cls(control, process, patience_s=patience_s)
        except BaseException:
            process.kill()
            process.wait()
            raise

    @staticmethod
    def _await_ready(process: subprocess.Popen[bytes], patience: Patience) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            while not select.select([stdout], [], [], LOOK_S)[0]:
                if why := patience.look():
                    raise FabricdSilent(f"does not get ready: {why}")
            line = stdout.readline()
        if not line:
            raise FabricdError("fabricd ended before it was ready")
        state = json.loads(line)
        if not state.get("ready"):
            raise FabricdError(f"fabricd: {state.get('error')}")

    def request(self, op: str, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Ask, wait for the answer, return it.

        Raises FabricdError if it is refused, or on no answer within `timeout` s of wall time (None: however long it
        takes), and FabricdSilent when patience with fabricd has run out.
        """
        with _handed_over(arguments.get("path") if op in _WRITES else None) as files:
            answer = self.answer(self.ask(op, files, **arguments), timeout)
        if answer is None:
            raise FabricdError(f"fabricd has not answered `{op}` within {timeout:g} s")
        return answer

    def answer(self, asked: int, timeout: float | None = None) -> dict[str, Any] | None:
        """The answer to a request that was sent by `ask`; None if it has not come within `timeout` s.

        Requests before it are given up. Raises as `request`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._answers:
                answer = self._answers.popleft()
                if answer.get("id") != asked:
                    continue  # of a request that was given up
                if not answer["ok"]:
                    raise (FabricdSoAlready if answer.get("already") else FabricdError)(answer["error"])
                return answer
            left = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
            self._receive(max(left, 0))
            if not self._answers:
                self.pulse()
                if left <= 0:
                    return None

    def pulse(self) -> None:
        """Ping fabricd, at most every second, and read what has come; `waits` then says for whom fabricd waits.

        Does not wait.  Raises FabricdSilent when patience has run out.
        """
        now = time.monotonic()
        if self._pulsed is None and now - self._pulsed_at >= PULSE_S:
            self._pulsed_at = now
            self.patience.begin()
            self._pulsed = self.ask("waits")
        if self._pulsed is not None and (why := self.patience.look()):
            self._receive(0)  # it may be there already
            if self._pulsed is not None:
                raise FabricdSilent(f"does not answer: {why}", self.control)

    def next_job(self, deadline_s: float = 20.0) -> float:
        """Lets every rank's worker connect once more, after the end of a job; returns the emulated time (ns).

        With the virtual clock, time then stands still until `start`.  Raises FabricdError if the job's workers are
        still connected, or if what they have left under way does not come to an end: `deadline_s` after the emulated
        time went on last.  `waits` then says for whom it stands still.
        """
        status = self.request("status")
        if status["clock"] == "virtual" and status["running"]:
            self._quiet(deadline_s)
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                return float(self.request("next_job")["time_ns"])
            except FabricdSilent:
                raise
            except FabricdError:  # it may not have seen yet that they are gone
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _quiet(self, deadline_s: float) -> None:
        """Waits until all that is under way has come to an end. Raises as `next_job`."""
        asked = self.ask("quiesce")
        went_on, time_ns = time.monotonic(), -1.0
        while self.answer(asked, LOOK_S) is None:
            if (now_ns := self.time_ns) != time_ns:
                went_on, time_ns = time.monotonic(), now_ns
            elif time.monotonic() - went_on > deadline_s:
                self.waits = self.request("waits")["waits"]
                raise FabricdError(f"the job before has not ended, and no time has passed for {deadline_s:g} s")

    def subscribe(self, *, settles: bool = False, acts: str | None = None) -> None:
        """Subscribe to events.

        `settles`: this client answers port events with `settled` (a controller).  `acts`: it carries out `act` events
        for "controller" or "agent", and answers them likewise.
        """
        arguments: dict[str, Any] = {"settles": settles, **({"acts": acts} if acts else {})}
        self.request("subscribe", **arguments)

    def events(self, timeout: float | None = 0.0) -> Iterator[dict[str, Any]]:
        """The events that have come; if there is none yet, waits up to `timeout` s for one (None: for ever)."""
        if not self._events:
            self._receive(timeout)
        while self._events:
            yield self._events.popleft()

    def fileno(self) -> int:
        """For select(): readable when there may be events."""
        return self._socket.fileno()

    def stop(self, timeout: float = 10.0) -> None:
        """End fabricd (and with it its TAP devices) and wait until it has ended."""
        with contextlib.suppress(FabricdError):  # gone already
            self.request("stop", timeout)
        self.close()
        if self.process is not None:
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def close(self) -> None:
        """Close the connection; fabricd goes on."""
        self._socket.close()

    def ask(self, op: str, files: Sequence[int] = (), **arguments: Any) -> int:
        """Send a request, with open files; return its id. Raises FabricdError if fabricd is gone."""
        self._last_id += 1
        line = json.dumps({"id": self._last_id, "op": op, **arguments}).encode() + b"\n"
        try:
            if rest := line[socket.send_fds(self._socket, [line], files) :]:
                self._socket.sendall(rest)
        except OSError as error:
            raise FabricdGone("fabricd is gone", self.control) from error
        return self._last_id

    def _receive(self, timeout: float | None) -> None:
        """Take in what has come, waiting up to `timeout` s for something."""
        ready, _, _ = select.select([self._socket], [], [], timeout)
        if not ready:
            return
        try:
            data = self._socket.recv(1 << 20)
        except OSError as error:
            raise FabricdGone("fabricd is gone", self.control) from error
        if not data:
            raise FabricdGone("fabricd is gone", self.control)
        self._input += data
        *lines, rest = self._input.split(b"\n")
        self._input = bytearray(rest)
        for line in lines:
            message = json.loads(line)
            if "event" in message:
                self._events.append(message)
            elif message.get("id") == self._pulsed:
                self._pulsed = None
                self.waits, self.time_ns = message.get("waits", []), message.get("time_ns", 0.0)
            else:
                self._answers.append(message)
        self.patience.begin()


@contextlib.contextmanager
def _handed_over(path: str | None) -> Iterator[list[int]]:
    """A file that fabricd is to write, opened for it; if it refuses, none is left that was not there before."""
    if path is None:
        yield []
        return
    new = not os.path.exists(path)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise FabricdError(f"{path}: {error.strerror}") from None
    try:
        yield [file]
    except FabricdError:
        if new:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    finally:
        os.close(file)
