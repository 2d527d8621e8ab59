"""Signals that end this process come after what must not be disturbed, and stay what they are."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from pydantic import model_serializer

from testbed.base.this_process import undisturbed
from testbed.base.types import Model


class Interrupted(Model):
    """One whose serializer hears a signal."""

    number: int

    @model_serializer
    def _told(self) -> dict[str, Any]:
        signal.raise_signal(self.number)
        return {"number": self.number}


@pytest.fixture
def ends() -> Any:
    """As in a point's process and on the command line: SIGTERM is an end with its exit code."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    yield end
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
@pytest.mark.usefixtures("ends")
def test_a_signal_while_a_model_is_written_is_no_error_of_its_serializer(number: int, error: type) -> None:
    with pytest.raises(error):
        Interrupted(number=number).model_dump(mode="json")


def test_what_is_not_disturbed_ends_first_and_handlers_are_back(ends: Any) -> None:
    done = []
    with pytest.raises(SystemExit) as ended, undisturbed():
        signal.raise_signal(signal.SIGTERM)
        done.append(True)
    assert done and ended.value.code == 143 and signal.getsignal(signal.SIGTERM) is ends
