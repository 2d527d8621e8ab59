"""A student's page: a drill's session behind a few requests, which answer what the session answers and nothing else.

The page's drawing is coloured from the same views that the student may type, so it shows no more than they do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from drills.session import Answer, Session
from testbed.base.errors import UserError
from testbed.serve.answers import Gone, background, get, line_of, page, post, text_of
from testbed.serve.guard import Guard
from testbed.serve.network import Network
from testbed.serve.server import Ending
from topologies.graph.fabric import Fabric

T = TypeVar("T")
PAGES = Path(__file__).parent / "pages"
COLUMNS = ("up", "frames", "errors", "drops", "tx_pause", "ecn_marked")
"""A port's row in `ports`."""

_COUNTED = "show interfaces counters"
_ERRORS = "show interfaces errors"
_PAUSES = "show pfc"
_MARKS = "show ecn"
_LINES = (_COUNTED, _ERRORS, _PAUSES, _MARKS)
LOOK_S = 2.0
"""How often it is looked whether the drill is still there."""


class Played(Session, Protocol):
    """A session whose commands can be interrupted from another thread, and that tells a page's own lines apart."""

    def transcript(self) -> list[dict[str, Any]]: ...

    def command(self, line: str, page: bool = False) -> Answer: ...

    def interrupt(self) -> None: ...


class Student:
    """A session, asked for one thing at a time. Raises Gone when the drill is."""

    def __init__(self, session: Played) -> None:
        self._session = session
        self._lock = Lock()
        self._fabric = Fabric.from_dict(session.state()["topology"])

    def about(self) -> dict[str, Any]:
        """What stays as it is: the ticket, the drawing, what may be typed, what an answer may name."""
        ticket, helped, classes = self._ask(lambda s: (s.ticket(), s.command("help", True), s.command("classes", True)))
        network = Network(self._fabric)
        return {
            "ticket": ticket,
            "columns": COLUMNS,
            "commands": (helped.data or {}).get("commands", []),
            "classes": (classes.data or {}).get("classes", []),
            "switch_ports": [f"{s.name}:{n}" for s in self._fabric.switches for n in range(1, s.ports + 1)],
            **network.about(),
        }

    def state(self) -> dict[str, Any]:
        return {key: value for key, value in self._ask(lambda session: session.state()).items() if key != "topology"}

    def command(self, line: str) -> dict[str, Any]:
        return self._ask(lambda session: session.command(line)).to_dict()

    def actions(self) -> list[dict[str, Any]]:
        """What has been typed that acts: the page asks for it by itself, so it is no look of the player's."""
        answer = self._ask(lambda session: session.command("actions", True))
        return list((answer.data or {}).get("actions", ()))

    def transcript(self) -> list[dict[str, Any]]:
        """For a page that is opened anew: what was typed before, and what was answered."""
        return self._ask(lambda session: session.transcript())

    def report(self) -> str:
        """What the page shows at the end by itself."""
        return self._ask(lambda session: session.command("report", True)).text

    def interrupt(self) -> None:
        """The command that goes on ends sooner; nothing is answered for it here."""
        if self._lock.locked():
            self._session.interrupt()

    def complete(self, line: str) -> list[str]:
        return self._ask(lambda session: session.complete(line))

    def _ask(self, ask: Callable[[Played], T]) -> T:
        with self._lock:
            try:
                return ask(self._session)
            except UserError as error:  # a session answers what is wrong with a line; this is its end
                raise Gone(str(error), failed=True) from None

    def figures(self) -> dict[str, Any]:
        """What the ports' halves of cables are coloured by, and the table that the page shows first."""
        answers = self._ask(lambda session: {line: session.command(line, True) for line in _LINES})
        tables = {line: a.data if a.ok and isinstance(a.data, dict) else {} for line, a in answers.items()}
        ports = _ports(self._fabric, tables)
        return {"time_ns": answers[_COUNTED].time_ns, "ports": ports, "counters": tables[_COUNTED]}


def _ports(fabric: Fabric, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, list[int]]:
    """Switches count what goes out and what comes in; what a NIC has sent is what came in at its switch."""
    counted = {row["IFACE"]: row for row in tables[_COUNTED].get("counters", ())}
    failed = {row["IFACE"]: row for row in tables[_ERRORS].get("errors", ())}
    paused = {name: _sum(classes) for name, *classes in (row.values() for row in tables[_PAUSES].get("tx", ()))}
    marked: Counter[str] = Counter()
    for row in tables[_MARKS].get("queues", ()):
        marked[row["Port"]] += row["EcnMarked/pkts"]
    ports = {}
    for cable in fabric.cables:
        for end in (cable.a, cable.b):
            far, name = cable.other(end.node), f"{end.node}:{end.port}"
            own, other = counted.get(name, {}), counted.get(f"{far.node}:{far.port}", {})
            bad = failed.get(name, {})
            ports[name] = [
                int((bad or own or other).get("STATE", "U") == "U"),
                _sum([own["TX_OK"] if own else other.get("RX_OK", 0)]),
                _sum([bad.get("RX_ERR"), bad.get("TX_ERR")]),
                _sum([bad.get("RX_DRP"), bad.get("TX_DRP")]),
                paused.get(name, 0),
                marked[name],
            ]
    return ports


def _sum(cells: Iterable[Any]) -> int:
    """Of the numbers among them: what the drill does not show is N/A."""
    return sum(cell for cell in cells if isinstance(cell, int))


def application(student: Student, token: str, ending: Ending) -> ASGIApp:
    async def watch() -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(student.state)
            except Gone as gone:
                ending.end(str(gone), failed=gone.failed)
                return

    def state_of(answer: Callable[[], Any]) -> Route:
        return Route(f"/api/{answer.__name__}", get(lambda _: answer(), ending))

    reads = (student.about, student.state, student.actions, student.transcript, student.report, student.figures)
    routes = [
        Route("/", page(PAGES / "student.html")),
        *map(state_of, reads),
        Route("/api/complete", get(lambda request: student.complete(text_of(request, "line")), ending)),
        Route("/api/interrupt", get(lambda _: student.interrupt(), ending), methods=["POST"]),
        Route("/api/command", post(lambda body: student.command(line_of(body)), ending), methods=["POST"]),
        Mount("/static", StaticFiles(directory=PAGES)),
    ]
    return Guard(Starlette(routes=routes, lifespan=lambda _: background(watch(), student.interrupt)), token)
