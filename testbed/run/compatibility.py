"""Whether an experiment can run on a fabric that is up: what the fabric has fixed must be the same, or be left out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import InputError, Problem, UserError
from testbed.machine.ownership import Record

if TYPE_CHECKING:
    from testbed.experiment import Experiment

_DECIDED = ("seed", "fabric", "control", "transport", "workers", "costs")
_OF_RECEIVERS = ("ack_dscp", "cnp_dscp")
"""Of transport: all else is the senders', who may be others for each job."""
_OF_COSTS = ("post",)  # the others are the workers' own
_OF_RUNS = ("workers.ranks_per_process",)
_MOST = 5  # differences that are named


def load_for(file: str | Path, record: Record, settings: Sequence[str] = ()) -> Experiment:
    """The experiment in `file` for a live fabric: the clock, and what the file leaves out, are the fabric's.

    Raises InputError if the two differ. What it sends by is its own: connections say so where NICs have something else.
    """
    from testbed.experiment import loads
    from testbed.experiment.overrides import changed, load_with
    from testbed.experiment.steps.steps import scaled_by

    try:
        live = json.loads((record.dir / "experiment.json").read_text())
    except FileNotFoundError:
        raise UserError(f"fabric {record.id} is still coming up", hint="try again in a moment") from None
    experiment = load_with(file, settings, {key: live[key] for key in _DECIDED})
    if experiment.sweep:
        raise InputError("a sweep brings up fabrics of its own", f"{file}: sweep", "leave --fabric out, or the sweep")
    if scaled_by(experiment.workload) > 1:
        what = f"`scale: {{by: {scaled_by(experiment.workload)}}}` needs other latencies than this fabric's"
        raise InputError(what, f"{file}: workload", "leave --fabric out, or by")
    wanted = experiment.resolved()
    found = [
        Problem(
            f"it is {_text(ours)} here, and {_text(theirs)} on fabric {record.id}",
            *_where_and_hint(key, theirs, file, settings),
        )
        for section in _DECIDED
        for key, ours, theirs in differences(wanted[section], live[section], section)
        if (section != "costs" or key.rpartition(".")[2] in _OF_COSTS) and key not in _OF_RUNS
        if section != "transport" or key.split(".")[1] in _OF_RECEIVERS
    ]
    stands = loads(json.dumps(live), directory=record.dir)
    found += _strangers(experiment, stands, record.id, file)
    if found:
        raise InputError(found[0].what, found[0].where, found[0].hint, found[1:_MOST])
    tenant = changed(experiment, [("clock", live["clock"], "clock")], str(file))
    tenant._stands = stands.transport
    return tenant


def _strangers(experiment: Experiment, stands: Experiment, fabric: str, file: str | Path) -> Iterator[Problem]:
    """C files of users' own that the fabric was not told of when it came up."""
    from testbed.own.name import parse
    from testbed.run.own_files import of_sender

    known = {name for _, sending in stands.senders() for name in of_sender(sending)}
    for path, sending in experiment.senders():
        for name in of_sender(sending):
            if name not in known and (own := parse(name)):
                what = f"fabric {fabric} came up without {own.short}, and takes in no file later"
                yield Problem(
                    what, f"{file}: {'.'.join(map(str, path))}", "bring up a fabric from a file that names it"
                )


def differences(one: Any, other: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two resolved experiments differ, with both values (None: it is not there)."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            yield from differences(one.get(name), other.get(name), f"{key}.{name}")
    elif one != other:
        yield key, one, other


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _where_and_hint(key: str, theirs: Any, file: str | Path, settings: Sequence[str]) -> tuple[str, str]:
    """Where a key was said, in the file or by a setting, and what can be done."""
    for setting in reversed(settings):
        said = setting.partition("=")[0]
        if f"{key}.".startswith(f"{said}.") or f"{said}.".startswith(f"{key}."):
            return (
                f"--set {setting}",
                f"leave it out, or bring up a fabric with it: testbed up {file} --set {shlex.quote(setting)}",
            )
    section = key.partition(".")[0]
    hint = f"leave {section}: out of the file, say --set {key}={_text(theirs)}, or bring up a fabric from this file"
    return f"{file}: {key}", hint
