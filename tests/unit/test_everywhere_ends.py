"""One command everywhere ends whole: also a program that starts while the others are looked for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from testbed.live import everywhere


class Slow:
    """A program that has not begun yet."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.begun = self.gone = False

    @property
    def starting(self) -> bool:
        return not self.begun

    def signal(self, number: int) -> None:
        self.signals.append(number)
        self.gone = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    now = SimpleNamespace(s=0.0)

    def sleep(seconds: float) -> None:
        now.s += seconds

    monkeypatch.setattr(everywhere, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=sleep))
    yield now


def test_who_begins_while_it_is_looked_for_is_ended(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    """It is not among those that carry the mark, and an instant later it has begun."""
    program = Slow()

    def carrying(*_: str) -> set[Slow]:
        found = {program} if program.begun and not program.gone else set()
        program.begun = True
        return found

    monkeypatch.setattr(everywhere, "carrying", carrying)
    everywhere._end([program], "mark")  # type: ignore[list-item]
    assert program.signals == [signal.SIGTERM] and program.gone


def test_who_begins_late_is_ended_however_busy_the_machine_is(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    program = Slow()
    monkeypatch.setattr(Slow, "starting", property(lambda self: clock.s < 40.0))
    monkeypatch.setattr(everywhere, "carrying", lambda *_: {program} if clock.s > 40.0 and not program.gone else set())
    everywhere._end([program], "mark")  # type: ignore[list-item]
    assert program.signals == [signal.SIGKILL] and program.gone
