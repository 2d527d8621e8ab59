"""Tests beside each other: `-n N` forks so many processes, when all tests have been collected and imported.

Each would otherwise collect and import them by itself, as pytest-xdist's do: the 6,200 unit tests took 429 CPU-s by
xdist and 377 so, in five processes of a machine with two busy cores. That is 4 % of the whole suite. What is collected
is handed out by scopes: tests of one run in one process, one after the other, for the sake of what they
share. A process that dies takes one test with it; another one goes on with the rest of its scope. It lives in a process
group of its own, so that Ctrl-C ends it once: by us.
"""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

from testbed.machine.directories import lay_apart
from testbed.machine.processes import ended

Scope = list[int]
"""Places in `session.items`."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_ENDS_S = 60.0


def run(session: pytest.Session, scopes: Iterable[Scope], count: int) -> None:
    """Runs all tests of the scopes, in their order, in so many processes. Raises what ends a session early."""
    basetemp = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    waiting = deque(scopes)
    forks = [_Fork(session, number, basetemp) for number in range(min(count, len(waiting)))]
    if terminal := session.config.pluginmanager.get_plugin("terminalreporter"):
        terminal.showfspath = False  # they would take turns
    try:
        while forks:
            heard = wait([end for fork in forks for end in (fork.near, fork.pidfd)])
            for fork in [fork for fork in forks if {fork.near, fork.pidfd} & {*heard}]:
                gone = fork.is_gone()  # and has said all that it will
                fork.hear(waiting)
                if gone:
                    forks.remove(fork)
                    if rest := fork.left():
                        waiting.appendleft(rest)
                        forks.append(_Fork(session, fork.number, basetemp))
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
    finally:
        _end(forks)


def _end(forks: Sequence[_Fork]) -> None:
    """Interrupts them; they undo what their tests have made. Who asks again does not want to wait for that."""
    number = signal.SIGINT
    for fork in forks:
        fork.signal(number)
    for fork in forks:
        try:
            wait([fork.pidfd], _ENDS_S)
        finally:
            fork.signal(signal.SIGKILL)


class _Fork:
    """A process, as seen from where tests are handed out."""

    def __init__(self, session: pytest.Session, number: int, basetemp: Any) -> None:
        self.session, self.number = session, number
        self._scope: Scope = []  # what it has not ended yet
        self._done = False
        self.near, far = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self.near.close()
            _Child(session, far).live(basetemp / f"process{number}-{os.getpid()}")
        far.close()
        self.pidfd = os.pidfd_open(self._pid)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def hear(self, waiting: deque[Scope]) -> None:
        """Takes what it has said, and answers: the next scope, of those that wait."""
        hook, config = self.session.config.hook, self.session.config
        with suppress(EOFError, ConnectionError):
            while self.near.poll():
                what, told = self.near.recv()
                if what == "next":
                    self._scope = waiting.popleft() if waiting else []
                    self.near.send(self._scope)
                elif what == "report":
                    report = hook.pytest_report_from_serializable(config=config, data=told)
                    hook.pytest_runtest_logreport(report=report)
                elif what == "warning":
                    hook.pytest_warning_recorded.call_historic(kwargs=told)
                elif what == "ended":
                    item = self.session.items[self._scope.pop(0)]
                    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                elif what == "broken":
                    raise RuntimeError(told)
                else:
                    self._done = True

    def is_gone(self) -> bool:
        return bool(wait([self.pidfd], 0))

    def left(self) -> Scope:
        """Of one that is gone, what it was to run still. The test that it has ended with has failed."""
        _, code = os.waitpid(self._pid, 0)
        os.close(self.pidfd)
        self.near.close()
        if self._done or not self._scope:
            return []
        item = self.session.items[self._scope.pop(0)]
        why = f"the process of this test {ended(os.waitstatus_to_exitcode(code))}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        item.config.hook.pytest_runtest_logreport(report=report)
        item.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return self._scope


class _Child:
    """The process itself: a plugin that passes on what its tests give."""

    def __init__(self, session: pytest.Session, far: Connection) -> None:
        self.session, self._far = session, far
        self._begun = False

    def live(self, basetemp: Any) -> NoReturn:
        try:
            self._prepare(basetemp)
            self._run()
            self._say("done")
        except (KeyboardInterrupt, EOFError, ConnectionError):  # the end, for all
            with suppress(Exception):
                self.session._setupstate.teardown_exact(None)
        except BaseException:
            with suppress(OSError):
                self._say("broken", traceback.format_exc())
        finally:
            os._exit(0)

    def _prepare(self, basetemp: Any) -> None:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGINT)
        config = self.session.config
        basetemp.mkdir(0o700)
        folder = os.open(basetemp, os.O_RDONLY)
        lay_apart(folder)
        os.close(folder)
        config._tmp_path_factory._basetemp = basetemp  # type: ignore[attr-defined]
        plugins = config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(self, "beside")
        if (capture := plugins.get_plugin("capturemanager")) and capture._global_capturing:  # into files of its own
            capture._global_capturing.stop_capturing()
            capture._global_capturing = None
            capture.start_global_capturing()

    def _run(self) -> None:
        self._begun = True
        items, protocol = self.session.items, self.session.config.hook.pytest_runtest_protocol
        while scope := self._next():
            for place, after in zip(scope, [*scope[1:], None], strict=True):
                # behind the last one, all is torn down but what the session has
                protocol(item=items[place], nextitem=self.session if after is None else items[after])
                self._say("ended")
        self.session._setupstate.teardown_exact(None)

    def _next(self) -> Scope:
        self._say("next")
        scope: Scope = self._far.recv()
        return scope

    def _say(self, what: str, told: Any = None) -> None:
        self._far.send((what, told))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self._say("report", config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if not self._begun:  # a new plugin hears of all that was warned of before, by others
            return
        text = UserWarning(f"{warning_message.category.__name__}: {warning_message.message}")
        plain = warnings.WarningMessage(text, UserWarning, warning_message.filename, warning_message.lineno)
        self._say("warning", {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location})
