"""Nothing of a drill's truth can be reached: a short piece of what `./setup.sh prove drill-leaks` does at length."""

from __future__ import annotations

from pathlib import Path

from tests import prove_drill_leaks
from tests.prove_drill_kills import DRILL


def test_no_truth_can_be_reached(tmp_path: Path) -> None:
    path = tmp_path / "sore-spot.yaml"
    path.write_text(DRILL)
    assert prove_drill_leaks.prove([str(path)]) == {str(path): []}
