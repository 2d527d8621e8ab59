"""A search on real fabrics: its runs are those of `run` with the same values, one at a time and several."""

from __future__ import annotations

from pathlib import Path

import pytest

from railbed import Experiment, run
from testbed.base.progress import Progress
from testbed.experiment import loads
from tests.parts.incast_experiment import INCAST

pytest.importorskip("optuna", reason="optuna, of the dev packages, is not installed")
KMAX = "fabric.switch.ecn.kmax"


@pytest.mark.parametrize("on", [None, "local:2"])
def test_a_trial_is_a_run_with_its_values(tmp_path: Path, on: str | None) -> None:
    from railbed.searches import search_for
    from testbed.tune.search import Aim, Search
    from testbed.tune.space import over

    search = Search([over(f"{KMAX}=60KB..400KB")], [Aim("last_us", True)], 2)
    found = search_for(loads(INCAST), search, tmp_path / "search", Progress(), on=on)
    assert [one.ended for one in found.trials] == ["complete"] * 3
    trial = found.trials[2]
    alone = run(Experiment(INCAST).set(trial.values), tmp_path / "alone", quiet=True)
    assert alone.summary["metrics_sha256"] == trial.rows[0]["metrics_sha256"]
    assert (found.folder / "trials.svg").exists()
