"""Changes single keys of an experiment (`--set`, sweeps); the result is checked like a file.

The file as it was written is changed, not the resolved one, so defaults that depend on other keys follow them. If the
kind of topology changes, keys that fit only the old kind are dropped: scale-up domains, named cables, routing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base import yaml_reader
from testbed.base.errors import InputError, Problem
from testbed.experiment.axes import axes_of
from testbed.experiment.blocks.own import unproved

if TYPE_CHECKING:
    from testbed.experiment import Experiment

_SHOWN = 200  # of a setting that is no YAML
_EXAMPLE = "such as fabric.cable.rate=100Gbps or workload.0.iterations=5"


class DoesNotFit(InputError):
    """The experiment is none with its new values; `path`: the key in it that is wrong."""


def load_with(path: str | Path, settings: Sequence[str], defaults: Mapping[str, Any] | None = None) -> Experiment:
    """As `load`, with `override`.  Raises InputError."""
    from testbed.experiment import load

    if not settings:
        return load(path, defaults)
    with unproved():
        written = load(path, defaults)
    return override(written, settings)


def override(experiment: Experiment, settings: Sequence[str]) -> Experiment:
    """The experiment with each `key=value` applied: keys joined by dots, list entries by their number or `*`: all.

    Values are YAML. A key that the file sweeps over has this value alone then.

    Raises InputError for a key that is not there, and for whatever the experiment file could not say either.
    """
    if not settings:
        return experiment
    values = [(*_parse(setting), f"--set {setting}") for setting in settings]
    return _changed(_pinned(experiment, values), values, f"--set {' --set '.join(settings)}")


def _pinned(experiment: Experiment, values: Sequence[tuple[str, Any, str]]) -> Experiment:
    """The experiment without the axes of its sweep that would set these keys anew. Raises InputError."""
    said = {key: where for key, _, where in values}
    sweep = {} if "sweep" in said else experiment.written().get("sweep") or {}
    axes = axes_of({w: axis for w, axis in sweep.items() if f"sweep.{w}" not in said}, experiment.seed, lambda *_: "")
    again = [(axis.word, key) for axis in axes for key in sorted(axis.keys & said.keys())]
    for word, key in again:
        if word != key:
            hint = f"set sweep.{word}, or leave it out: --set sweep.{word}=null"
            raise InputError(f"the file sweeps over {key}, together with others", said[key], hint)
    if not again:
        return experiment
    kept = {word: axis for word, axis in sweep.items() if (word, word) not in again}
    return _changed(experiment, [("sweep", kept or None, values[0][2])], values[0][2])


def changed(experiment: Experiment, values: Sequence[tuple[str, Any, str]], shown: str) -> Experiment:
    """The experiment with new values: (key, value, place to name in an error if there is no such key).

    Any other error's place begins with `shown`. Raises InputError.
    """
    return _changed(experiment, values, shown)


def _changed(experiment: Experiment, values: Sequence[tuple[str, Any, str]], shown: str) -> Experiment:
    from testbed.experiment import loads

    resolved, written = experiment.resolved(), experiment.written()
    kind = experiment.fabric.topology.kind
    for keys, value, where in values:
        for key in _every(resolved, keys, where):
            _set(resolved, key, value, where)
            _write(written, resolved, key.split("."))
    fabric = resolved.get("fabric")  # a null has dropped it: what is missing, the file says
    topology = fabric["topology"] if isinstance(fabric, dict) and "topology" in fabric else None
    other = next(iter(topology), kind) if isinstance(topology, dict) else kind
    if other != kind:
        _drop_what_only_it_had(written, topology, {key for key, _, _ in values})
    try:
        new = loads(json.dumps(written), shown, experiment.directory)
    except InputError as error:  # its line numbers are of the generated text
        raise DoesNotFit.several(
            replace(p, where=p.where.replace(f"{shown}:1", shown), hint=_hint(p, kind if other != kind else None))
            for p in (Problem(error.what, error.where, error.hint, error.path), *error.also)
        ) from None
    of_ours = any(key.partition(".")[0] == "sweep" for key, _, _ in values)
    new._place = (lambda path: shown) if of_ours else experiment._place  # of the sweep, which is checked later
    return new


def _drop_what_only_it_had(written: dict[str, Any], topology: object, said: set[str]) -> None:
    """Drops keys that fit only the old kind of topology, unless a setting has just set them."""
    from testbed.experiment.blocks import known

    new = next(iter(topology)) if isinstance(topology, dict) and topology else None
    fabric, control = written.get("fabric"), written.get("control")
    if not isinstance(fabric, dict):
        return
    if not known.with_scale_up(topology) and not any(key.startswith("fabric.scale_up") for key in said):
        fabric.pop("scale_up", None)
    if not any(key.startswith("fabric.cables") for key in said):
        fabric.pop("cables", None)
    if not isinstance(control, dict) or any(key.startswith("control.routing") for key in said):
        return
    routing = control.get("routing")
    name = next(iter(routing)) if isinstance(routing, dict) and routing else routing
    if name in known.routings():
        kinds, _ = known.kinds_of_routing(str(name))
        if kinds is not None and new not in kinds:
            control.pop("routing")


def _hint(problem: Problem, old: str | None) -> str:
    """The hint, and for blocks that name parts of the old topology how to leave them out."""
    key = problem.path[0] if problem.path else ""
    if old is None or key not in ("inject", "capture", "workload"):
        return problem.hint
    said = f"the file says this of its {old}; --set '{key}=[]' leaves it out"
    return f"{problem.hint}; {said}" if problem.hint else said


def _parse(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    key = re.sub(r"\[(\d+|\*)\]", r".\1", key)  # as errors write it: workload[0].sizes
    if not equals:
        raise InputError("a setting is KEY=VALUE", f"--set {setting}", _EXAMPLE)
    try:
        return key, yaml_reader.value(text)
    except yaml_reader.YamlProblem as problem:
        place = f"at character {problem.character} of the value: " if problem.character else ""
        what = f"{text[:_SHOWN]!r} is no YAML value"
        better = "" if isinstance(problem, yaml_reader.NotYaml) or not problem.hint else f": {problem.hint}"
        raise InputError(what, f"--set {setting[:_SHOWN]}", place + problem.why + better) from None


def _every(document: dict[str, Any], key: str, where: str) -> list[str]:
    """The keys that one stands for that has `*` in place of the number of a list's entry."""
    path = key.split(".")
    if "*" not in path:
        return [key]
    at = path.index("*")
    place: Any = document
    for i, step in enumerate(path[:at]):
        place = place[_index(place, step, where, path[:i])]
    if not isinstance(place, list):
        raise InputError("`*` stands for every entry of a list, and here is none", where, _there(place, path[:at]))
    made = (".".join([*path[:at], str(i), *path[at + 1 :]]) for i in range(len(place)))
    return [one for each in made for one in _every(document, each, where)]


def _set(document: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Sets a key, its path joined by dots, in a resolved experiment. Raises InputError if there is no such key.

    Where `null` is no value the key is dropped, as if the file did not have it. A word that goes on in the path becomes
    a mapping: `ecmp` is short for `{ecmp: {}}`. A mapping with keys of its own, such as the parameters of a congestion
    control, may get one that it leaves out: its model says what may stand there.
    """
    from testbed.base.explain import allowed_keys, takes_null
    from testbed.experiment.model import Experiment

    *path, last = key.split(".")
    place: Any = document
    loc: list[str | int] = []
    opened: dict[str, Any] = {}
    for step, further in pairwise([*path, last]):
        loc.append(_index(place, step, where, loc))
        if place[loc[-1]] == further != last:
            place[loc[-1]] = {further: opened}
        place = place[loc[-1]]
    named = isinstance(place, dict) and not allowed_keys(tuple(loc), Experiment)  # such as a control's parameters
    at = last if place is opened or (named and loc) else _index(place, last, where, loc)
    if value is None and isinstance(place, dict) and not takes_null((*loc, at), Experiment):
        del place[at]
    else:
        place[at] = value


def _index(place: Any, step: str, where: str, path: Sequence[str | int]) -> str | int:
    """`step` as an index of `place`, which is at `path`."""
    if isinstance(place, list) and step.isdecimal() and int(step) < len(place):
        return int(step)
    if isinstance(place, dict) and step in place:
        return step
    raise InputError(f"there is no {step!r} here", where, _there(place, path))


def _there(place: Any, path: Sequence[str | int]) -> str:
    """Which steps lead on from here."""
    if isinstance(place, list):
        many = f"its entries are 0 to {len(place) - 1}" if len(place) > 1 else "it has one entry: 0"
        return many if place else "the list is empty: set all of it, such as --set 'inject=[{fault: .., on: ..}]'"
    if isinstance(place, dict):
        return f"its keys: {', '.join(place)}" if place else _EXAMPLE
    key = ".".join(map(str, path))
    return f"{key} is {json.dumps(place)}, without keys; set it as a whole: {key}=.."


def _write(written: Any, resolved: Any, path: Sequence[str]) -> None:
    """Copies the value at `path` from `resolved` to `written`, and as little else as possible.

    A mapping that the file has in a short form, and a list or free mapping that it leaves out, is copied as a whole.
    """
    from testbed.base.explain import allowed_keys
    from testbed.experiment.model import Experiment

    for depth, step in enumerate(path):
        at: Any = int(step) if isinstance(resolved, list) else step
        if isinstance(resolved, dict) and at not in resolved:  # dropped
            written.pop(at, None)
            return
        there = None if isinstance(written, dict) and at not in written else written[at]
        inner = resolved[at]
        if depth == len(path) - 1 or not isinstance(there, dict | list):
            optional = there is None and isinstance(inner, dict) and allowed_keys(tuple(path[: depth + 1]), Experiment)
            if depth == len(path) - 1 or not optional:
                written[at] = deepcopy(inner)
                return
            written[at] = {}
        written, resolved = written[at], inner
