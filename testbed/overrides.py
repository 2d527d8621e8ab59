"""Single keys of an experiment set from the command line, checked like the file itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import InputError

if TYPE_CHECKING:
    from testbed.spec import Experiment

_EXAMPLE = "such as fabric.cable.rate=100Gbps or workload.0.iterations=5"


def override(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """The experiment with each `key=value` applied: keys joined by dots, list entries by their number, values in YAML.

    Raises InputError for a key that is not there, and for whatever the experiment file could not say either.
    """
    from testbed.spec import loads

    if not settings:
        return experiment
    document = experiment.resolved()
    for setting in settings:
        _set(document, setting)
    shown = f"--set {' --set '.join(settings)}"
    try:
        return loads(json.dumps(document), shown)
    except InputError as error:  # its line numbers are of a text that nobody wrote
        raise InputError(error.what, error.where.replace(f"{shown}:1", shown), error.hint, error.also) from None


def _set(document: dict[str, Any], setting: str) -> None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    key, equals, text = setting.partition("=")
    if not equals:
        raise InputError("a setting is KEY=VALUE", f"--set {setting}", _EXAMPLE)
    try:
        value = YAML(typ="safe").load(text)
    except YAMLError:
        raise InputError(f"{text!r} is no YAML value", f"--set {setting}") from None
    set_key(document, key, value, f"--set {setting}")


def set_key(document: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Sets a key, its path joined by dots, in a resolved experiment. Raises InputError if there is no such key."""
    *path, last = key.split(".")
    place: Any = document
    for step in path:
        place = place[_index(place, step, where)]
    place[_index(place, last, where)] = value


def _index(place: Any, step: str, where: str) -> str | int:
    """`step` as an index of `place`."""
    if isinstance(place, list) and step.isdecimal() and int(step) < len(place):
        return int(step)
    if isinstance(place, dict) and step in place:
        return step
    known = ", ".join(place) if isinstance(place, dict) else f"0 to {len(place) - 1}" if isinstance(place, list) else ""
    raise InputError(f"there is no {step!r} here", where, f"there is {known}" if known else _EXAMPLE)
