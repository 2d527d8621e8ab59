"""Nothing of a drill's truth can be reached: a short piece of what `./setup.sh prove drill-leaks` does at length."""

from __future__ import annotations

import pytest

from tests import prove_drill_leaks


@pytest.mark.parametrize("drill", ["lost/dirty-optics"])
def test_no_truth_can_be_reached(drill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # it names the drill, and children inherit it
    assert prove_drill_leaks.prove([drill]) == {drill: []}
