"""A search: trials of values that Optuna proposes, each run at all points of the experiment's own sweep, if it has one.

Trial 0 is the experiment as it is: what the others are compared with. A figure of a trial is the mean over its points,
such as seeds. After each of them a trial ends that is worse than the median of those that were complete was there
(Optuna's MedianPruner), if there is one aim; with two aims none is, and what is found is the front. Several trials at a
time are proposed together (TPE with constant liar, Bergstra et al. 2011, Ginsbourger et al. 2010).

What is proposed depends on the seed and on what has ended before, so a search that goes on proposes the same again:
what was run is found by the hashes of its points, as in a sweep. Its folder is that of a sweep with a point for each
run.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

from results.store.environment import environment
from results.store.folder import RunFolder, StoreError
from results.store.sweeps import POINTS, SWEEP
from testbed.base import yaml_writer
from testbed.base.errors import InputError, MachineError, require_root
from testbed.base.this_process import held
from testbed.experiment.overrides import DoesNotFit, changed
from testbed.machines import known
from testbed.machines.identity import point_hash
from testbed.machines.where import HERE
from testbed.run.sweep import Runner, count, kept, points
from testbed.tune.inside import Inside
from testbed.tune.space import Over, as_it_is

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial as Asked

    from testbed.base.progress import Progress
    from testbed.experiment import Experiment

TRIAL = "trial"
SEARCH = "tune.json"
MOST_AIMS = 2
GIVEN_UP = "given up"
_STARTUP = 10
"""Trials that are drawn before the model has something to go by."""


@dataclass(frozen=True)
class Aim:
    """A figure of the sweep's table, and whether it is to be small or large."""

    figure: str
    least: bool

    def better(self, one: float, other: float) -> bool:
        return one < other if self.least else one > other


@dataclass
class Trial:
    """`values`: by `Over.key`. `figures`: by aim, the means over the points so far. `ended`: it has all, or why not."""

    number: int
    values: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: list[float] = field(default_factory=list)
    ended: str = ""

    @property
    def complete(self) -> bool:
        return self.ended == "complete"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"trial": self.number, "values": self.values, "figures": self.figures, "ended": self.ended}


@dataclass(frozen=True)
class Search:
    """What is asked for. `at_a_time`: so many trials are proposed together. `held`: what only the best meets."""

    space: Sequence[Over]
    aims: Sequence[Aim]
    trials: int
    at_a_time: int = 1
    held: tuple[str, Sequence[Any]] | None = None

    def described(self) -> dict[str, Any]:
        aims = [{"figure": aim.figure, "least": aim.least} for aim in self.aims]
        held = {"key": self.held[0], "values": list(self.held[1])} if self.held else None
        return {"over": [one.key for one in self.space], "aims": aims, "trials": self.trials, "held": held}


def asked(
    space: Sequence[Over],
    minimize: Sequence[str],
    maximize: Sequence[str],
    trials: int,
    held: tuple[str, Sequence[Any]] | None = None,
) -> Search:
    """Raises InputError."""
    aims = [*(Aim(figure, True) for figure in minimize), *(Aim(figure, False) for figure in maximize)]
    if not aims:
        raise InputError("nothing says what is to be small or large", "tune", "minimize or maximize a figure")
    if len(aims) > MOST_AIMS:
        raise InputError(f"{len(aims)} aims", "tune", f"{MOST_AIMS} at most: of more there is no picture")
    return Search(space, aims, trials, held=held)


@dataclass
class Found:
    """`best`: the best trial, or those of which none is worse than another in both aims."""

    folder: Path
    search: Search
    trials: list[Trial]
    best: list[Trial]
    held: list[Trial]
    """The experiment as it is and the best, with what was held back; none if nothing was."""

    def to_dict(self) -> dict[str, Any]:
        """As `testbed tune --json` prints it."""
        asked = self.search.described()
        held = {**asked["held"], "trials": [one.to_dict() for one in self.held]} if self.held else None
        runs = sum(len(one.rows) for one in (*self.trials, *self.held))
        trials = [one.to_dict() for one in self.trials]
        best = [one.number for one in self.best]
        return {**asked, "run": str(self.folder), "runs": runs, "trials": trials, "best": best, "held": held}


class Tuner:
    """Carries a search out, in a folder of its own."""

    def __init__(
        self, experiment: Experiment, search: Search, folder: RunFolder, progress: Progress, runner: Runner
    ) -> None:
        self._experiment, self._search, self._folder = experiment, search, folder
        self._progress, self._runner = Inside(progress), runner
        self._done: dict[str, tuple[dict[str, Any], Path]] = {}
        for path in known.earlier(folder, experiment.name):
            for sha256, (row, run) in known.done_in(path).items():
                self._done.setdefault(sha256, (row, path / run))
        self._taken = self._runs = self._rounds = 0
        own = [column for axis in experiment.axes() for column in axis.columns]
        self.keys = [TRIAL, *(one.key for one in search.space), *own]
        self.rows: list[dict[str, Any]] = []

    def run(self) -> tuple[list[Trial], list[Trial], list[Trial]]:
        """Trials, the best of them, and what those do that were held back."""
        self._progress.trials(self._search.trials + 1 + 2 * bool(self._search.held))
        study = _study(self._search)
        first = Trial(0, as_it_is(self._search.space, self._experiment.resolved()))
        trials = [first]
        self._evaluate([first], lambda _: False)
        if first.ended != "complete":
            raise InputError(f"the experiment as it is fails: {first.ended}", self._experiment.place())
        self._tell_first(study, first)
        while len(trials) <= self._search.trials:
            number = min(self._search.at_a_time, self._search.trials + 1 - len(trials))
            trials += self._round(study, len(trials), number)
        best = _front([one for one in trials if one.complete], self._search.aims)
        if self._taken:
            self._progress.note(f"{self._taken} runs were done already")
        return trials, best, self._held_back(first, best)

    def _round(self, study: Study, begin: int, number: int) -> list[Trial]:
        """Some trials at a time, proposed together."""
        study.sampler = _sampler(self._experiment.seed + begin, self._search.trials)
        asked = [study.ask({one.key: one.distribution() for one in self._search.space}) for _ in range(number)]
        by_key = {one.key: one for one in self._search.space}
        trials, given = [], {}
        for n, one in enumerate(asked):
            values = {key: by_key[key].value(drawn) for key, drawn in one.params.items()}
            trials.append(Trial(begin + n, values))
            given[begin + n] = one
        self._evaluate(trials, lambda trial: self._hopeless(given[trial.number], trial))
        for trial in trials:
            _tell(study, given[trial.number], trial)
        return trials

    def _hopeless(self, asked: Asked, trial: Trial) -> bool:
        if len(self._search.aims) > 1:
            return False
        asked.report(trial.figures[0], len(trial.rows))
        return bool(asked.should_prune())

    def _tell_first(self, study: Study, first: Trial) -> None:
        from optuna.trial import create_trial

        drawn = {one.key: one.drawn(first.values[one.key]) for one in self._search.space}
        if None not in drawn.values():
            distributions = {one.key: one.distribution() for one in self._search.space}
            figure = self._search.aims[0].figure
            so_far = {n: fmean(row[figure] for row in first.rows[:n]) for n in range(1, len(first.rows))}
            done = create_trial(
                params=drawn, distributions=distributions, values=first.figures, intermediate_values=so_far
            )
            study.add_trial(done)

    def _evaluate(self, trials: list[Trial], hopeless: Callable[[Trial], bool]) -> None:
        """Runs trials side by side, one point of the experiment's own sweep after the other."""
        last = runs_of(self._experiment)
        for values, at in self._own_points():
            going = [trial for trial in trials if not trial.ended]
            self._run_at(at, values, going)
            for trial in going:
                if not trial.ended and len(trial.rows) < last and hopeless(trial):
                    trial.ended = GIVEN_UP
        for trial in trials:
            trial.ended = trial.ended or "complete"
            self._progress.ended(self._said(trial))

    def _own_points(self) -> Iterator[tuple[dict[str, Any], Experiment]]:
        if not self._experiment.sweep:
            yield {}, self._experiment
            return
        for one in points(self._experiment):
            yield dict(one.values), one.experiment

    def _run_at(self, at: Experiment, values: Mapping[str, Any], trials: list[Trial]) -> None:
        """Runs these trials at one point, those that were not done before."""
        settings: dict[str, dict[str, Any]] = {}
        hashes: dict[str, str] = {}
        for trial in trials:
            own = {key: trial.values[one.key] for one in self._search.space for key in one.keys} if trial.number else {}
            try:
                made = changed(at, [(key, value, "") for key, value in own.items()], f"trial {trial.number}")
            except DoesNotFit as error:
                trial.ended = f"{error.what} ({error.where})"
                continue
            if (sha256 := point_hash(made)) in self._done:
                self._take_over(trial, values, sha256)
            else:
                settings[str(trial.number)], hashes[str(trial.number)] = own, sha256
        if settings:
            by_name = {str(trial.number): trial for trial in trials}
            for name, row, run in self._ran(changed(at, [("sweep", {TRIAL: settings}, "")], "tune")):
                self._measured(by_name[name], values, row, run, hashes[name])

    def _ran(self, experiment: Experiment) -> Iterator[tuple[str, dict[str, Any], Path | None]]:
        """Runs the variants of a sweep: name, row, folder of the run."""
        self._rounds += 1
        aside = self._folder.path / f"round-{self._rounds}"
        aside.mkdir()
        round_ = RunFolder(aside, aside)
        with closing(self._runner(experiment, round_, self._progress)) as ran:
            for _, row in ran:
                if row.pop("stopped", 0):
                    raise KeyboardInterrupt
                yield str(row.pop(TRIAL)), row, aside / row["run"] if "run" in row else None
        shutil.rmtree(aside, ignore_errors=True)

    def _take_over(self, trial: Trial, values: Mapping[str, Any], sha256: str) -> None:
        row, run = self._done[sha256]
        place = f"point-{self._runs}"
        known.take_over(run, self._folder.path / place)
        self._taken += 1
        self._noted(trial, values, {**row, "run": place}, sha256)

    def _measured(
        self, trial: Trial, values: Mapping[str, Any], row: dict[str, Any], run: Path | None, sha256: str
    ) -> None:
        if run is not None:
            place = f"point-{self._runs}{run.name[len(run.stem.partition('.')[0]) :]}"
            run.rename(self._folder.path / place)
            row["run"] = place
        self._noted(trial, values, row, sha256)

    def _noted(self, trial: Trial, values: Mapping[str, Any], row: Mapping[str, Any], sha256: str) -> None:
        """A run has ended: its row is in the folder, and its figures count."""
        whole = {TRIAL: trial.number, **trial.values, **values, **row}
        self._runs += 1
        self.rows.append(whole)
        self._folder.append(POINTS, whole)
        known.note(self._folder, sha256, dict(row), HERE)
        if "error" in row:
            trial.ended = str(row["error"])
            return
        missing = [aim.figure for aim in self._search.aims if not isinstance(row.get(aim.figure), int | float)]
        if missing:
            there = [key for key, value in row.items() if isinstance(value, int | float)]
            raise InputError(f"there is no figure {missing[0]!r}", "command line", f"its figures: {', '.join(there)}")
        trial.rows.append(whole)
        trial.figures = [fmean(one[aim.figure] for one in trial.rows) for aim in self._search.aims]

    def _held_back(self, first: Trial, best: Sequence[Trial]) -> list[Trial]:
        """The experiment as it is, and the best, with values of a key that the search has not seen."""
        if self._search.held is None or not best:
            return []
        key, values = self._search.held
        seen = self._experiment
        self._experiment = changed(seen, [("sweep", {**seen.sweep, key: list(values)}, "")], f"--held {key}")
        again = [Trial(one.number, one.values) for one in ([first, best[0]] if best[0].number else [first])]
        self._evaluate(again, lambda _: False)
        self._experiment = seen
        return again

    def _said(self, trial: Trial) -> str:
        figures = zip(self._search.aims, trial.figures, strict=False)
        text = ", ".join(f"{aim.figure} {value:.6g}" for aim, value in figures)
        return f"trial {trial.number}: {text}" + ("" if trial.complete else f" ({trial.ended})")


def runs_of(experiment: Experiment) -> int:
    """Runs of a trial that is not given up."""
    return count(experiment) if experiment.sweep else 1


def tune(
    experiment: Experiment,
    search: Search,
    out: str | Path | None,
    progress: Progress,
    runner: Runner,
    prepare: Callable[[Experiment, Progress], None] = lambda *_: None,
) -> Found:
    """Searches; `runner` and `prepare` as of `run_sweep`. Raises InputError, MachineError, SweepEnded."""
    _optuna()
    _check(experiment, search)
    require_root()
    prepare(experiment, progress)
    with held() as heard:
        try:
            folder = RunFolder.create(f"{experiment.name}-tune", out)
        except StoreError as error:
            raise InputError(error.what, error.where, error.hint) from None
        tuner = Tuner(experiment, search, folder, progress, runner)
        with kept(folder, heard, lambda: f"{len(tuner.rows)} runs are kept", lambda: _write(folder, search, tuner)):
            folder.write_json("environment.json", environment(experiment.seed))
            with (folder.path / "experiment.yaml").open("w") as file:
                yaml_writer.dump(experiment.resolved(), file)
            with heard:
                trials, best, again = tuner.run()
            _write(folder, search, tuner, best)
            return Found(folder.complete(), search, trials, best, again)


def _write(folder: RunFolder, search: Search, tuner: Tuner, best: Sequence[Trial] = ()) -> None:
    folder.write_json(SEARCH, {**search.described(), "best": [one.number for one in best]})
    head = {"name": folder.final.name, "keys": tuner.keys, "total": len(tuner.rows)}
    folder.write_json(SWEEP, {**head, "points": tuner.rows})


def _check(experiment: Experiment, search: Search) -> None:
    """Raises InputError for a key that is not there, or that the experiment's own sweep sets."""
    swept = {one for axis in experiment.axes() for entry in axis.entries for one, _, _ in entry.settings}
    for one in search.space:
        for key in one.keys:
            where = f"command line: --over {one.key}"
            if key in swept:
                raise InputError(f"{key} is swept over already", where, "take it out of `sweep:`")
            low = one.values[0] if isinstance(one.values, list) else one.values.at(0.0)
            with suppress(DoesNotFit):  # not with that value, perhaps
                changed(experiment, [("sweep", {}, ""), (key, low, where)], where)


def _optuna() -> None:
    try:
        import optuna
    except ImportError:
        what = "a search needs Optuna, which is not installed"
        raise MachineError(what, "testbed tune", f"{sys.executable} -m pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _study(search: Search) -> Study:
    from optuna import create_study
    from optuna.pruners import MedianPruner
    from optuna.study import StudyDirection

    way = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE)
    return create_study(directions=[way[aim.least] for aim in search.aims], pruner=MedianPruner(n_startup_trials=5))


def _sampler(seed: int, trials: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    startup = max(1, min(_STARTUP, trials // 3))
    with catch_warnings(action="ignore"):  # both are called experimental
        return TPESampler(seed=seed, n_startup_trials=startup, multivariate=True, constant_liar=True)


def _tell(study: Study, asked: Asked, trial: Trial) -> None:
    from optuna.trial import TrialState

    if trial.complete:
        study.tell(asked, trial.figures)
    else:
        study.tell(asked, state=TrialState.PRUNED if trial.ended == GIVEN_UP else TrialState.FAIL)


def _front(trials: Sequence[Trial], aims: Sequence[Aim]) -> list[Trial]:
    """Those of which none is as good in all aims and better in one; of one aim the best, the first of equals."""

    def beats(one: Trial, other: Trial) -> bool:
        pairs = list(zip(aims, one.figures, other.figures, strict=True))
        return any(aim.better(a, b) for aim, a, b in pairs) and not any(aim.better(b, a) for aim, a, b in pairs)

    front = [one for one in trials if not any(beats(other, one) for other in trials)]
    first = {tuple(one.figures): one for one in reversed(front)}
    return sorted(first.values(), key=lambda one: one.figures)
