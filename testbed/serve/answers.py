"""Endpoints out of plain functions: their answer as JSON, or what is wrong, in words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from testbed.base.errors import InputError, UserError
from testbed.serve.server import Ending

MOST_CHARS = 200
MOST_LINE = 4000  # an answer may name many causes
Endpoint = Callable[[Request], Awaitable[Response]]


class Gone(Exception):
    """What pages show is no longer there; the text says why.  `failed`: nobody has ended it."""

    def __init__(self, why: str, *, failed: bool) -> None:
        super().__init__(why)
        self.failed = failed


def text_of(request: Request, key: str, most: int = MOST_CHARS) -> str:
    """A parameter of the URL."""
    return str(request.query_params.get(key, ""))[:most]


def number_of(request: Request, key: str) -> int:
    """A whole number of the URL; 0 if there is none."""
    text = text_of(request, key)
    return int(text) if text.isascii() and text.isdecimal() else 0


def line_of(body: Mapping[str, Any]) -> str:
    """The line to be carried out. Raises InputError."""
    if not isinstance(line := body.get("line"), str) or len(line) > MOST_LINE:
        raise InputError("a command is a line of text", "line", f"at most {MOST_LINE} characters")
    return line


def get(answer: Callable[[Request], Any], ending: Ending) -> Endpoint:
    """An endpoint of a function that may take its time."""

    async def endpoint(request: Request) -> Response:
        return await _answer(lambda: answer(request), ending)

    return endpoint


def post(answer: Callable[[Mapping[str, Any]], Any], ending: Ending) -> Endpoint:
    """Likewise of one that gets the JSON object that was sent."""

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return await _answer(lambda: answer(_object(body)), ending)

    return endpoint


def page(file: Path) -> Callable[[Request], Response]:
    """An endpoint of an HTML file."""
    return lambda _: FileResponse(file)


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None], end: Callable[[], None]) -> AsyncIterator[None]:
    """Runs `work` beside an application; at the end calls `end`, and cancels it."""
    task = asyncio.create_task(work)
    yield
    end()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _object(body: bytes) -> Mapping[str, Any]:
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(body), dict):
            return value
    raise InputError("what was sent is no JSON object", "body", 'such as {"line": "show pfc"}')


async def _answer(answer: Callable[[], Any], ending: Ending) -> Response:
    try:
        return JSONResponse(await asyncio.to_thread(answer))
    except UserError as error:
        return JSONResponse({"error": error.to_dict()}, 400)
    except Gone as gone:
        ending.end(str(gone), failed=gone.failed)
        return JSONResponse({"error": {"what": str(gone), "where": "", "hint": ""}}, 410)
