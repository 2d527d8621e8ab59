"""The live view of a fabric: its application, and what `testbed serve` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from testbed.serve.answers import background, get, number_of, page, post, text_of
from testbed.serve.feed import Feed
from testbed.serve.guard import Guard
from testbed.serve.server import Ending
from testbed.serve.watched import Watched

PAGES = Path(__file__).parent / "pages"
MOST_LINE = 200
MOST_NAMES = 600  # of ports and nodes in one request: those of a large switch


def application(watched: Watched, token: str, period: float, ending: Ending) -> ASGIApp:
    feed = Feed(watched.frame, watched.alive, watched.gone)

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
        return watched.steps(number_of(request, "from"))

    def advance(sent: Mapping[str, Any]) -> Any:
        return watched.advance(str(sent.get("line", ""))[:MOST_LINE])

    routes = [
        Route("/", page(PAGES / "live.html")),
        Route("/api/events", events),
        Route("/api/mark", get(mark, ending), methods=["POST"]),
        Route("/api/advance", post(advance, ending), methods=["POST"]),
        *(Route(f"/api/{f.__name__}", get(f, ending)) for f in (about, view, ports, steps, logs, log)),
        Mount("/static", StaticFiles(directory=PAGES)),
    ]
    return Guard(
        Starlette(routes=routes, lifespan=lambda _: background(feed.run(period, ending), watched.hang_up)), token
    )
