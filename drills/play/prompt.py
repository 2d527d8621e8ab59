"""A prompt for a session: lines with completion and history on a terminal, otherwise one line after the other."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import IO, TYPE_CHECKING, Protocol

from drills.play.folded import folded
from drills.session import Answer, Session, clock
from testbed.base.errors import UserError
from testbed.base.text import fit

if TYPE_CHECKING:
    from drills.play.client import Desk

LEAVE = ("quit", "exit")
WATCH = "watch"
WATCHED = "50us"
FORK = "fork"
_OWN = """\
  watch [TIME]          so much of the world a second, until Enter
  quit                  leave"""
_HISTORY_LINES = 1000


class Echo(Protocol):
    def __call__(self, text: str, /) -> None: ...


def play(session: Session, lines: IO[str], echo: Echo, teacher: Desk | None = None) -> Answer | None:
    """Plays until the lines end, or `quit`. Returns the last answer.

    `teacher`: it is the instructor's prompt.
    """
    heard = 0
    terminal = lines.isatty()
    source = _typed(session) if terminal else (line.rstrip("\n") for line in lines)
    last: Answer | None = None
    for line in source:
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in LEAVE:
            break
        if words[0] == WATCH:
            if teacher:
                follow(teacher, echo, lines)
            else:
                watch(session, words[1] if len(words) > 1 else WATCHED, echo, lines)
            continue
        if teacher and words == [FORK]:
            fork(teacher, echo)
            continue
        last = session.command(line)
        if last.text:
            echo(folded(fit(last.text), get_terminal_size().columns) if terminal else fit(last.text))
        if words == ["help"] and not teacher:
            echo(_OWN)
        if not teacher:
            heard = _said(session, heard, echo)
    return last


def _said(session: Session, heard: int, echo: Echo) -> int:
    """What the instructor has said since; how much he has said so far."""
    try:
        messages = session.state()["messages"]
    except UserError:  # it has ended
        return heard
    for one in messages[heard:]:
        echo(f"INSTRUCTOR  {fit(one['text'])}")
    return len(messages)


def follow(teacher: Desk, echo: Echo, lines: IO[str]) -> None:
    """The transcript as it comes, until something is typed (without a terminal: what there is)."""
    from drills.instructor import row_text

    since = 0
    with suppress(KeyboardInterrupt):
        while True:
            seen = teacher.watch(since)
            since = seen["next"]
            for row in seen["transcript"]:
                echo(fit(row_text(row)))
            if not lines.isatty() or seen["state"]["over"]:
                return
            if select.select([lines], [], [], 0.5)[0]:
                lines.readline()
                return


def fork(teacher: Desk, echo: Echo) -> None:
    """The same world once more; says where it is."""
    try:
        other = teacher.fork()
    except UserError as error:
        echo(fit(str(error)))
        return
    other.leave()
    echo(
        f"the same world, up to now, is on fabric {other.fabric}: testbed drill status --fabric {other.fabric}\n"
        f"its instructor's code: {other.instructor}"
    )


def watch(session: Session, amount: str, echo: Echo, lines: IO[str]) -> None:
    """Lets the world go on, so much a second, until something is typed."""
    if not lines.isatty():
        echo("watch needs a terminal; advance and until go without")
        return
    if session.ticket()["clock"] != "virtual":
        echo("this world goes on by itself: show job says how it is now")
        return
    echo(f"{amount} of the world a second, until Enter")
    with suppress(KeyboardInterrupt):
        while not select.select([lines], [], [], 1.0)[0]:
            answer = session.command(f"advance {amount}")
            echo(f"{clock(answer.time_ns)}  {fit(answer.text)}")
            if not answer.ok or session.state()["over"]:
                return
        lines.readline()


def _typed(session: Session) -> Iterator[str]:
    """What is typed at a terminal."""
    import readline

    history = _history()
    with suppress(OSError):
        if history:
            readline.read_history_file(history)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(" \t\n")
    readline.set_completer(_Completer(session))
    readline.parse_and_bind("tab: complete")
    try:
        while True:
            try:
                state = session.state()
                yield input(f"drill {'is over' if state['over'] else clock(state['time_ns'])}> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
    finally:
        readline.set_completer(None)
        with suppress(OSError):
            if history:
                history.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(history)


class _Completer:
    """As readline wants it: the n-th thing that the word may become."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: list[str] = []

    def __call__(self, _word: str, n: int) -> str | None:
        import readline

        if n == 0:
            try:
                before = readline.get_line_buffer()[: readline.get_endidx()]
                self._found = self._session.complete(before)
            except (UserError, OSError):  # it must never disturb the line that is being typed
                self._found = []
            if len(self._found) == 1 and not self._found[0].endswith("@"):
                self._found = [f"{self._found[0]} "]
        return self._found[n] if n < len(self._found) else None


def _history() -> Path | None:
    """None in another user's home, as under sudo: what root makes there its owner could not change."""
    state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))
    there = next(path for path in (state, *state.parents) if path.exists())
    return state / "railbed" / "drill_history" if there.stat().st_uid == os.geteuid() else None
