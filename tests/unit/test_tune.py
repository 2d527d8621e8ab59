"""Searches: what is proposed, given up, failed, held back and taken over, with runs whose figures are a formula."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from results.store.folder import RunFolder
from results.store.sweeps import sweep
from testbed.base.errors import InputError
from testbed.base.progress import Progress
from testbed.base.units import SIZE
from testbed.experiment import Experiment, loads
from testbed.run.sweep import SweepEnded, at, count, point
from testbed.tune.search import Aim, Found, Search, tune
from testbed.tune.space import over, values_of
from tests.parts.incast_experiment import INCAST

pytest.importorskip("optuna", reason="optuna, of the dev packages, is not installed")
BUFFER = "fabric.switch.buffer"
Formula = Callable[[Experiment], Mapping[str, Any]]


class Quiet(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def _print(self, text: str) -> None:
        self.said.append(text)


class Formulas:
    """A Runner whose runs take no time. `stop_after`: so many, and then somebody types Ctrl-C."""

    def __init__(self, formula: Formula, stop_after: int = 10**9) -> None:
        self.formula, self.left, self.ran = formula, stop_after, 0

    def __call__(
        self, experiment: Experiment, folder: RunFolder, progress: Progress
    ) -> Generator[tuple[int, dict[str, Any]], None, None]:
        for k in range(count(experiment)):
            if not self.left:
                raise KeyboardInterrupt
            self.left, self.ran = self.left - 1, self.ran + 1
            run = folder.path / f"point-{k}"
            run.mkdir()
            (run / "state.json").write_text(json.dumps({"schema": 1, "state": "complete", "error": None}))
            yield k, {**point(experiment, k)[0], **self.formula(at(experiment, k)), "run": run.name}


def megabytes(experiment: Experiment) -> float:
    return experiment.fabric.switch.buffer / 1e6


def parabola(experiment: Experiment) -> dict[str, Any]:
    """Least at 7 MB, whatever the seed adds."""
    return {"last_us": 10 + (megabytes(experiment) - 7) ** 2 + experiment.seed, "goodput_Gbps": megabytes(experiment)}


def searched(
    folder: Path,
    formula: Formula | Formulas = parabola,
    trials: int = 24,
    aims: tuple[Aim, ...] = (Aim("last_us", True),),
    sweep: str = "{seed: [1, 2, 3]}",
    said: Quiet | None = None,
    **more: Any,
) -> Found:
    runner = formula if isinstance(formula, Formulas) else Formulas(formula)
    search = Search([over(f"{BUFFER}=1MB..20MB")], aims, trials, **more)
    return tune(loads(INCAST + f"sweep: {sweep}\n"), search, folder, said or Quiet(), runner)


def test_the_least_is_found_and_the_first_trial_is_the_file_as_it_is(tmp_path: Path) -> None:
    found = searched(tmp_path / "search")
    own = loads(INCAST)
    assert found.trials[0].figures == [pytest.approx(10 + (megabytes(own) - 7) ** 2 + 2)]  # the mean of three seeds
    best = SIZE.parse_whole(found.best[0].values[BUFFER]) / 1e6
    assert best == pytest.approx(7, abs=0.7)
    assert found.best[0].figures == [pytest.approx(12 + (best - 7) ** 2)]
    assert len(found.trials) == 25


def test_a_trial_that_is_worse_than_most_after_a_point_is_given_up(tmp_path: Path) -> None:
    """MedianPruner: worse than the median of the complete ones before it, once there are five."""
    found = searched(tmp_path / "search")
    given_up = [one for one in found.trials if one.ended == "given up"]
    assert given_up
    for one in given_up:
        step = len(one.rows)
        before = [fmean(r["last_us"] for r in t.rows[:step]) for t in found.trials[: one.number] if t.complete]
        assert step < 3 and len(before) >= 5 and one.figures[0] > median(before)
    assert all(len(one.rows) == 3 for one in found.trials if one.complete)


def test_the_same_search_is_the_same_and_one_at_a_time_differs_from_several(tmp_path: Path) -> None:
    one, two = (searched(tmp_path / name, trials=8) for name in "ab")
    assert [t.to_dict() for t in one.trials] == [t.to_dict() for t in two.trials]
    several = searched(tmp_path / "c", trials=8, at_a_time=4)
    assert [t.number for t in several.trials] == list(range(9))
    assert len({str(t.values) for t in several.trials[1:]}) == 8


def test_one_that_was_ended_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole", trials=8)
    with pytest.raises(SweepEnded) as ended:
        searched(tmp_path / "search", Formulas(parabola, stop_after=10), trials=8)
    assert ended.value.folder.name == "search.failed" and "10 runs are kept" in ended.value.hint
    rest, said = Formulas(parabola), Quiet()
    again = searched(tmp_path / "search", rest, trials=8, said=said)
    runs = sum(len(one.rows) for one in whole.trials)
    assert [t.to_dict() for t in again.trials] == [t.to_dict() for t in whole.trials]
    assert rest.ran == runs - 10 and any("10 runs were done already" in text for text in said.said)


def test_with_two_aims_the_front_is_found(tmp_path: Path) -> None:
    """Least time is at 7 MB, most goodput at 20: from there on neither is better than the other."""
    aims = (Aim("last_us", True), Aim("goodput_Gbps", False))
    found = searched(tmp_path / "search", aims=aims, sweep="{}", trials=30)
    sizes = [one.figures[1] for one in found.best]
    assert sizes == sorted(sizes) and min(sizes) > 5.5 and len(sizes) > 4
    assert not any(one.ended == "given up" for one in found.trials)
    beaten = [t for t in found.trials if t not in found.best]
    assert all(any(b.figures[0] <= t.figures[0] and b.figures[1] >= t.figures[1] for b in found.best) for t in beaten)


def test_a_trial_that_fails_is_one_and_the_search_goes_on(tmp_path: Path) -> None:
    def some_fail(experiment: Experiment) -> dict[str, Any]:
        return {"error": "it stood still"} if megabytes(experiment) > 12 else parabola(experiment)

    found = searched(tmp_path / "search", some_fail, trials=12)
    failed = [one for one in found.trials if one.ended == "it stood still"]
    assert failed and all(SIZE.parse_whole(one.values[BUFFER]) > 12_000_000 for one in failed)
    assert found.best[0].complete and len(found.trials) == 13


def test_what_was_held_back_is_run_with_the_best_and_with_the_file_as_it_is(tmp_path: Path) -> None:
    found = searched(tmp_path / "search", held=values_of("seed=[100, 200]", "--held"))
    assert [one.number for one in found.held] == [0, found.best[0].number]
    for held, seen in zip(found.held, (found.trials[0], found.best[0]), strict=True):
        assert held.figures[0] == pytest.approx(seen.figures[0] - 2 + 150)


def test_its_folder_is_that_of_a_sweep(tmp_path: Path) -> None:
    found = searched(tmp_path / "search", trials=4)
    stored = sweep(found.folder)
    assert stored is not None and stored.keys == ["trial", BUFFER, "seed"]
    assert len(list(stored.runs())) == len(stored.points) == sum(len(one.rows) for one in found.trials)
    assert json.loads((found.folder / "tune.json").read_text())["best"] == [one.number for one in found.best]
    assert not list(found.folder.glob("round-*"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fabric.switch.bufer=1MB..2MB", "there is no 'bufer'"),
        ("seed=1..9", "swept over already"),
        (BUFFER, "names no key and its values"),
        (f"{BUFFER}=[1MB]", "nothing to choose from"),
        (f"{BUFFER}=2MB..1MB", "not below"),
    ],
)
def test_a_wrong_space_is_said_before_anything_runs(text: str, said: str, tmp_path: Path) -> None:
    runner = Formulas(parabola)
    with pytest.raises(InputError) as error:
        search = Search([over(text)], [Aim("last_us", True)], 3)
        tune(loads(INCAST + "sweep: {seed: [1, 2]}\n"), search, tmp_path / "search", Quiet(), runner)
    assert said in error.value.what and not runner.ran and not (tmp_path / "search").exists()


def test_a_figure_that_is_none_is_said_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(SweepEnded) as error:
        searched(tmp_path / "search", aims=(Aim("lst_us", True),))
    assert "no figure 'lst_us'" in error.value.what and "last_us" in error.value.hint
