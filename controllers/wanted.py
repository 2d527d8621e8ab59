"""The flows that every switch should have: routes, jobs, applications; on top of them faults, then an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

from controllers.apps import Applications, PortName, Tables
from controllers.flows import faults
from controllers.offload import jobs
from controllers.offload.jobs import JobRefused, Placement
from controllers.offload.trees import Trees, Used
from controllers.operator import Operator
from controllers.routing.ports import DownPorts
from controllers.routing.routes import Router
from topologies.graph.fabric import Cable, Fabric


class Wanted:
    """The tables of one fabric's switches, as plain data."""

    def __init__(self, fabric: Fabric, router: Router, ports: DownPorts, apps: Applications) -> None:
        self.faults: dict[str, Mapping[str, Any]] = {}  # forwarding faults that are on, by id
        self.operator = Operator(fabric)
        self._fabric = fabric
        self._router = router
        self._ports = ports
        self._apps = apps
        self._avoided: frozenset[Cable] = frozenset()  # the cables that the routes go around
        self._trees = Trees(fabric)
        self._asked: dict[int, Mapping[str, Any]] = {}  # of offloaded collectives, by number
        self._jobs: dict[int, Placement] = {}
        self.moved: dict[int, str] = {}  # jobs that others than those they know would have to add up for, and why

    def reroute(self) -> bool:
        """Works out routes and trees for the ports that are up, those of jobs that run among them.

        Returns whether they have changed.
        """
        around = self.operator.around(self._apps.avoid(self._ports.down))
        avoid = frozenset(self._fabric.cable_at[port] for port in around)
        if avoid == self._avoided:
            return False
        back, self._avoided = self._avoided - avoid, avoid
        self._trees = Trees(self._fabric, around)
        for number, has in self._jobs.items():
            asked = self._asked[number]
            better: Placement | None = None
            with suppress(JobRefused):  # nothing joins its ranks now
                better = jobs.place_anew(self._fabric, self._trees, asked, has, self._used(number, asked["ranks"]))
            if better and better.programs == has.programs:
                self._jobs[number] = replace(has, flows=better.flows)
                continue
            self._jobs[number] = jobs.steer_anew(self._fabric, self._trees, has)
            down = sorted(cable.name for cable in avoid.intersection(has.cables(self._fabric)))
            if better and down:  # nobody is disturbed for a tree that is only a little better
                self.moved[number] = f"its tree cannot stay: {down[0]} is down"
        if back:
            self._spread()
        return True

    def _spread(self) -> None:
        """Of trees that share a message, those that also share a root, while others are back, are to ask anew."""
        for number, has in self._jobs.items():
            asked, root = self._asked[number], has.answer["root"]
            used = self._used(number, asked["ranks"])
            if number not in self.moved and asked["kind"] == "aggregate" and used.get(root, (0, 0))[0]:
                free = jobs.free_roots(self._trees, asked, used)
                if len(free) > sum(self._asked[k]["ranks"] == asked["ranks"] for k in self.moved):
                    self.moved[number] = f"another root than {root}, where it is not alone, is back"

    def set_rate(self, cable: Cable, rate_bps: float) -> None:
        """By what ports weigh that lead over this cable."""
        self._router.set_rate(cable, rate_bps)

    def place(self, job: Mapping[str, Any]) -> Placement:
        """Add a job that fabricd has announced, or one that has been granted before.  Raises Refused."""
        used, granted = self._used(job["job"], job["ranks"]), job.get("granted")
        if granted:
            placement = jobs.place_anew(self._fabric, self._trees, job, Placement(answer=granted), used)
        else:
            placement = jobs.place(self._fabric, self._trees, job, used)
        self._asked[job["job"]], self._jobs[job["job"]] = job, placement
        return placement

    def _used(self, number: int, ranks: Sequence[int]) -> Used:
        """By the jobs beside this one."""
        others = ((self._asked[k], has) for k, has in self._jobs.items() if k != number and k not in self.moved)
        return jobs.used_by(others, ranks)

    def close(self, number: int) -> bool:
        """Remove a job.  Returns whether there was one."""
        self._asked.pop(number, None)
        return self._jobs.pop(number, None) is not None

    def tables(self) -> Tables:
        """Every switch's flows.  Raises FaultError."""
        faulty = [(spec, self.operator.spared(name, spec)) for name, spec in self.faults.items()]
        return self.operator.hashed(faults.apply(self._fabric, self.without_faults(), faulty))

    def without_faults(self) -> Tables:
        """Every switch's flows, by routes, jobs and applications."""
        down = self._ports.down
        avoided = self._apps.avoid(down)
        around = self.operator.around(avoided)
        dateline = self.operator.dateline()
        tables = self._router.flows(around, dateline)
        if drained := {*self._drained(around), *self._behind(around - avoided)}:
            usual = self._router.flows(down, dateline)
            tables |= {name: usual[name] for name in sorted(drained)}
        for placement in self._jobs.values():
            for switch, flows in placement.flows.items():
                tables[switch] = [*tables[switch], *(flow for flow in flows if flow not in tables[switch])]
        return self._apps.tables(tables, around)

    def _behind(self, drained: Set[PortName]) -> list[str]:
        """Switches without NICs at cables that an operator has drained.  They keep their flows likewise.

        Otherwise a frame on its way there would have to go back where it has come from.
        """
        ends = {name for name, _ in drained}
        return [name for name in ends if not self._has_nics(name)]

    def _has_nics(self, name: str) -> bool:
        nics = self._fabric.nic_by_name
        return any(name in (c.a.node, c.b.node) and {c.a.node, c.b.node} & nics.keys() for c in self._fabric.cables)

    def _drained(self, around: Set[PortName]) -> list[str]:
        """Switches that no route leads to any more.  They keep their flows, for frames that are on their way there.

        No frame comes back to one: it sends to switches that avoid it.
        """
        if around <= self._ports.down:
            return []
        ports = {
            s.name: {port for p in range(1, s.ports + 1) if (port := (s.name, p)) in self._fabric.cable_at}
            for s in self._fabric.switches
        }
        return [name for name, all_ports in ports.items() if all_ports <= around]
