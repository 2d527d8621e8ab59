"""The pictures in a search's folder, and how much each key mattered."""

from __future__ import annotations

from typing import TYPE_CHECKING
from warnings import catch_warnings

from results.pictures.drawing import save
from results.pictures.search_plot import search

if TYPE_CHECKING:
    from testbed.tune.search import Found

FEWEST = 8
"""Trials from which something is said of what mattered."""


def importance(found: Found) -> dict[str, float]:
    """Of each key, for the first aim (PED-ANOVA: Watanabe, Bansal, Hutter 2023); empty if there are few trials."""
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
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def draw(found: Found) -> None:
    """Writes search.svg into its folder."""
    figures = search(found.folder.name, found.to_dict(), importance(found))
    save(figures, found.folder / "search.svg")
