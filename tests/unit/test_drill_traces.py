"""Who looks for traces of a drill by how long answers take: what is slow he finds, what chance does he does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from drills.solve import traces
from testbed.faults import CATALOGUE

KIND = "ecn_off"
QUICK_S, SLOW_S = 1e-3, 1e-2


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, str], bool]], str]:
    """Who stands out, when the answers are slow of which `(how many came before, class)` says so."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def found(late: Callable[[int, str], bool]) -> str:
        class Session:
            asked = 0

            def complete(self, line: str) -> list[str]:
                nonlocal now
                kind = line.removeprefix("submit ").removesuffix("@cable:")
                now += SLOW_S if late(self.asked, kind) else QUICK_S
                self.asked += 1
                return []

        return traces._slow(cast(Any, Session()))

    return found


def test_a_class_that_always_takes_longer_stands_out(slow: Callable[[Callable[[int, str], bool]], str]) -> None:
    assert slow(lambda _, kind: kind == KIND) == KIND


def test_others_that_have_the_processor_now_and_then_name_no_class(
    slow: Callable[[Callable[[int, str], bool]], str],
) -> None:
    """Once a round, at any place of it; and whole rounds."""
    kinds = len(CATALOGUE)
    assert {slow(lambda asked, _, place=place: asked % kinds == place) for place in range(kinds)} == {""}  # type: ignore[misc]
    assert slow(lambda asked, _: asked // kinds % 2 == 0) == ""


def test_chance_that_meets_one_class_for_a_while_is_waited_for(
    slow: Callable[[Callable[[int, str], bool]], str],
) -> None:
    assert slow(lambda asked, kind: kind == KIND and asked < 20 * len(CATALOGUE)) == ""
