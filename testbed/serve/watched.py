"""A fabric that is up, as pages ask for it: what it is, how it is now, its views, the counters of its ports, its logs.

It is read over one connection, by one thread at a time.  A read that finds the fabric gone raises Gone.
"""

from __future__ import annotations

import shlex
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any, TypeVar

from hardware.client import FabricdError
from testbed.base.errors import InputError, UserError
from testbed.fabric.inventory import clock_text, topology_text
from testbed.fabric.lab import Lab
from testbed.fabric.parts import trouble, why_dead
from testbed.live import jobs, logs
from testbed.live.look.lab import OfLab
from testbed.live.look.look import Look
from testbed.live.verdict import judged
from testbed.live.views import VIEWS
from testbed.machine import ownership
from testbed.machine.ownership import Record
from testbed.machine.processes import wait_for
from testbed.serve.answers import Gone
from testbed.serve.held import HeldClock
from testbed.serve.network import COLUMNS, Network, ports
from testbed.words.entry import Entry, find

T = TypeVar("T")
Counters = Mapping[str, Any]
MOST_MARKS = 16
LOG_LINES = 400
KEPT_PORTS = 10_000
"""So many rows of ports are kept as history, over all moments."""


_END_S = 10.0  # for a fabric's lock to be free when its fabricd has ended
_DOWN_S = 10.0  # for `testbed down` to be through
_REMOVED_S = 3.0  # for what is left of a fabric to be removed, if somebody does so
_PAUSE_S = 0.05


class _Remembering(OfLab):
    """A live fabric that remembers the counters that were read for pages."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.kept: deque[tuple[float, Counters]] = deque(maxlen=max(2, KEPT_PORTS // len(lab.fabric.cables)))

    def history(self) -> Sequence[tuple[float, Counters]]:
        return tuple(self.kept)


class Watched:
    """One live fabric.  `since` is a moment to count from: `last` (the last period that passed), `up`, or a mark."""

    def __init__(self, lab: Lab) -> None:
        from testbed.experiment import loads

        self.lab = lab
        self.network = Network(lab.fabric)
        self._held = HeldClock(lab) if lab.record.keeper else None
        self._source: OfLab = self._held.source if self._held else _Remembering(lab)
        self._experiment = loads((lab.dir / "experiment.json").read_text())
        self._lock = Lock()
        self._now: Counters = {}
        self._last: dict[str, Any] = {}  # frame
        self._before: Counters | None = None
        self._marks: OrderedDict[str, Counters] = OrderedDict()

    def about(self) -> dict[str, Any]:
        """What does not change, and how it was before the last period that passed."""
        lab = self.lab
        return {
            "id": lab.id,
            "name": lab.state["name"],
            "topology": topology_text(lab.fabric.kind, lab.fabric.params),
            "clock": lab.state["clock"]["mode"],
            "clock_text": clock_text(lab.state["clock"]),
            "ranks": lab.fabric.ranks,
            "held": self._held is not None,
            "columns": COLUMNS,
            "views": [_described(view) for view in VIEWS.values()],
            "before": {"time_ns": self._before["time_ns"], "ports": ports(self._before)} if self._before else None,
            **self.network.about(),
        }

    # -- now

    def frame(self) -> dict[str, Any]:
        """How it is now. Raises Gone."""
        return self._reading(self._frame)

    def _frame(self) -> dict[str, Any]:
        lab = self.lab
        if self._last and (reason := trouble(lab.record)) and not reason.over:
            fidelity = {"verdict": "invalid", "reasons": [reason.what]}
            return {**self._last, "moves": False, "fidelity": fidelity, "trouble": f"{reason.what}; {reason.hint}"}
        clock = lab.fabricd.request("status")
        now = lab.fabricd.request("counters")
        if now["time_ns"] != self._now.get("time_ns"):
            self._before = self._now or None
            if isinstance(self._source, _Remembering):
                self._source.kept.append((now["time_ns"], now))
        self._now = now
        job = jobs.running(lab.record)
        fidelity = judged(self._experiment, now["fidelity"], None).to_dict()
        self._last = {
            "time_ns": now["time_ns"],
            "trouble": "",
            "moves": self._held.goes if self._held else lab.kernel or (clock["running"] and not clock["idle"]),
            "ports": ports(now),
            "fidelity": {"verdict": fidelity["verdict"], "reasons": fidelity["reasons"]},
            "deadlocks": now["deadlocks"],
            "controller": self._controller(clock["controllers"]),
            "faults": self._faults(),
            "job": self._job(job),
            "busy": sorted(w["rank"] for w in clock["workers"] if w["state"] in ("running", "waiting")),
        }
        return self._last

    def _controller(self, connected: list[dict[str, Any]]) -> str:
        """As the page says it: one that stands still keeps its process and its connections, but no echo comes back."""
        if self.lab.controller.poll() is not None:
            return "has ended"
        return "runs" if any(one["echoes"] for one in connected) else "does not answer"

    def _faults(self) -> list[dict[str, Any]]:
        from testbed.inject.live import rows

        keep = ("id", "fault", "on", "state", "hits")
        listed = rows(self.lab)
        return [{k: row.get(k) for k in keep} | self.network.places(str(row.get("on", ""))) for row in listed]

    @staticmethod
    def _job(job: jobs.Job | None) -> dict[str, Any] | None:
        if job is None:
            return None
        described = jobs.describe(job)
        return {key: described[key] for key in ("job", "name", "runs", "of")}

    # -- asked for

    def advance(self, line: str) -> dict[str, Any]:
        """Lets a held clock go on; reads go on meanwhile. Raises UserError."""
        return self._of_held().advance(line)

    def steps(self, since: int) -> list[dict[str, Any]]:
        """The job's steps from that number on. Raises UserError."""
        return self._of_held().steps(since)

    def _of_held(self) -> HeldClock:
        if self._held is None:
            hint = "testbed up FILE --virtual --job brings one up that is"
            raise UserError(f"the clock of fabric {self.lab.id} is not held", "advance", hint)
        return self._held

    def mark(self, name: str) -> dict[str, Any]:
        """Counts from now on for whoever asks by this name. Raises Gone."""

        def take() -> dict[str, Any]:
            now = self.lab.fabricd.request("counters")
            self._marks[name] = now
            self._marks.move_to_end(name)
            while len(self._marks) > MOST_MARKS:
                self._marks.popitem(last=False)
            return {"time_ns": now["time_ns"], "ports": ports(now)}

        return self._reading(take)

    def view(self, line: str, since: str, page: str) -> dict[str, Any]:
        """The tables of a view, by its words and parameters. Raises InputError, Gone."""

        def make() -> dict[str, Any]:
            entry, rest = find(VIEWS.values(), _words(line), "view")
            values = entry.read(rest, self.lab.fabric)
            now, then = self.lab.fabricd.request("counters"), self._then(since, page)
            with self._held.still() if self._held else nullcontext():
                tables = entry.show(Look(self._source, now, self._before, then), **values)
            rows = [{"name": t.name, "title": t.title, "rows": t.rows, "named": t.named} for t in tables]
            return {"time_ns": now["time_ns"], "since_ns": then["time_ns"] if then else 0, "tables": rows}

        return self._reading(make)

    def ports(self, names: list[str], since: str, page: str) -> dict[str, Any]:
        """All counters of some ports and of the NICs and switches that they are at, and what they have grown by."""

        def make() -> dict[str, Any]:
            now, then = self.lab.fabricd.request("counters"), self._then(since, page)
            old = {name: figures for name, _, figures in _places(then)} if then else {}
            found = [
                {"name": name, "about": about, "now": figures, "then": old.get(name, {})}
                for name, about, figures in _places(now)
                if name in names
            ]
            return {"time_ns": now["time_ns"], "since_ns": then["time_ns"] if then else 0, "places": found}

        return self._reading(make)

    def _then(self, since: str, page: str) -> Counters | None:
        if since == "mark":
            return self._marks.get(page)
        return self._before if since == "last" else None

    def log_files(self) -> list[str]:
        return [str(path.relative_to(self.lab.dir)) for path in logs.written(self.lab.dir)]

    def log(self, name: str) -> list[str]:
        """The last lines of a log. Raises InputError."""
        for path in logs.written(self.lab.dir):
            if str(path.relative_to(self.lab.dir)) == name:
                return logs.last(path, LOG_LINES)
        raise InputError("there is no such log", "log", f"there are {', '.join(self.log_files())}")

    def _reading(self, read: Callable[[], T]) -> T:
        with self._lock:
            try:
                return read()
            except (FabricdError, OSError) as error:
                if wait_for(lambda: not self.alive(), _END_S):
                    raise self.gone() from None
                raise UserError(str(error), f"fabric {self.lab.id}", f"testbed show logging {self.lab.id}") from None

    def alive(self) -> bool:
        """Whether the fabric's owner is still there, and whatever it cannot do without; asks nothing of fabricd."""
        if not self.lab.dir.exists() or self.lab.record.state != "alive":
            return False
        reason = trouble(self.lab.record)
        return reason is None or not reason.over

    def gone(self) -> Gone:
        """What has become of it: while it is taken down it may look dead."""

        def record() -> Record | None:
            return next((r for r in ownership.fabrics() if r.id == self.lab.id), None)

        def decided() -> bool:
            current = record()
            if current is None or current.state == "dead":
                return True
            return current.standing and (broken := trouble(current)) is not None and broken.over  # nobody takes it down

        wait_for(decided, _DOWN_S, _PAUSE_S)
        if wait_for(lambda: record() is None, _REMOVED_S, _PAUSE_S) or (dead := record()) is None:
            return Gone(f"fabric {self.lab.id} was taken down", failed=False)
        if dead.state != "dead" and (broken := trouble(dead)):
            return Gone(f"fabric {self.lab.id} cannot go on: {broken.what}", failed=True)
        return Gone(f"fabric {self.lab.id} is dead: {why_dead(dead)}", failed=True)

    def hang_up(self) -> None:
        """Nothing that was asked for is waited for any more."""
        if self._held:
            self._held.hang_up()


def _described(view: Entry) -> dict[str, str]:
    return {"words": view.words, "about": view.about, "usage": " ".join(p.usage for p in view.parameters)}


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise InputError(str(error), "view", "words with spaces between") from None


def _places(counters: Counters) -> list[tuple[str, str, dict[str, Any]]]:
    """Ports by `NODE:PORT`, NICs and switches by their names: name, what it is, its figures."""
    links = {(link["node"], link["port"]): link for link in counters["links"]}
    places = []
    for port in counters["ports"]:
        link = links.get((port["node"], port["port"]), {})
        own = {"queue_bytes": link.get("queue_bytes", 0)}
        own |= {k: v for k, v in port.items() if isinstance(v, int) and k != "port"}
        own |= {f"drops_{reason}": count for reason, count in port["drops"].items()}
        places.append((f"{port['node']}:{port['port']}", f"to {port['peer']}", own | port["priorities"]))
    for kind in ("nics", "switches"):
        key = {"nics": "nic", "switches": "switch"}[kind]
        for row in counters[kind]:
            figures = {k: v for k, v in row.items() if isinstance(v, int) and k not in ("rank", key)}
            places.append((row[key], f"rank {row['rank']}" if kind == "nics" else "switch", figures))
    return places
