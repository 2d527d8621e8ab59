"""The instructor's page of a drill: the truth, the transcript, what he may do.

It has a path, token and cookie of its own. The student's page cannot ask for anything here: its cookie is another, and
this one is sent to this path alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from drills.play.client import Desk
from testbed.base.errors import UserError
from testbed.faults import GROUPS, Fault
from testbed.serve.answers import Gone, get, line_of, number_of, page, post
from testbed.serve.guard import Guard
from testbed.serve.server import Ending
from testbed.serve.student import PAGES
from topologies.graph.fabric import Fabric

PATH = "/instruct/"


class Teacher:
    """The instructor's end, asked for one thing at a time. Raises Gone when the drill is."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = Lock()

    def about(self) -> dict[str, Any]:
        """What stays as it is: the ticket, the classes, the places."""
        with self._lock, _drill_there():
            ticket, state = self._desk.ticket(), self._desk.state()
        fabric = Fabric.from_dict(state["topology"])
        places = [f"cable:{cable.name}" for cable in fabric.cables if cable.name not in fabric.inside]
        places += [f"switch:{switch.name}" for switch in fabric.switches]
        places += [f"nic:{rank}" for rank in range(fabric.ranks)]
        kinds = {cls.name: _described(cls) for classes in GROUPS.values() for cls in classes}
        return {"ticket": ticket, "fabric": self._desk.fabric, "classes": kinds, "places": places}

    def watch(self, since: int) -> dict[str, Any]:
        with self._lock, _drill_there():
            return self._desk.watch(since)

    def command(self, line: str) -> dict[str, Any]:
        with self._lock, _drill_there():
            return self._desk.command(line).to_dict()

    def fork(self) -> dict[str, Any]:
        """Raises UserError."""
        with self._lock:
            other = self._desk.fork()
        other.leave()
        return {"fabric": other.fabric, "code": other.instructor}


def _described(cls: type[Fault]) -> dict[str, str]:
    """What a class is, where it may strike, and parameters as they may be written."""
    sample = " ".join(f"{key}={_written(value)}" for key, value in cls.example.items() if key != "on")
    return {"about": cls.summary.replace("`", ""), "where": ", ".join(cls.on), "sample": sample}


def _written(value: Any) -> str:
    """In one word, as an instructor's line is read: what is no text is JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


@contextmanager
def _drill_there() -> Iterator[None]:
    """Raises Gone for an error of the session's."""
    try:
        yield
    except UserError as error:
        raise Gone(str(error), failed=True) from None


def application(teacher: Teacher, token: str, ending: Ending) -> ASGIApp:
    routes = [
        Route("/", page(PAGES / "instructor.html")),
        Route("/api/about", get(lambda _: teacher.about(), ending)),
        Route("/api/watch", get(lambda request: teacher.watch(number_of(request, "since")), ending)),
        Route("/api/command", post(lambda body: teacher.command(line_of(body)), ending), methods=["POST"]),
        Route("/api/fork", post(lambda _: teacher.fork(), ending), methods=["POST"]),
        Mount("/static", StaticFiles(directory=PAGES)),
    ]
    return Guard(Starlette(routes=[Mount(PATH.rstrip("/"), routes=routes)]), token, path=PATH)


def both(student: ASGIApp, instructor: ASGIApp) -> ASGIApp:
    """Two applications on one port: the instructor's below PATH."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        instructors = scope["type"] == "http" and scope["path"].startswith(PATH)
        await (instructor if instructors else student)(scope, receive, send)

    return application
