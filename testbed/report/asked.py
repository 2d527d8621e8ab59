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
    wanted = experiment.resolved()
    found = deepcopy(wanted)
    tries = [MOST_TRIES]
    _shorten(found, found, type(experiment), wanted, tries)
    return found


def _shorten(
    part: Any, whole: dict[str, Any], model: type[Experiment], wanted: dict[str, Any], tries: list[int]
) -> None:
    if isinstance(part, list):
        for one in part:
            _shorten(one, whole, model, wanted, tries)
        return
    if not isinstance(part, dict):
        return
    for key in list(part):
        value = part.pop(key)
        tries[0] -= 1
        if tries[0] >= 0 and _means(whole, model, wanted):
            continue
        part[key] = value
        _shorten(value, whole, model, wanted, tries)


def _means(document: dict[str, Any], model: type[Experiment], wanted: dict[str, Any]) -> bool:
    """Whether it is an experiment, and the same."""
    try:
        return model.model_validate(deepcopy(document)).resolved() == wanted
    except (ValidationError, ValueError, KeyError, TypeError):
        return False
