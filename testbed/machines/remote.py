"""Another machine: looked at before anything runs there, given a worker, and tidied up when it is lost or done."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import paramiko

from testbed.base.errors import MachineError, Problem, UserError
from testbed.machines import ssh
from testbed.machines.identity import ROOT
from testbed.machines.tunnel import FromThere, ToThere
from testbed.machines.where import Other
from testbed.machines.worker import versions

HELLO_S = 60.0  # to start Python there, and for its doctor
CHECK_S = 120.0
START_S = 60.0
SILENT_S = 20.0  # then it is lost
END_S = 90.0  # for what runs there to take its fabrics down
TIDY_S = 60.0

MOST_LINES = 1000  # that a shell prints before the worker begins

T = TypeVar("T")


class Remote:
    """A machine under way. Every method raises UserError, which names the machine and its place in the file."""

    def __init__(self, other: Other) -> None:
        self.other = other
        self.name = other.name
        self.lost = self._ending = False
        self._tidying: threading.Thread | None = None
        self._said = ""
        self._stderr: deque[str] = deque(maxlen=20)
        self._client = ssh.connect(other)
        self._tunnel: ToThere | None = None
        try:
            self._channel = self._run("from testbed.machines.worker import main; main()")
            self._lines = self._channel.makefile("r")
            errors = self._channel.makefile_stderr("r")
            self._reader = threading.Thread(target=self._keep, args=(errors,), name="stderr", daemon=True)
            self._reader.start()
            self._meet()
        except BaseException:
            self.close()
            raise

    def _keep(self, errors: Any) -> None:
        with suppress(OSError, EOFError, ValueError):
            for line in errors:
                self._stderr.append(line.rstrip())

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
        with suppress(OSError):  # then no answer comes either
            self._channel.sendall((json.dumps(what) + "\n").encode())

    def _hear(self, seconds: float, doing: str) -> dict[str, Any]:
        self._channel.settimeout(seconds)
        try:
            if (line := self._lines.readline()) and isinstance(told := json.loads(line), dict):
                return told
        except TimeoutError:
            raise self._error(f"it has said nothing for {seconds:.0f} s while {doing}") from None
        except (OSError, EOFError, ValueError):
            pass
        raise self._ended(doing)

    def _hello(self) -> dict[str, Any]:
        """The worker's first answer, which says `versions`. What its shell prints before (a .bashrc may) is not its."""
        self._channel.settimeout(HELLO_S)
        try:
            for line, _ in zip(self._lines, range(MOST_LINES), strict=False):
                with suppress(ValueError):
                    if isinstance(told := json.loads(line), dict) and "versions" in told:
                        return told
        except TimeoutError:
            raise self._error(f"it has said nothing for {HELLO_S:.0f} s while starting") from None
        except (OSError, EOFError, ValueError):
            pass
        raise self._ended("starting")

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
        told = self._hello()
        here = versions()
        for name, ours in here.items():
            theirs = told.get("versions", {}).get(name, "none")
            if theirs != ours:
                what = "Railbed" if name == "railbed" else name
                hint = "the same version on all machines, or figures would not be the same"
                raise self._error(f"it has another version of {what}: {theirs}, here it is {ours}", hint)
        if problems := told["problems"]:
            first, *others = [Problem(f"{self.name}: {p['what']}", self.other.place, p["hint"]) for p in problems]
            raise MachineError(first.what, first.where, first.hint, others)
        transport = self._client.get_transport()
        assert transport is not None
        try:
            self._back = FromThere(transport)
        except (paramiko.SSHException, OSError, EOFError):
            raise self._error("its sshd forwards no ports", "AllowTcpForwarding yes in its sshd_config") from None
        self._tunnel = ToThere(transport)
        self.folder: str = told["folder"]
        self.machine: str = told["machine"]
        self.memory: int = told["memory"]
        self.points: int = min(self.other.machine.points or told["cpus"], 4096)

    def check(self, sweep: dict[str, Any]) -> None:
        """Raises MachineError if the sweep would not be the same there: a key, a value, a file."""
        self._say({"check": sweep})
        found = self._hear(CHECK_S, "checking the sweep")["problems"]
        if found:
            first, *others = [Problem(f"{self.name}: {p['what']}", p["where"], p["hint"]) for p in found]
            raise MachineError(first.what, first.where, first.hint, others)

    def start(self, port: int, security: dict[str, str], memory: float, command: Sequence[str]) -> None:
        """Starts its worker, which speaks to the scheduler at this port of the loopback interface here."""
        assert self._tunnel is not None
        self._back.target = port
        told = {"name": self.name, "points": self.points, "memory": memory, "security": security}
        told |= {"scheduler": f"tls://127.0.0.1:{self._back.port}", "contact": f"tls://127.0.0.1:{self._tunnel.port}"}
        self._say({"start": {**told, "command": list(command)}})
        self._tunnel.target = self._hear(START_S, "starting its worker")["port"]
        threading.Thread(target=self._listen, name="alive", daemon=True).start()

    def _listen(self) -> None:
        """A machine that says nothing any more is cut off: its tunnels end, so Dask knows that it is lost."""
        self._channel.settimeout(SILENT_S)
        with suppress(OSError, EOFError):
            while self._lines.readline():
                pass
        if not self._ending and not self.lost and (transport := self._client.get_transport()):
            transport.close()

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
        if self._tunnel:
            self._tunnel.close()
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
