"""A prompt for a session: lines with completion and history on a terminal, otherwise one line after the other."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from testbed.base.errors import UserError
from testbed.base.text import printable
from testbed.drill.session import Answer, Session, clock

LEAVE = ("quit", "exit")
WATCH = "watch"
WATCHED = "50us"
_HISTORY_LINES = 1000


class Echo(Protocol):
    def __call__(self, text: str, /) -> None: ...


def play(session: Session, lines: IO[str], echo: Echo) -> Answer | None:
    """Until the lines end, or `quit`, or the drill is over and its report has been read. Returns the last answer."""
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
            watch(session, words[1] if len(words) > 1 else WATCHED, echo, lines)
            continue
        last = session.command(line)
        if last.text:
            echo(_safe(last.text))
    return last


def watch(session: Session, amount: str, echo: Echo, lines: IO[str]) -> None:
    """Lets the world go on, so much a second, until something is typed."""
    if not lines.isatty():
        echo("watch needs a terminal; advance and until go without")
        return
    echo(f"{amount} of the world a second, until Enter")
    with suppress(KeyboardInterrupt):
        while not select.select([lines], [], [], 1.0)[0]:
            answer = session.command(f"advance {amount}")
            echo(f"{clock(answer.time_ns)}  {_safe(answer.text)}")
            if not answer.ok or session.state()["over"]:
                return
        lines.readline()


def _safe(text: str) -> str:
    """Without what could move a terminal's cursor: a name of a header may be anything."""
    return "\n".join(map(printable, text.split("\n")))


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
                yield input(f"drill {clock(session.state()['time_ns'])}> ")
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
