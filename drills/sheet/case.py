"""A case: a drill and a seed, and so a fabric, a job, places, faults, and the truth.

One seed in five makes a healthy case of any drill: the same world, the same herrings, and no fault. Which places carry
the job is certain only once it has run for a while, so places are drawn in two steps: `Case.of` checks that there are
any, `Case.draw` chooses among those that counters show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import ValidationError

from drills.sheet.carried import possible
from drills.sheet.draw import filled
from drills.sheet.drill import Drill, OldCounter, old_counter
from drills.sheet.places import CannotDraw, Ground, draw_all
from drills.sheet.truth import Cause, Truth
from testbed.base.errors import InputError, Problem
from testbed.base.explain import explain
from testbed.base.units import format_time, parse_time
from testbed.base.yaml_reader import Path as KeyPath
from testbed.experiment import Experiment
from testbed.faults import CATALOGUE, CannotInject, Injection, Mistakes
from testbed.faults.host import WorkerFault
from testbed.inject.faults import place_of
from topologies.graph.fabric import TopologyError
from topologies.graph.targets import resolve

HEALTHY_ONE_IN = 5
SEED_LETTERS = 12
OF_PROCESSES = frozenset(name for name, cls in CATALOGUE.items() if issubclass(cls, WorkerFault))
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U


@dataclass(frozen=True)
class Drawn:
    """What has been drawn: every place, the faults and herrings with them, and the truth."""

    places: Mapping[str, Any]
    faults: tuple[Injection, ...]
    benign: tuple[Injection, ...]
    old: tuple[OldCounter, ...]
    truth: Truth


@dataclass(frozen=True)
class Case:
    drill: Drill
    seed: str
    healthy: bool
    experiment: Experiment

    @classmethod
    def of(cls, drill: Drill, seed: str, healthy: bool | None = None) -> Case:
        """`healthy` None: the seed decides.  Raises InputError, also if no place can be drawn."""
        well = healthy_by_seed(drill, seed) if healthy is None else healthy
        case = cls(drill, seed, well, _experiment(drill, seed))
        case.draw(possible(case.experiment))
        return case

    @property
    def code(self) -> str:
        """`SEED-XXXX`: names the case, and tells nothing of it."""
        return f"{self.seed}-{letters_of(_number(self.seed + self.drill.text), 4)}"

    @property
    def first_fault_ns(self) -> float:
        """When the first fault is put in."""
        times = [entry["at"] for entry in self.drill.faults if isinstance(entry.get("at"), str)]
        return min([self.drill.warmup, *map(parse_time, times)])

    def draw(self, carries: Collection[str]) -> Drawn:
        """Chooses the places among those that carry the job.  Raises InputError."""
        drill, fabric = self.drill, self.experiment.build_fabric()
        try:
            drawn = draw_all(drill.draw, Ground(fabric, carries), f"{_named(drill)} {self.seed}")
        except CannotDraw as error:
            raise InputError(error.what, drill.place("draw", error.name, error.key), error.hint) from None
        faults, causes = [], []
        for i, entry in enumerate(drill.faults):
            injection = self._injection(entry, drawn, ("faults", i), drill.warmup)
            faults.append(injection)
            causes.append(self._cause(injection, ("faults", i)))
        herrings: list[tuple[KeyPath, dict[str, Any]]] = [
            (("tenants", i), tenant.as_fault()) for i, tenant in enumerate(drill.tenants)
        ]
        herrings += [(("benign", i), entry) for i, entry in enumerate(drill.benign) if not old_counter(entry)]
        benign = [self._injection(entry, drawn, path, 0.0) for path, entry in herrings]
        for injection, (path, _) in zip(benign, herrings, strict=True):
            self._cause(injection, path)
        old = [self._old(entry, drawn, i) for i, entry in enumerate(drill.benign) if old_counter(entry)]
        if self.healthy:
            faults, causes = [], []
        return Drawn(drawn, tuple(faults), tuple(benign), tuple(old), tuple(causes))

    def _injection(self, entry: Mapping[str, Any], drawn: Mapping[str, Any], path: KeyPath, at_ns: float) -> Injection:
        try:
            injection = Injection.of(_timed(entry, drawn, at_ns))
        except Mistakes as mistakes:
            raise self._wrong(mistakes.found, path) from None
        if injection.fault.only_real_clock and not self.drill.on_real_clock:
            hint = "clock: {real: {dilation: 100000}}"
            raise InputError(f"{injection.fault.name} is for the real clock", self.drill.place(*path, "fault"), hint)
        return injection

    def _wrong(self, found: Iterable[tuple[KeyPath, str, str]], at: KeyPath) -> InputError:
        return InputError.several(Problem(what, self.drill.place(*at, *path), hint) for path, what, hint in found)

    def cause(self, injection: Injection) -> Cause:
        """What an injection makes part of the truth. Raises CannotInject if it does not fit the fabric."""
        place = place_of(injection, self.experiment, self.experiment.build_fabric())
        injection.requests(place, "f")
        return Cause(injection.fault.name, injection.fault.resources(place))

    def _cause(self, injection: Injection, path: KeyPath) -> Cause:
        """That of an entry of the file. Raises InputError that names it."""
        try:
            return self.cause(injection)
        except CannotInject as error:
            raise InputError(error.what, self.drill.place(*path, error.key or "on"), error.hint) from None

    def _old(self, entry: Mapping[str, Any], drawn: Mapping[str, Any], i: int) -> OldCounter:
        values = {key: filled(value, drawn, key) for key, value in entry.items()}
        try:
            old = OldCounter.model_validate(values)
        except ValidationError as error:
            found = explain(error, OldCounter, lambda path: values.get(str(path[0])) if path else values)
            raise self._wrong(found, ("benign", i)) from None
        where = self.drill.place("benign", i, "on")
        try:
            resolve(self.experiment.build_fabric(), old.on)
        except TopologyError as error:
            raise InputError(error.what, where, error.hint) from None
        if old.on.partition(":")[0] not in ("port", "cable"):
            raise InputError(f"{old.on} has no counters of a port", where, "port:SWITCH:N or cable:A-B")
        return old


def _named(drill: Drill) -> str:
    """Draws the places with the seed: the name in the catalogue, but no file's, which anybody may choose."""
    return drill.id if "/" in drill.id else "drill"


def healthy_by_seed(drill: Drill, seed: str) -> bool:
    return not drill.faults or _number(f"healthy {drill.text} {seed}") % HEALTHY_ONE_IN == 0


def seed_of(text: str) -> str:
    """A seed as it is written: 1 to 12 of ALPHABET.  Raises InputError."""
    seed = text.upper().replace("O", "0").replace("I", "1").replace("L", "1")
    if not 1 <= len(seed) <= SEED_LETTERS or any(letter not in ALPHABET for letter in seed):
        raise InputError(f"{text[:40]!r} is no seed", "--seed", "1 to 12 letters and digits (no U), such as 7Q4")
    return seed


def any_seed(*, hidden: bool = False) -> str:
    """A random one: short enough to be said, or if it is hidden too long to be guessed."""
    import secrets

    return "".join(secrets.choice(ALPHABET) for _ in range(SEED_LETTERS if hidden else 4))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def letters_of(number: int, count: int) -> str:
    return "".join(ALPHABET[number >> 5 * k & 31] for k in range(count))


def _timed(entry: Mapping[str, Any], drawn: Mapping[str, Any], at_ns: float) -> dict[str, Any]:
    """An entry with its places, and the time at which it begins if it says none."""
    return {"at": format_time(at_ns), **{key: filled(value, drawn, key) for key, value in entry.items()}}


def _experiment(drill: Drill, seed: str) -> Experiment:
    """The drill's fabric and job as an experiment.  Raises InputError that names the drill's lines."""
    written = {
        "name": "drill",  # files in the fabric's folder leak nothing
        "seed": _number(f"world {seed}") >> 16,
        "fabric": drill.fabric,
        "control": drill.control,
        "transport": drill.transport,
        "costs": drill.costs,
        # whose process will be killed is not drawn yet, so no ranks may share one
        **({"clock": drill.clock.model_dump(mode="json")} if drill.on_real_clock else {}),
        "workers": {"ranks_per_process": 1} if any(f.get("fault") in OF_PROCESSES for f in drill.faults) else {},
    }

    def checked(more: Mapping[str, Any]) -> Experiment:
        try:
            return Experiment.model_validate({**written, **more}, context={"directory": drill.directory, "own": False})
        except ValidationError as error:
            found = islice(explain(error, Experiment, lambda path: None), 20)
            raise InputError.several(
                Problem(w, drill.place(*_in_drill(path)), hint) for path, w, hint in found
            ) from None

    ranks = checked({}).build_fabric().ranks
    workload = [_step(step, ranks, drill, i) for i, step in enumerate(drill.job)]
    experiment = checked({"workload": workload})
    experiment._written, experiment._directory = {**written, "workload": workload}, drill.directory
    return experiment


def _in_drill(path: KeyPath) -> KeyPath:
    """The path in the drill file of a path of the experiment."""
    return ("job", *path[1:]) if path and path[0] == "workload" else path


def _step(step: Mapping[str, Any], ranks: int, drill: Drill, i: int) -> dict[str, Any]:
    """A step of the job as one of a workload: `size` for `sizes`, `ranks: all`, `compute` before a collective."""
    keys = {key: value for key, value in step.items() if not (key == "ranks" and value == "all")}
    if "collective" not in keys:
        return keys
    compute, size = keys.pop("compute", None), keys.pop("size", None)
    if compute is None:
        return keys if size is None else {**keys, "sizes": [size]}
    odd = set(keys) - {"collective", "algorithm", "dtype", "op", "ranks"}
    if odd or size is None:
        key = min(odd) if odd else "size"
        what = f"{key!r} cannot stand beside `compute`" if odd else "key 'size' is missing"
        hint = "compute, size, algorithm, dtype, op, ranks; or write `tasks`"
        raise InputError(what, drill.place("job", i, key), hint)
    members = keys.pop("ranks", None) or list(range(ranks))
    collective = {"id": "exchange", "group": "job", "size": size, "after": ["compute"], **keys}
    first = {"id": "compute", "compute": compute, "ranks": members}
    return {"tasks": {"groups": {"job": [members]}, "list": [first, collective]}}
