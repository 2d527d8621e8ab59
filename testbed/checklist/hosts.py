"""What hosts are asked for: memory, messages that are worth a packet, work that others could do for them."""

from __future__ import annotations

import os
from contextlib import suppress

from testbed.checklist.exchange import registered
from testbed.checklist.finding import Case, Found, check, size
from testbed.experiment.blocks.known import misshapen
from testbed.machine.memory import available_bytes
from testbed.plan.offloads import lacking, scarce_slots
from testbed.plan.routes import Routes
from testbed.plan.steps.planner import Planner
from workloads.base.entry import NoModel
from workloads.base.vocabulary import DTYPES


@check("messages", "messages fill a packet")
def messages(case: Case) -> Found:
    mtu = case.experiment.fabric.nic.mtu
    told: set[tuple[str | int, ...]] = set()
    for one in case.exchanges:
        like = (*one.path[:2], one.group)  # the other tuples of a group are alike
        if not one.small and 0 < one.largest < mtu and like not in told:
            told.add(like)
            what = (
                f"{one.name}: no message is larger than {size(one.largest)}, and a packet holds "
                f"{mtu} bytes: this measures latencies, not bandwidth"
            )
            where = one.path if one.group else (*one.path[:2], *(("sizes",) if "by" in one.name.split() else ()))
            yield what, where, "larger sizes, or fewer ranks or chunks"


@check("offloads", "what `auto` may leave to NICs and switches, they can do")
def offloads(case: Case) -> Found:
    for number, step in enumerate(case.experiment.workload):
        for collective, entry in step.considered():
            ranks = case.fabric.ranks if collective.ranks is None else len(collective.ranks)
            if misshapen(entry, collective.ranks, case.fabric):
                continue
            if why := lacking(entry, collective, case.experiment, ranks):
                what = f"`auto` does not look at {entry}: {why}"
                yield what, ("workload", number, "offloads"), "`testbed predict` says what it takes"


@check("slots", "sums in switches have slots for a round trip at line rate")
def slots(case: Case) -> Found:
    """A block is under way in each: with fewer, NICs wait for results while cables are idle."""
    routes: Routes | None = None
    for number, step in enumerate(case.experiment.workload):
        for collective, entry in step.named():
            if not entry.accelerators or entry.shared_slots or entry.layout or not collective.sizes:
                continue
            routes = routes or Routes(case.experiment)
            told, most = Planner(case.experiment).collective(collective).told(), max(collective.sizes)
            trees = collective.trees or 1
            for ranks in collective.groups or [collective.ranks or list(range(case.fabric.ranks))]:
                with suppress(NoModel):  # hosts do it
                    has, needs = scarce_slots(routes, case.basis, entry, ranks, most, told)
                    if has < min(needs, most // DTYPES[collective.dtype] // told["aggregation"]["elements"] // trees):
                        what = f"{entry}: {has} slots of a tree are {has / needs:.0%} of a round trip at line rate"
                        hint = f"slots: {needs * trees} of the step and of fabric.switch.accelerator, or left out"
                        yield what, ("workload", number), hint
                        break


@check("memory", "workers and this machine have the memory")
def memory(case: Case) -> Found:
    limit = case.experiment.workers.memory
    for one in case.exchanges:
        if one.memory > limit:
            what = f"{one.name}: a rank's vector and buffers are {size(one.memory)}, a worker may use "
            yield what + size(limit), ("workers", "memory"), f"workers: {{memory: {_more(one.memory)}}}"
            return
    total, here = registered(case.exchanges).total(), available_bytes()
    if here is not None and total > here:
        what = f"all ranks together register {size(total)}, this machine has {_gib(here)} to spare"
        yield what, ("workload",), f"smaller sizes or fewer ranks (there are {os.cpu_count()} CPUs here)"


def _more(nbytes: int) -> str:
    """With room for the program itself."""
    return f"{-(-(nbytes + (256 << 20)) // (1 << 30))}GiB"


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"
