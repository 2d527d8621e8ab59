"""Another machine: looked at before anything runs there, given points, and tidied up when it is lost or done.

All that passes goes through the one SSH connection, as lines of JSON (answers.py); a run's folder comes home in parts.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import paramiko

from testbed.base.errors import MachineError, Problem, UserError
from testbed.machine.mounts import CHECKOUT
from testbed.machines import answers, ssh
from testbed.machines.answers import BadAnswer, LineReader
from testbed.machines.engine import BackendLost
from testbed.machines.known import cannot_write
from testbed.machines.where import Other
from testbed.machines.worker import versions

HELLO_S = 60.0  # to start Python there, and for its doctor
CHECK_S = 120.0
START_S = 60.0
SILENT_S = 20.0  # then it is lost
END_S = 90.0  # for what runs there to take its fabrics down
TIDY_S = 60.0

MOST_LINES = 1000  # that a shell prints before the worker begins
MOST_STDERR = 1 << 16  # bytes of a line of it

T = TypeVar("T")


@dataclass
class _Out:
    """A point that runs there; its run's folder comes home into the file `files`."""

    files: Path
    bytes: int = 0
    answer: dict[str, Any] | None = None
    problem: MachineError | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class RemoteMachine:
    """A machine under way, a Place. Errors are UserErrors, which name the machine and its place in the file."""

    def __init__(self, other: Other) -> None:
        self.other = other
        self.name = other.name
        self.lost = self._ending = False
        self._gone = ""
        self._running: dict[int, _Out] = {}
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._tidying: threading.Thread | None = None
        self._report = ""
        self._stderr: deque[str] = deque(maxlen=20)
        self._client = ssh.connect(other)
        try:
            self._channel = self._run("from testbed.machines.worker import main; main()")
            self._lines = LineReader(self._channel)
            errors = self._channel.makefile_stderr("r")
            self._reader = threading.Thread(target=self._keep, args=(errors,), name="stderr", daemon=True)
            self._reader.start()
            self._greet()
        except BaseException:
            self.close()
            raise

    def _keep(self, errors: Any) -> None:
        with suppress(OSError, EOFError, ValueError):
            while line := errors.readline(MOST_STDERR):
                self._stderr.append(answers.plain(line.rstrip()))

    def _error(self, what: str, hint: str = "", where: str = "") -> MachineError:
        return MachineError(f"{self.name}: {what}", where or self.other.place, hint)

    def _run(self, program: str, *arguments: str) -> paramiko.Channel:
        """Starts Python there, as root. Nothing secret stands on its command line."""
        folder = self.other.machine.testbed
        place = shlex.quote(folder or str(CHECKOUT))
        python = f'P={place}; if [ -d "$P" ]; then P="$P/.venv/bin/python"; else P="$(dirname "$P")/python"; fi'
        if folder is None and not Path(CHECKOUT, ".venv").exists():
            python = f"P={shlex.quote(sys.executable)}"
        words = " ".join(shlex.quote(word) for word in ("-P", "-c", program, *arguments))
        root = 'S=; [ "$(id -u)" = 0 ] || S="sudo -n"'
        checked = '[ -x "$P" ] || { echo "railbed: no $P" >&2; exit 127; }'
        transport = self._client.get_transport()
        try:
            assert transport is not None
            channel = transport.open_session(timeout=ssh.CONNECT_S)
            channel.exec_command(f'{python}; {checked}; {root}; exec $S "$P" {words}')
        except (paramiko.SSHException, OSError, EOFError, AssertionError):
            raise self._error("its connection has broken") from None
        return channel

    def _send(self, what: dict[str, Any]) -> None:
        """A broken connection is closed: then no answer comes either."""
        try:
            with self._sending:
                self._channel.sendall((json.dumps(what) + "\n").encode())
        except OSError:
            self._client.close()

    def _receive(self, seconds: float, doing: str) -> dict[str, Any]:
        """The next answer. Raises BadAnswer."""
        return answers.parse(self._line(seconds, monotonic() + seconds, doing))

    def _line(self, seconds: float, until: float, doing: str) -> str:
        try:
            line = self._lines.next(seconds, until)
        except TimeoutError:
            raise self._error(f"it has said nothing for {seconds:.0f} s while {doing}") from None
        except (OSError, EOFError):
            line = None
        if line is None:
            raise self._ended(doing)
        return line

    def _hello(self) -> dict[str, Any]:
        """The worker's first answer, which has `versions`; what a .bashrc prints before it is skipped."""
        until = monotonic() + HELLO_S
        for _ in range(MOST_LINES):
            line = self._line(HELLO_S, until, "starting")
            with suppress(BadAnswer):
                if "versions" in (answer := answers.parse(line)):
                    return answer
        raise self._ended("starting")

    def _no_worker(self, malformed: BadAnswer) -> MachineError:
        return self._error(f"its worker does not answer as one: {malformed}", "testbed: PATH, testbed doctor there")

    def _ended(self, doing: str) -> MachineError:
        """Why its worker is not there."""
        self._channel.status_event.wait(5.0)
        self._reader.join(5.0)  # its last output may have arrived, but not been read
        output = "\n".join(self._stderr)
        where = self.other.machine.testbed or str(CHECKOUT)
        if "railbed: no " in output:
            hint = "testbed: PATH says where it is; ./setup.sh build there"
            return self._error(f"there is no Railbed in {where}", hint)
        if "No module named" in output:
            return self._error(f"another version of Railbed is in {where}", "the same version on all machines")
        if "sudo:" in output:
            return self._error("a fabric needs root there", "user: root, or sudo without a password")
        last = self._stderr[-1] if self._stderr else "it said nothing"
        return self._error(f"its worker ended while {doing}: {last}", "testbed doctor there")

    def _greet(self) -> None:
        """Reads what the machine has. Raises MachineError if it cannot run points, or not the same ones."""
        try:
            answer = self._hello()
            remote = answers.versions(answer)
            for name, here in versions().items():
                there = remote.get(name, "none")
                if there != here:
                    what = "Railbed" if name == "railbed" else name
                    hint = "the same version on all machines, or figures would not be the same"
                    raise self._error(f"it has another version of {what}: {there}, here it is {here}", hint)
            greeting = answers.greeting(answer)
        except BadAnswer as malformed:
            raise self._no_worker(malformed) from None
        self._raise([Problem(p.what, self.other.place, p.hint) for p in greeting.problems])
        self.folder, self.machine, self.memory = greeting.folder, greeting.machine, greeting.memory
        self.points: int = min(self.other.machine.points or greeting.cpus, 4096)

    def _raise(self, problems: Sequence[Problem]) -> None:
        if problems:
            first, *others = [Problem(f"{self.name}: {p.what}", p.where, p.hint) for p in problems]
            raise MachineError(first.what, first.where, first.hint, others)

    def check(self, sweep: dict[str, Any]) -> None:
        """Raises MachineError if the sweep would not be the same there: a key, a value, a file."""
        self._send({"check": sweep})
        try:
            problems = answers.problems(self._receive(CHECK_S, "checking the sweep"))
        except BadAnswer as malformed:
            raise self._no_worker(malformed) from None
        self._raise(problems)

    def start(self, command: Sequence[str], home: Path, lost: Callable[[str, str], object]) -> None:
        """From here on it takes points. Their runs' folders come into `home`; `lost` is told its name, and why."""
        self._send({"start": {"command": list(command)}})
        try:
            if "ready" not in (answer := self._receive(START_S, "starting its worker")):
                raise BadAnswer(f"{answers.plain(answer)[:80]} where it should be ready")
        except BadAnswer as malformed:
            raise self._no_worker(malformed) from None
        self._home, self._on_lost = home, lost
        threading.Thread(target=self._listen, name="alive", daemon=True).start()

    # -- points

    def run(self, number: int, point: dict[str, Any]) -> dict[str, Any]:
        """A point, to its end; `packed` is the file in which its run's folder has come. Raises Gone."""
        out = _Out(self._home / f"point-{number}.zip")
        out.files.unlink(missing_ok=True)  # of a machine that was lost
        with self._lock:
            if not self._gone:
                self._running[number] = out
        if self._gone:
            raise BackendLost(self._gone)
        try:
            self._send({"run": number, "point": {**point, "folder": ""}})
            out.ended.wait()
        finally:
            self._running.pop(number, None)
        if out.answer is None or out.problem:
            out.files.unlink(missing_ok=True)
            raise out.problem or BackendLost(self._gone)
        return {**out.answer, "packed": out.files} if out.bytes else out.answer

    def _listen(self) -> None:
        """Takes the answers of its points. A machine that is silent, or sends nonsense, is lost: it is cut off."""
        why = "its connection has ended"
        try:
            while (line := self._lines.next(SILENT_S)) is not None:
                self._handle(answers.parse(line))
        except TimeoutError:
            why = f"it has said nothing for {SILENT_S:.0f} s"
        except BadAnswer as malformed:
            why = f"it does not answer as a worker: {malformed}"
        except (OSError, EOFError):
            pass
        with self._lock:
            self._gone = why
            out = list(self._running.values())
        for item in out:
            item.ended.set()
        if not self._ending and not self.lost:
            self._on_lost(self.name, why)
            self._client.close()

    def _handle(self, answer: dict[str, Any]) -> None:
        """Raises Malformed."""
        if "alive" in answer:
            return
        number = answer.get("files", answer.get("ended"))
        if not isinstance(number, int) or (out := self._running.get(number)) is None:
            raise BadAnswer(f"it speaks of a point that it does not run: {answers.plain(number)[:20]}")
        if "files" in answer:
            self._keep_part(out, answers.chunk(answer))
            return
        out.answer = answers.point(answer.get("point"))
        out.ended.set()

    def _keep_part(self, out: _Out, part: bytes) -> None:
        """Appends a part of a run's folder; an error in that is reported when the point has ended."""
        out.bytes += len(part)
        if out.bytes > answers.MOST_FILES:
            raise BadAnswer(f"the folder of a point has more than {answers.MOST_FILES >> 30} GiB")
        try:
            if not out.problem:
                with out.files.open("ab") as file:
                    file.write(part)
        except OSError as error:
            out.problem = cannot_write(error, out.files.parent)

    # -- its end

    def end(self) -> bool:
        """Has what runs there end, and waits for that; False if it is not known to have ended."""
        ended = False
        self._ending = True
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()
            ended = self._channel.status_event.wait(END_S) and self._channel.exit_status == 0
        self.close()
        return ended

    def close(self) -> None:
        self._client.close()

    def end_later(self, note: Callable[[str], object]) -> None:
        """As `end`, while the sweep goes on; `tidy` if it is not known to have ended. It runs no more points."""

        def work() -> None:
            if not self.end():
                note(f"{self.name}: its worker did not end as it should; {self.tidy()}")

        self._later(work, note)

    def tidy_later(self, note: Callable[[str], object]) -> None:
        """As `tidy`, while the sweep goes on; `tidied` waits for it."""

        def work() -> None:
            self._report = self.tidy()

        self._later(work, note)

    def _later(self, work: Callable[[], None], note: Callable[[str], object]) -> None:
        self.lost = True
        self._note = note
        self._tidying = threading.Thread(target=work, name="tidying")
        self._tidying.start()

    def tidied(self) -> None:
        """Reports how that went, if there was anything to tidy up."""
        if self._tidying:
            self._tidying.join()
            if self._report:
                self._note(f"{self.name}: {self._report}")
            self._tidying = None
            self._client.close()

    def tidy(self) -> str:
        """Removes what a lost worker has left; returns how that went, in a few words."""
        code = "import sys; from testbed.machines.worker import tidied; tidied(sys.argv[1])"
        try:
            self._client.close()  # whatever has become of it
            self._client = ssh.connect(self.other)
            channel = self._run(code, self.folder)
            if not channel.status_event.wait(TIDY_S) or channel.exit_status:
                return f"it could not be tidied up: testbed clean on {self.name}"
        except UserError:
            return f"it cannot be reached; when it is back, testbed clean on {self.name} removes what is left there"
        return "what was left there is removed"


def all_of(do: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """`do` with each, at the same time. Raises all errors as one, of the first one's kind.

    A Ctrl-C, or an error of ours, waits for none of them; a Remote that nobody gets is closed.
    """
    errors: list[UserError] = []
    results: list[T] = []
    futures = [_begun(do, item) for item in items]
    try:
        for future in futures:
            try:
                results.append(future.result())
            except UserError as error:
                errors.append(error)
    except BaseException:
        for future in futures:
            future.add_done_callback(_close)  # at once if it is done
        raise
    if errors:
        for future in futures:
            _close(future)
        first, *others = errors
        also = [Problem(p.what, p.where, p.hint) for p in others]
        also = [*first.also, *(q for p, error in zip(also, others, strict=True) for q in (p, *error.also))]
        raise UserError(first.what, first.where, first.hint, first.exit_code, also)
    return results


def _begun(do: Callable[[Any], T], item: Any) -> Future[T]:
    """In a thread that the end of this process does not wait for."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(do(item))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="machine", daemon=True).start()
    return future


def _close(future: Future[Any]) -> None:
    if future.exception() is None and isinstance(remote := future.result(), RemoteMachine):
        remote.close()
