"""The live view of a fabric: its application, and what `testbed serve` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from testbed.serve.answers import posted, text_of, told
from testbed.serve.feed import Feed
from testbed.serve.guard import Guard
from testbed.serve.server import Ending
from testbed.serve.watched import Watched

PAGES = Path(__file__).parent / "pages"
MOST_LINE = 200
MOST_NAMES = 600  # of ports and nodes in one request: those of a large switch


def application(watched: Watched, token: str, period: float, ending: Ending) -> ASGIApp:
    """The pages of one fabric, and what they ask for."""
    feed = Feed(watched.frame, watched.alive, watched.gone)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(feed.run(period, ending))
        yield
        watched.hang_up()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    def page(_: Request) -> Response:
        return FileResponse(PAGES / "live.html")

    def about(_: Request) -> Any:
        return watched.about() | {"period_s": period}

    async def events(_: Request) -> Response:
        return StreamingResponse(feed.events(ending), media_type="text/event-stream")

    def mark(request: Request) -> Any:
        return watched.mark(text_of(request, "page"))

    def view(request: Request) -> Any:
        return watched.view(text_of(request, "view"), text_of(request, "since"), text_of(request, "page"))

    def ports(request: Request) -> Any:
        names = request.query_params.getlist("of")[:MOST_NAMES]
        return watched.ports(names, text_of(request, "since"), text_of(request, "page"))

    def logs(_: Request) -> Any:
        return watched.log_files()

    def log(request: Request) -> Any:
        return watched.log(text_of(request, "file"))

    def steps(request: Request) -> Any:
        since = text_of(request, "from")
        return watched.steps(int(since) if since.isdecimal() and since.isascii() else 0)

    def advance(sent: Mapping[str, Any]) -> Any:
        return watched.advance(str(sent.get("line", ""))[:MOST_LINE])

    routes = [
        Route("/", page),
        Route("/api/events", events),
        Route("/api/mark", told(mark, ending), methods=["POST"]),
        Route("/api/advance", posted(advance, ending), methods=["POST"]),
        *(Route(f"/api/{f.__name__}", told(f, ending)) for f in (about, view, ports, steps, logs, log)),
        Mount("/static", StaticFiles(directory=PAGES)),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token)
