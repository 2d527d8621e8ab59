"""The job that a held world repeats: begun anew, without a rank, by another algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.base.errors import InputError, UserError
from testbed.experiment.blocks import known
from testbed.operate.steps import durations as take
from testbed.operate.steps.action import Action
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import ForGood, Mend, Restarted, Step
from testbed.words.entry import Parameter
from testbed.words.kinds import RANK, TEXT

LEAST_RANKS = 2


def restart(site: Site) -> Iterator[Step]:
    workload = _workload(site, "job restart")
    for rank in range(site.fabric.ranks):
        yield Mend("job restart", f"nic:{rank}")
    yield Restarted(workload)
    yield ForGood("the job has begun anew")


def exclude(site: Site, rank: int) -> Iterator[Step]:
    changed = []
    for step in _collectives(site, "job exclude"):
        ranks = list(range(site.fabric.ranks)) if step.get("ranks") is None else list(step["ranks"])
        if step.get("groups") or rank not in ranks:
            why = "its groups are written out" if step.get("groups") else f"its ranks: {', '.join(map(str, ranks))}"
            raise InputError(f"rank {rank} cannot be taken out of {step['collective']}", "job exclude", why)
        if len(ranks) <= LEAST_RANKS:
            raise InputError(f"{step['collective']} needs {LEAST_RANKS} ranks", "job exclude", "it has no more")
        changed.append({**step, "ranks": [r for r in ranks if r != rank]})
    yield Restarted(changed)


def algorithm(site: Site, name: str) -> Iterator[Step]:
    if known.own(name):  # whoever operates it need not be who may run code here
        raise InputError("a job goes on by an algorithm of ours", "job algorithm", f"not by a file: {name:.80}")
    yield Restarted([{**step, "algorithm": name} for step in _collectives(site, "job algorithm")])


def _workload(site: Site, words: str) -> list[dict[str, Any]]:
    if site.job is None:
        raise UserError("no job is repeated here", words, "testbed up FILE --virtual --job", exit_code=2)
    return site.job.workload()


def _collectives(site: Site, words: str) -> list[dict[str, Any]]:
    workload = _workload(site, words)
    if not all("collective" in step for step in workload):
        raise InputError("the job has steps that are no collectives", words, "only collectives are changed so")
    return workload


_TRAFFIC = (
    "queue pairs end with their workers, and what is under way for them is dropped; new ones begin with a new rate"
)
_BLAST = "the whole job, for 1 ms"


def _action(words: str, about: str, steps: Any, example: str, *parameters: Parameter) -> Action:
    return Action(
        words=words, about=about, parameters=parameters, steps=steps, cost_ns=take.JOB_NS, cost_from=take.JOB,
        passes=True,        blast=_BLAST, traffic=_TRAFFIC, example=example,
    )  # fmt: skip


ACTIONS = (
    _action("job restart", "Ends the workers of the job that is repeated, and begins it anew.", restart, ""),
    _action("job exclude", "Begins the job anew without a rank.", exclude, "3",
            Parameter("rank", RANK, "its rank", required=True)),
    _action("job algorithm", "Begins the job anew with its collectives by another algorithm.", algorithm, "ring",
            Parameter("name", TEXT, "such as ring", required=True)),
)  # fmt: skip
