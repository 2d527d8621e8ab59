"""A search on real fabrics: its runs are those of `run` with the same values, one at a time and several."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from railbed import Experiment, run, sweep
from testbed.base.progress import Progress
from testbed.experiment import loads
from tests.parts.incast_experiment import INCAST

pytest.importorskip("optuna", reason="optuna, of the dev packages, is not installed")
ROOT = Path(__file__).parents[2]
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


def test_what_the_page_found_beats_the_default_on_seeds_that_it_had_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search of docs/tune.md takes eight trials; what it found is held against the default once more."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tune.md").read_text()
    ai, timer = re.findall(r"^ +1 +(\S+bps) +(\S+us) ", page, re.MULTILINE)[0]
    held = page.partition("# held back")[2]
    default, best = (float(re.findall(rf"^ *{name} +([\d.]+) ", held, re.MULTILINE)[0]) for name in ("as it is", "1"))
    incast = Experiment(ROOT / "experiments" / "congestion" / "tuned-incast.yaml").over({"seed": [11, 12]})
    tuned = incast.set({"transport.cc.dcqcn.ai": ai, "transport.cc.dcqcn.rate_timer": timer})
    for experiment, mean in ((incast, default), (tuned, best)):
        assert sweep(experiment, quiet=True).figures["last_us"].mean() == pytest.approx(mean, abs=2e-3)
    assert best < 0.7 * default
