"""The library's model as a function of its constants' logarithms, for many sets of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testbed.cluster.hardware import Hardware
from testbed.cluster.profile import Profile
from testbed.logs.row import Choice as Said
from testbed.logs.row import Point
from workloads.base.entry import NoModel
from workloads.library.choice import Choice, NoChoice, choose
from workloads.library.costs import PARAMETERS, Costs
from workloads.library.settings import VARIABLES, Settings, WrongSetting
from workloads.library.times import time_ns

NAMES = tuple(PARAMETERS)
LINE_RATE = 400e9
"""Of the NICs that the priors are of."""

Array = np.ndarray


class LibraryModel:
    """Of one cluster.  `said`: choices that a log has told, by collective (or ""), ranks and size."""

    def __init__(
        self, hardware: Hardware, env: Mapping[str, str], said: Mapping[tuple[str, int, int], Said] | None = None
    ) -> None:
        self.hardware = hardware
        self.settings, self.unknown = _settings(env)
        self._said = said or {}

    def priors(self) -> dict[str, float]:
        """The middles of all constants' priors: NCCL's, and the share of these NICs' rate that is payload."""
        priors = {name: its.prior for name, its in PARAMETERS.items()}
        return {**priors, "nic.rate": priors["nic.rate"] * self.hardware.nic_bps / LINE_RATE}

    def choice(self, point: Point) -> Choice:
        """As a log says, or as the tuner makes it.  Raises NoChoice."""
        servers = self.hardware.servers(point)
        ranks = point.nodes * point.gpus
        for key in ((point.collective, ranks, point.size_bytes), ("", ranks, point.size_bytes)):
            if (said := self._said.get(key)) and said.algorithm:
                channels = said.channels or servers.channels(self.settings)
                return Choice(said.algorithm, said.protocol, channels)
        return choose(point.collective, point.size_bytes, servers, self.settings)

    def times(self, point: Point, values: Mapping[str, Any], choice: Choice | None = None) -> Array:
        """In ns, one for each set of values.  Raises NoModel, NoChoice."""
        made = choice or self.choice(point)
        servers = self.hardware.servers(point)
        costs = Costs(values) if isinstance(values, _Asked) else Costs.of(values)
        found = time_ns(point.collective, point.size_bytes, servers, costs, made, self.settings)
        return np.asarray(found, dtype=float)

    def needs(self, point: Point, choice: Choice) -> Array:
        """Numbers of the constants that a point's time is asked of: the others have no derivative."""
        asked = _Asked(self.priors())
        self.times(point, asked, choice)
        needed = [k for k, name in enumerate(NAMES) if name in asked.names and _concerns(name, choice)]
        return np.array(needed, dtype=int)

    def modelled(self, points: Sequence[Point]) -> tuple[list[bool], list[str]]:
        """Of which points there is a model; why of the others there is none."""
        ones = {name: np.array([value]) for name, value in self.priors().items()}
        there, why = [], []
        for point in points:
            try:
                self.times(point, ones)
                there.append(True)
            except (NoModel, NoChoice) as none:
                there.append(False)
                why.append(f"{point.collective}: {none}")
        return there, list(dict.fromkeys(why))

    def of(self, points: Sequence[Point]) -> Rows:
        """Of several points at once."""
        return Rows(self, points)


class Rows:
    """Logarithms of the times of points, by those of the constants; with derivatives."""

    def __init__(self, model: LibraryModel, points: Sequence[Point]) -> None:
        self._model, self._points = model, points
        self._choices = [model.choice(point) for point in points]
        self._needed = [model.needs(*one) for one in zip(points, self._choices, strict=True)]

    def at(self, x: Array, steps: Array | float) -> tuple[Array, Array]:
        """The times, and their derivatives (points, constants): what a step of each changes, by that step."""
        each = np.broadcast_to(steps, len(x))
        f, jacobian = np.empty(len(self._points)), np.zeros((len(self._points), len(x)))
        for k, (point, choice) in enumerate(zip(self._points, self._choices, strict=True)):
            needed = self._needed[k]
            tries = np.repeat(x[:, None], len(needed) + 1, axis=1)
            tries[needed, 1 + np.arange(len(needed))] += each[needed]
            times = np.log(self._model.times(point, dict(zip(NAMES, np.exp(tries), strict=True)), choice))
            f[k], jacobian[k, needed] = times[0], (times[1:] - times[0]) / each[needed]
        return f, jacobian


def _concerns(name: str, choice: Choice) -> bool:
    """Whether a constant can be one of this algorithm and protocol."""
    its = name.split(".")[0]
    if its in ("ll", "ll128"):
        return choice.protocol == its
    if its == "nvls":
        return choice.algorithm.startswith("nvls")
    return its != "p2p" or choice.algorithm == "p2p"


class _Asked(dict[str, float]):
    """Notes which constants somebody looks at."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return super().__getitem__(name)


def _settings(env: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Those that change a schedule; the names of those that say what nobody can."""
    taken, wrong = {}, []
    for name, value in env.items():
        if name in VARIABLES:
            try:
                Settings.of({name: value})
                taken[name] = value
            except WrongSetting as error:
                wrong.append(str(error))
    return Settings.of(taken), wrong


def of_profile(profile: Profile, env: Mapping[str, str] | None = None) -> LibraryModel:
    """The model of a cluster that has a profile; `env`: other settings than those under which it was measured."""
    its, library = profile.hardware, profile.library
    hardware = Hardware(its.gpu, its.gpus, its.nics, float(its.nic), its.host, its.nvlink, library.version)
    said = {
        (one.collective, one.ranks, one.size): Said(
            one.collective, one.ranks, one.size, one.algorithm, one.protocol, one.channels
        )
        for one in (() if library.choice == "tuner" else library.choice)
    }
    return LibraryModel(hardware, library.env if env is None else env, said)
