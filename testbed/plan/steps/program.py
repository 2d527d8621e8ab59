"""From a step of programs to one of the plan: which rank runs what, with which environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.containers import programs
from testbed.experiment.steps.program import FIRST_PORT, OWN_PORT, ProgramStep, in_bytes
from testbed.plan.steps.planned import Planned, PlannedProgram, PlannedPrograms

if TYPE_CHECKING:
    from testbed.plan.steps.planner import Planner

_SERVER = "{server}"
AFTER_NS = 10e6
"""Emulated time in which servers are ready to be asked."""


def program_steps(step: ProgramStep, planner: Planner) -> list[Planned]:
    """One step; programs are numbered in the order in which a rank starts them."""
    virtual = planner.experiment.clock.mode == "virtual"
    env = {**programs.environment(virtual=virtual), **step.env}
    made = _pairs(step, planner, env) if step.servers is not None else _alone(step, planner, env)
    after_ns = step.after if step.after is not None else AFTER_NS if virtual else 0.0
    return [PlannedPrograms(list(made), step.label, after_ns, step.timeout, step.may_fail)]


def _alone(step: ProgramStep, planner: Planner, env: Mapping[str, str]) -> Iterator[PlannedProgram]:
    nics = planner.fabric.nics
    taking_part = [nics[rank] for rank in (range(len(nics)) if step.ranks is None else step.ranks)]
    for number, nic in enumerate(taking_part):
        argv = _argv(step.program, nic.rank, FIRST_PORT, str(nic.ip))
        placed = programs.placed(nic, taking_part)
        yield PlannedProgram(number, nic.rank, "rank", argv, {**placed, **env})


def _pairs(step: ProgramStep, planner: Planner, env: Mapping[str, str]) -> Iterator[PlannedProgram]:
    """Servers first: one for each client, if each has a port of its own."""
    servers, clients, nics = step.servers or [], step.clients or [], planner.fabric.nics
    each = OWN_PORT in " ".join((*step.program, *(step.server or ())))
    serving = [servers[k % len(servers)] for k in range(len(clients))] if each else servers
    for number, rank in enumerate(serving):
        words = step.server or [word for word in step.program if _SERVER not in word]
        argv = _argv(words, rank, FIRST_PORT + (number if each else 0), str(nics[rank].ip))
        yield PlannedProgram(number, rank, "server", argv, env)
    for k, rank in enumerate(clients):
        server = servers[k % len(servers)]
        words = step.program if any(_SERVER in word for word in step.program) else [*step.program, _SERVER]
        argv = _argv(words, rank, FIRST_PORT + (k if each else 0), str(nics[server].ip))
        yield PlannedProgram(len(serving) + k, rank, "client", argv, env, server)


def _argv(words: Sequence[str], rank: int, port: int, server: str) -> list[str]:
    """The words, with what stands for something in its place."""
    places = {_SERVER: server, OWN_PORT: str(port), "{rank}": str(rank)}
    argv = [in_bytes(word) for word in words]
    for place, value in places.items():
        argv = [word.replace(place, value) for word in argv]
    return argv
