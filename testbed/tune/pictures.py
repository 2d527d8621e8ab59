"""The pictures in a search's folder, and how much each key mattered."""

from __future__ import annotations

from typing import TYPE_CHECKING
from warnings import catch_warnings

from results.pictures import search_plot
from results.pictures.drawing import save

if TYPE_CHECKING:
    from testbed.tune.search import Found

FEWEST = 8
"""Trials from which something is said of what mattered."""


def shares(found: Found) -> dict[str, float]:
    """How much each key mattered to the first aim; empty if there are too few trials to tell."""
    from optuna import create_study
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    space = {one.key: one for one in found.search.space}
    distributions = {key: one.distribution() for key, one in space.items()}
    study = create_study(direction="minimize" if found.search.aims[0].least else "maximize")
    for trial in found.trials:
        drawn = {key: space[key].drawn(value) for key, value in trial.values.items()}
        if trial.complete and None not in drawn.values():
            study.add_trial(create_trial(params=drawn, distributions=distributions, value=trial.figures[0]))
    values = {one.value for one in study.trials}
    if len(study.trials) < FEWEST or len(values) < 2 or len(space) < 2:
        return {}
    with catch_warnings(action="ignore"):
        return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))


def draw(found: Found) -> None:
    """Writes trials.svg and importance.svg into its folder."""
    name = found.folder.name
    save([search_plot.trials(name, found.to_dict())], found.folder / "trials.svg")
    if mattered := shares(found):
        figure = search_plot.importance(name, mattered, found.search.aims[0].figure)
        save([figure], found.folder / "importance.svg")
