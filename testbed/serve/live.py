"""The live view of a fabric: its application, and what `testbed serve` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from testbed.base.errors import UserError
from testbed.serve.feed import Feed
from testbed.serve.guard import Guard
from testbed.serve.server import Ending
from testbed.serve.watched import Gone, Watched

PAGES = Path(__file__).parent / "pages"
MOST_NAMES = 600  # of ports and nodes in one request: those of a large switch
MOST_CHARS = 200


def application(watched: Watched, token: str, period: float, ending: Ending) -> ASGIApp:
    """The pages of one fabric, and what they ask for."""
    feed = Feed(watched.frame, watched.alive, watched.gone)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(feed.run(period, ending))
        yield
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
        return watched.mark(_text(request, "page"))

    def view(request: Request) -> Any:
        return watched.view(_text(request, "view"), _text(request, "since"), _text(request, "page"))

    def ports(request: Request) -> Any:
        names = request.query_params.getlist("of")[:MOST_NAMES]
        return watched.ports(names, _text(request, "since"), _text(request, "page"))

    def logs(_: Request) -> Any:
        return watched.log_files()

    def log(request: Request) -> Any:
        return watched.log(_text(request, "file"))

    routes = [
        Route("/", page),
        Route("/api/events", events),
        Route("/api/mark", _json(mark, ending), methods=["POST"]),
        *(Route(f"/api/{f.__name__}", _json(f, ending)) for f in (about, view, ports, logs, log)),
        Mount("/static", StaticFiles(directory=PAGES)),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token)


def _text(request: Request, key: str) -> str:
    return str(request.query_params.get(key, ""))[:MOST_CHARS]


def _json(answer: Callable[[Request], Any], ending: Ending) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint of a function that may take its time: JSON, or an error with its reason."""

    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await asyncio.to_thread(answer, request))
        except UserError as error:
            return JSONResponse({"error": error.to_dict()}, 400)
        except Gone as gone:
            ending.end(str(gone), failed=gone.failed)
            return JSONResponse({"error": {"what": str(gone), "where": "", "hint": ""}}, 410)

    return endpoint
