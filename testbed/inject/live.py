"""Faults on a live fabric. fabricd keeps them, so they stay when the command that injected them has ended."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from hardware.client import Fabricd, FabricdError, FabricdLost
from hardware.patience import LOOK_S
from testbed.base.errors import INTERRUPTED, UserError
from testbed.experiment import Experiment, loads
from testbed.fabric.lab import Lab
from testbed.fabric.parts import failed
from testbed.fabric.waits import in_words
from testbed.faults import CannotInject, Injection
from testbed.faults.base import fault_id
from testbed.inject import faults
from testbed.inject.agent import NAME, Agent
from testbed.inject.faults import requests_of

PATIENCE_S = 60.0
"""How long a command waits until others have carried out what it has asked for."""


def inject(injection: Injection, fabric: str | None = None) -> str:
    """Injects a fault; returns its id. Raises CannotInject, UserError."""
    with closing(Lab.attach(fabric)) as lab:
        return put_in(lab, injection)


def put_in(lab: Lab, injection: Injection, name: str = "") -> str:
    """As `inject`, on a Lab; `name` will be its id (default: the next free one)."""
    experiment = _experiment(lab)
    if injection.fault.only_real_clock and not lab.kernel:
        raise CannotInject(f"{injection.fault.name} is for the real clock", "bring the fabric up with clock: real")
    try:
        name = name or faults.free_name(lab.fabricd)
        now_ns = lab.fabricd.request("status")["time_ns"]
        requests = requests_of([injection], [name], experiment, lab.fabric, now_ns=now_ns, programs=lab.kernel)
        for request in requests:
            _check_alone(lab, request)
        agent = any(r.get("to") == NAME for r in requests)
        if agent and (injection.at or injection.lasts is not None):
            raise CannotInject(
                f"{injection.fault.name} strikes a process: on a live fabric it comes at once and stays until healed",
                "leave --at, --for and --every out, or put it into an experiment",
            )
        late = _with_agent(lab, agent, lambda: faults.put_in(lab.fabricd, requests))
    except KeyboardInterrupt:
        hint = f"testbed show faults {lab.id} says whether it is, testbed heal {name} takes it out"
        raise UserError(f"interrupted: {name} may be in", f"fabric {lab.id}", hint, INTERRUPTED) from None
    except FabricdLost as error:
        raise failed(error, lab.dir) from None
    except FabricdError as error:
        raise UserError(str(error), hint=f"testbed show faults --fabric {lab.id}") from None
    if late:
        raise UserError(f"{name} is in, but {late}", f"fabric {lab.id}", f"testbed heal {name} takes it out")
    return name


def _experiment(lab: Lab) -> Experiment:
    """Of the fabric, without what names files: they may be gone meanwhile."""
    written = json.loads((lab.dir / "experiment.json").read_text())
    written["control"]["apps"] = []
    return loads(json.dumps({**written, "workload": [], "inject": []}))


def _check_alone(lab: Lab, request: dict[str, Any]) -> None:
    """Raises CannotInject for what would strike the workers of other ranks, too."""
    spec = request.get("spec", {})
    if "worker" in spec and lab.containers.shared(spec["rank"]):
        what = f"rank {spec['rank']} shares its worker process with other ranks, which would be struck with it"
        raise CannotInject(what, "put the fault into the experiment, or set workers.ranks_per_process: 1 there")


def heal(name: str, fabric: str | None = None) -> list[str]:
    """Heals one fault, or all; returns the ids. Raises InputError for an unknown one."""
    with closing(Lab.attach(fabric)) as lab:
        return take_out(lab, name)


def take_out(lab: Lab, name: str) -> list[str]:
    """As `heal`, on a Lab. Raises UserError, too, if they are out and somebody does not follow."""
    names, late = taken_out(lab, name)
    if late:
        raise UserError(f"{', '.join(names)}: out, but {late}", f"fabric {lab.id}")
    return names


def taken_out(lab: Lab, name: str) -> tuple[list[str], str]:
    """The ids of the faults that it has taken out, and what `settled` says. Raises InputError for an unknown one."""
    chosen = faults.named(lab.fabricd, [name])
    if not chosen and name != "all":
        raise faults.no_such_fault(name, lab.fabricd)
    for_agent = [f for f in chosen if f["request"].get("to") == NAME]
    on = any(f["on"] for f in for_agent)
    late = _with_agent(lab, bool(for_agent), lambda: faults.heal(lab.fabricd, chosen), expected=on)
    return faults.ids(chosen), late


def listed(fabric: str | None = None) -> list[dict[str, Any]]:
    """The faults of a live fabric: id, state, hits, the injection as written, and results of flows."""
    with closing(Lab.attach(fabric)) as lab:
        return rows(lab)


def rows(lab: Lab) -> list[dict[str, Any]]:
    """As `listed`, on a Lab. Raises FabricdError."""
    found: dict[str, dict[str, Any]] = {}
    for fault in faults.injected(lab.fabricd):
        name = fault_id(fault["fault"])
        row = found.setdefault(
            name, {"id": name, "state": "off", "hits": 0, "since_ns": None, **fault["request"].get("about", {})}
        )
        if fault["on"]:
            row["state"] = "on"
        row["since_ns"] = fault["since_ns"]
        row["hits"] += fault["hits"]
        if fault["primitive"] == "traffic":
            flows = lab.fabricd.request("traffic_results", fault=fault["fault"])["flows"]
            row["flows_done"] = sum(f[4] is not None for f in flows)
            times = [f[4] - f[3] for f in flows if f[4] is not None]
            row["slowest_us"] = round(max(times) / 1000, 3) if times else None
    return list(found.values())


def restart_controller(lab: Lab) -> None:
    """Ends the controller, if it runs, and starts it anew. Raises UserError if a fault keeps it from running."""
    if any(f["on"] and "controller" in f["request"].get("spec", {}) for f in faults.injected(lab.fabricd)):
        raise UserError("the controller does not come up again", f"fabric {lab.id}")
    Agent(lab).end_controller()
    lab.restart_controller()
    lab.fabricd.request("ask_controller")


def settled(lab: Lab, meanwhile: Callable[[], bool] | None = None) -> str:
    """Waits until what was asked of fabricd has been carried out, by the controller too.

    Returns "", or who has not done it after PATIENCE_S in which `meanwhile`, called again and again, had nothing to do.
    It reads the events of the lab's connection.
    """
    with closing(Fabricd(lab.fabricd.control)) as client:  # of its own: `meanwhile` may ask something else
        asked = client.ask("carried_out")
        end = time.monotonic() + PATIENCE_S
        while client.answer(asked, 0) is None:
            if meanwhile is not None and meanwhile():
                end = time.monotonic() + PATIENCE_S
            elif time.monotonic() > end:
                who = in_words(client.waits) or "time to go on"
                return f"{PATIENCE_S:g} s later it is not carried out everywhere: fabricd waits for {who}"
            select.select([client] if meanwhile is None else [client, lab.fabricd], [], [], LOOK_S)
    return ""


def _with_agent(lab: Lab, needed: bool, do: Callable[[], Any], *, expected: bool = True) -> str:
    """Calls `do`, and carries out here what an agent is needed for; returns what `settled` says.

    `expected`: something will have to be carried out; then nobody stops waiting before it comes.
    """
    if not needed:
        do()
        return settled(lab)
    lab.fabricd.subscribe(acts=NAME)
    do()
    agent = Agent(lab)

    def act() -> bool:
        acts = agent.heed()
        return bool(acts) or (expected and not agent.acts)  # without an agent nobody would carry it out

    return settled(lab, act)
