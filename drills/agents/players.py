"""Who plays in a benchmark: an agent, which is a command that speaks on its stdin and stdout, or a baseline.

An agent that dies, leaves or takes too long has failed; so has a baseline that raises something.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from threading import Timer
from typing import Any, Protocol

from drills.agents import jsonl, mcp
from drills.agents.desk import AgentSession
from drills.check.players import LOOKERS
from drills.game import Game
from drills.session import Answer
from drills.solve.baselines import PLAYERS as BASELINES
from drills.solve.baselines import Player as Baseline
from testbed.base.errors import InputError, UserError
from testbed.base.types import unknown

BASELINE = "baseline:"
SPEAKS = ("jsonl", "mcp")
GRACE_S = 5.0
"""How long an agent may take to end when the drill is over."""

Noting = Callable[[Any, str], None]
"""Gets each request and its answer."""


class Player(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """Of the results: one, but for those who only look."""

    def play(self, game: Game, wall_s: float, stderr: Path, noting: Noting) -> tuple[str, int]:
        """Plays to the end. Returns why it has failed ("" if it has not), and the number of its calls."""


def players_of(agents: Sequence[str], speaks: str, user: str | None) -> Player:
    """One, or several baselines that only look. Raises UserError."""
    players = [player_of(agent, speaks, user) for agent in dict.fromkeys(agents)]
    if len(players) == 1:
        return players[0]
    looking = [one for one in players if isinstance(one, Rules) and one.word in LOOKERS]
    if len(looking) < len(players):
        known = ", ".join(f"{BASELINE}{name}" for name in LOOKERS)
        raise InputError("several play in one world only if none of them changes it", "--agent", f"several of {known}")
    return Lookers(tuple(looking))


def player_of(agent: str, speaks: str, user: str | None) -> Player:
    """Raises UserError."""
    if agent.startswith(BASELINE):
        name = agent.removeprefix(BASELINE)
        if name not in BASELINES:
            what, hint = unknown("baseline", name, list(BASELINES))
            raise InputError(what, "--agent", hint)
        return Rules(name, BASELINES[name])
    try:
        words = shlex.split(agent)
    except ValueError as error:
        raise InputError(f"{str(error).lower()}: {agent[:80]!r}", "--agent", "a command, as a shell has it") from None
    if not words or not shutil.which(words[0]):
        known = ", ".join(f"{BASELINE}{name}" for name in BASELINES)
        raise InputError(f"there is no command {' '.join(words[:1])!r}", "--agent", f"a command, or {known}")
    if user is not None:
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise InputError(f"there is no user {user!r}", "--user", "one of this machine, such as nobody") from None
    if speaks == "mcp":
        mcp.require_mcp()
    return AgentPlayer(tuple(words), speaks, user)


@dataclass(frozen=True)
class AgentPlayer:
    words: tuple[str, ...]
    speaks: str
    user: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return (shlex.join(self.words),)

    def _started(self, stderr: Path) -> subprocess.Popen[bytes]:
        try:
            with stderr.open("wb") as errors:
                return subprocess.Popen(
                    self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                    user=self.user, group=None if self.user is None else pwd.getpwnam(self.user).pw_gid,
                    extra_groups=None if self.user is None else [],
                )  # fmt: skip
        except OSError as error:
            raise UserError(f"{self.words[0]} cannot be started: {error.strerror}", "--agent") from None

    def play(self, game: Game, wall_s: float, stderr: Path, noting: Noting) -> tuple[str, int]:
        desk = AgentSession(game, blind=True, heard=noting)
        process = self._started(stderr)
        stopped, stop = os.pipe()
        late = False

        def too_late() -> None:
            nonlocal late
            late = True
            end()

        def end() -> None:
            os.write(stop, b"x")
            _kill(process)

        game.interrupted = lambda: late
        timers = [Timer(wall_s, too_late)]
        timers[0].start()

        def done() -> bool:
            return desk.over or game.gone

        def after() -> None:
            if done() and len(timers) == 1:  # the server goes when its client has gone
                timers.append(Timer(GRACE_S, end))
                timers[1].start()

        assert process.stdin and process.stdout
        try:
            if self.speaks == "mcp":
                reads, writes = TextIOWrapper(process.stdout, "utf-8", "replace"), TextIOWrapper(process.stdin, "utf-8")
                with suppress(OSError, ValueError), reads, writes:  # nobody may be there any more
                    mcp.serve(desk, (reads, writes), after)
            else:
                jsonl.serve(desk, process.stdout.fileno(), process.stdin.fileno(), stop_fd=stopped, done=done)
        finally:
            for timer in timers:  # before the process is reaped: then its number may be another's
                timer.cancel()
                timer.join()
            code = _ended(process)
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError, ValueError):
                    pipe.close()
            os.close(stopped)
            os.close(stop)
        if done():
            return "", desk.calls
        if late:
            return f"it took more than {wall_s:g} s of wall time", desk.calls
        return f"it ended with code {code} before the drill was over", desk.calls


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; it and all its processes are gone."""
    if process.stdin:
        with suppress(OSError, ValueError):
            process.stdin.close()
    deadline = time.monotonic() + GRACE_S
    # not reaped before its group is ended: until then its number is nobody else's
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    _kill(process)
    return process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _TooLate(Exception):
    pass


class _Counted:
    """A session that counts and notes."""

    def __init__(self, game: Game, wall_s: float, noting: Noting) -> None:
        self.calls = 0
        self.ticket, self.state, self.complete = game.ticket, game.state, game.complete
        self._game, self._wall_s, self._noting = game, wall_s, noting
        self._deadline = time.monotonic() + wall_s

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def command(self, line: str) -> Answer:
        if self.late:
            raise _TooLate(f"it took more than {self._wall_s:g} s of wall time")
        self.calls += 1
        answer = self._game.command(line)
        self._noting({"command": line}, answer.text)
        return answer

    def close(self) -> None:
        pass


@contextmanager
def _reasons() -> Iterator[list[str]]:
    """Why a baseline has failed, if it has."""
    reasons: list[str] = []
    try:
        yield reasons
    except _TooLate as late:
        reasons.append(str(late))
    except Exception as error:
        reasons.append(f"it raised {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Rules:
    """A baseline."""

    word: str
    baseline: Baseline

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{BASELINE}{self.word}",)

    def play(self, game: Game, wall_s: float, stderr: Path, noting: Noting) -> tuple[str, int]:
        session = _Counted(game, wall_s, noting)
        game.interrupted = lambda: session.late
        with _reasons() as why:
            answer = self.baseline(session)
            while not game.over and not game.gone and not why:  # it gives the same answer again
                if not session.command(f"submit {answer}").ok:
                    why.append(f"it answered {answer[:80]!r}")
        return "" if game.over or game.gone else "".join(why), session.calls


@dataclass(frozen=True)
class BaselineAnswer:
    """Of a baseline in one world; or why it has none."""

    answer: str | None
    why: str
    calls: int


@dataclass
class Lookers:
    """Baselines that change nothing, in one world: each is as if alone."""

    rules: tuple[Rules, ...]
    answers: list[BaselineAnswer] = field(default_factory=list)
    """In the last game, in their order."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for one in self.rules for name in one.names)

    def play(self, game: Game, wall_s: float, stderr: Path, noting: Noting) -> tuple[str, int]:
        self.answers = []
        game.prints = False  # they read data
        for one in self.rules:
            session, answer = _Counted(game, wall_s, noting), None
            with _reasons() as why:
                answer = one.baseline(session)
            self.answers.append(BaselineAnswer(answer, "".join(why), session.calls))
        return "", 0
