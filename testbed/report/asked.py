"""What an experiment says itself: the keys that would be something else if it were silent."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

if TYPE_CHECKING:
    from testbed.experiment import Experiment

MOST_TRIES = 400
"""Keys that are looked at; of a larger experiment the rest stays as it is."""


def own_keys(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain data without every key that can be left out: it means the same.

    Defaults may follow from other keys, so each key is tried: the outermost first.
    """
    resolved = experiment.resolved()
    document = deepcopy(resolved)
    _shorten(document, document, type(experiment), resolved, tries=[MOST_TRIES])
    return document


def _shorten(
    part: Any, whole: dict[str, Any], model: type[Experiment], resolved: dict[str, Any], tries: list[int]
) -> None:
    if isinstance(part, list):
        for entry in part:
            _shorten(entry, whole, model, resolved, tries)
        return
    if not isinstance(part, dict):
        return
    for key in list(part):
        value = part.pop(key)
        tries[0] -= 1
        if tries[0] >= 0 and _means(whole, model, resolved):
            continue
        part[key] = value
        _shorten(value, whole, model, resolved, tries)


def _means(document: dict[str, Any], model: type[Experiment], resolved: dict[str, Any]) -> bool:
    """Whether it is an experiment, and the same."""
    try:
        return model.model_validate(deepcopy(document)).resolved() == resolved
    except (ValidationError, ValueError, KeyError, TypeError):
        return False
