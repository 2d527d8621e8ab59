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
from testbed.machines import answers, ssh
from testbed.machines.answers import Lines, Malformed
from testbed.machines.engine import Gone
from testbed.machines.identity import ROOT
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
    told: dict[str, Any] | None = None
    problem: MachineError | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class Remote:
    """A machine under way, a Place. Errors are UserErrors, which name the machine and its place in the file."""

    def __init__(self, other: Other) -> None:
        self.other = other
        self.name = other.name
        self.lost = self._ending = False
        self._gone = ""
        self._running: dict[int, _Out] = {}
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._tidying: threading.Thread | None = None
        self._said = ""
        self._stderr: deque[str] = deque(maxlen=20)
        self._client = ssh.connect(other)
        try:
            self._channel = self._run("from testbed.machines.worker import main; main()")
            self._lines = Lines(self._channel)
            errors = self._channel.makefile_stderr("r")
            self._reader = threading.Thread(target=self._keep, args=(errors,), name="stderr", daemon=True)
            self._reader.start()
            self._meet()
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
        asked = self.other.machine.testbed
        place = shlex.quote(asked or str(ROOT))
        python = f'P={place}; if [ -d "$P" ]; then P="$P/.venv/bin/python"; else P="$(dirname "$P")/python"; fi'
        if asked is None and not Path(ROOT, ".venv").exists():
            python = f"P={shlex.quote(sys.executable)}"
        words = " ".join(shlex.quote(word) for word in ("-P", "-c", program, *arguments))
        root = 'S=; [ "$(id -u)" = 0 ] || S="sudo -n"'
        there = '[ -x "$P" ] || { echo "railbed: no $P" >&2; exit 127; }'
        transport = self._client.get_transport()
        try:
            assert transport is not None
            channel = transport.open_session(timeout=ssh.CONNECT_S)
            channel.exec_command(f'{python}; {there}; {root}; exec $S "$P" {words}')
        except (paramiko.SSHException, OSError, EOFError, AssertionError):
            raise self._error("its connection has broken") from None
        return channel

    def _say(self, what: dict[str, Any]) -> None:
        """If it hears nothing any more, its connection ends: then no answer comes either."""
        try:
            with self._sending:
                self._channel.sendall((json.dumps(what) + "\n").encode())
        except OSError:
            self._client.close()

    def _hear(self, seconds: float, doing: str) -> dict[str, Any]:
        """The next answer. Raises Malformed for none."""
        return answers.said(self._line(seconds, monotonic() + seconds, doing))

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
        """The worker's first answer, which says `versions`. What its shell prints before (a .bashrc may) is not its."""
        until = monotonic() + HELLO_S
        for _ in range(MOST_LINES):
            line = self._line(HELLO_S, until, "starting")
            with suppress(Malformed):
                if "versions" in (told := answers.said(line)):
                    return told
        raise self._ended("starting")

    def _no_worker(self, malformed: Malformed) -> MachineError:
        return self._error(f"its worker does not answer as one: {malformed}", "testbed: PATH, testbed doctor there")

    def _ended(self, doing: str) -> MachineError:
        """Why its worker is not there."""
        self._channel.status_event.wait(5.0)
        self._reader.join(5.0)  # its last words may have come, but not been read
        said = "\n".join(self._stderr)
        where = self.other.machine.testbed or str(ROOT)
        if "railbed: no " in said:
            return self._error(
                f"there is no Railbed in {where}", "testbed: PATH says where it is; ./setup.sh build there"
            )
        if "No module named" in said:
            return self._error(f"another version of Railbed is in {where}", "the same version on all machines")
        if "sudo:" in said:
            return self._error("a fabric needs root there", "user: root, or sudo without a password")
        last = self._stderr[-1] if self._stderr else "it said nothing"
        return self._error(f"its worker ended while {doing}: {last}", "testbed doctor there")

    def _meet(self) -> None:
        """Hears what is there. Raises MachineError if it cannot run points, or not the same ones."""
        try:
            told = self._hello()
            there = answers.versions(told)
            for name, ours in versions().items():
                theirs = there.get(name, "none")
                if theirs != ours:
                    what = "Railbed" if name == "railbed" else name
                    hint = "the same version on all machines, or figures would not be the same"
                    raise self._error(f"it has another version of {what}: {theirs}, here it is {ours}", hint)
            its = answers.greeting(told)
        except Malformed as malformed:
            raise self._no_worker(malformed) from None
        self._raise([Problem(p.what, self.other.place, p.hint) for p in its.problems])
        self.folder, self.machine, self.memory = its.folder, its.machine, its.memory
        self.points: int = min(self.other.machine.points or its.cpus, 4096)

    def _raise(self, problems: Sequence[Problem]) -> None:
        if problems:
            first, *others = [Problem(f"{self.name}: {p.what}", p.where, p.hint) for p in problems]
            raise MachineError(first.what, first.where, first.hint, others)

    def check(self, sweep: dict[str, Any]) -> None:
        """Raises MachineError if the sweep would not be the same there: a key, a value, a file."""
        self._say({"check": sweep})
        try:
            found = answers.problems(self._hear(CHECK_S, "checking the sweep"))
        except Malformed as malformed:
            raise self._no_worker(malformed) from None
        self._raise(found)

    def start(self, command: Sequence[str], home: Path, lost: Callable[[str, str], object]) -> None:
        """From here on it takes points. Their runs' folders come into `home`; `lost` is told its name, and why."""
        self._say({"start": {"command": list(command)}})
        try:
            if "ready" not in (told := self._hear(START_S, "starting its worker")):
                raise Malformed(f"{answers.plain(told)[:80]} where it should be ready")
        except Malformed as malformed:
            raise self._no_worker(malformed) from None
        self._home, self._tell_lost = home, lost
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
            raise Gone(self._gone)
        try:
            self._say({"run": number, "point": {**point, "folder": ""}})
            out.ended.wait()
        finally:
            self._running.pop(number, None)
        if out.told is None or out.problem:
            out.files.unlink(missing_ok=True)
            raise out.problem or Gone(self._gone)
        return {**out.told, "packed": out.files} if out.bytes else out.told

    def _listen(self) -> None:
        """Hears of its points. A machine that says nothing any more, or nonsense, is lost: it is cut off."""
        why = "its connection has ended"
        try:
            while (line := self._lines.next(SILENT_S)) is not None:
                self._heard(answers.said(line))
        except TimeoutError:
            why = f"it has said nothing for {SILENT_S:.0f} s"
        except Malformed as malformed:
            why = f"it does not answer as a worker: {malformed}"
        except (OSError, EOFError):
            pass
        with self._lock:
            self._gone = why
            out = list(self._running.values())
        for one in out:
            one.ended.set()
        if not self._ending and not self.lost:
            self._tell_lost(self.name, why)
            self._client.close()

    def _heard(self, told: dict[str, Any]) -> None:
        """Raises Malformed."""
        if "alive" in told:
            return
        number = told.get("files", told.get("ended"))
        if not isinstance(number, int) or (out := self._running.get(number)) is None:
            raise Malformed(f"it speaks of a point that it does not run: {answers.plain(number)[:20]}")
        if "files" in told:
            self._keep_part(out, answers.chunk(told))
            return
        out.told = answers.point(told.get("point"))
        out.ended.set()

    def _keep_part(self, out: _Out, part: bytes) -> None:
        """What cannot be written here is said when the point has ended."""
        out.bytes += len(part)
        if out.bytes > answers.MOST_FILES:
            raise Malformed(f"the folder of a point has more than {answers.MOST_FILES >> 30} GiB")
        try:
            if not out.problem:
                with out.files.open("ab") as file:
                    file.write(part)
        except OSError as error:
            hint = "make room, and start it again: it goes on"
            what = f"a point's run cannot be written: {error.strerror or error}"
            out.problem = MachineError(what, str(out.files.parent), hint)

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
            self._said = self.tidy()

        self._later(work, note)

    def _later(self, work: Callable[[], None], note: Callable[[str], object]) -> None:
        self.lost = True
        self._note = note
        self._tidying = threading.Thread(target=work, name="tidying")
        self._tidying.start()

    def tidied(self) -> None:
        """Says how that went, if there was anything to tidy up."""
        if self._tidying:
            self._tidying.join()
            if self._said:
                self._note(f"{self.name}: {self._said}")
            self._tidying = None
            self._client.close()

    def tidy(self) -> str:
        """What a lost worker has left is removed; says in a few words how that went."""
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


def all_of(do: Callable[[Any], T], those: Sequence[Any]) -> list[T]:
    """`do` with each, at the same time. Raises all errors as one, of the first one's kind.

    A Ctrl-C, or an error of ours, waits for none of them; a Remote that nobody gets is closed.
    """
    errors: list[UserError] = []
    done: list[T] = []
    begun = [_begun(do, one) for one in those]
    try:
        for future in begun:
            try:
                done.append(future.result())
            except UserError as error:
                errors.append(error)
    except BaseException:
        for future in begun:
            future.add_done_callback(_close)  # at once if it is done
        raise
    if errors:
        for future in begun:
            _close(future)
        first, *others = errors
        also = [Problem(p.what, p.where, p.hint) for p in others]
        also = [*first.also, *(q for p, error in zip(also, others, strict=True) for q in (p, *error.also))]
        raise UserError(first.what, first.where, first.hint, first.exit_code, also)
    return done


def _begun(do: Callable[[Any], T], one: Any) -> Future[T]:
    """In a thread that the end of this process does not wait for."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(do(one))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="machine", daemon=True).start()
    return future


def _close(made: Future[Any]) -> None:
    if made.exception() is None and isinstance(remote := made.result(), Remote):
        remote.close()
