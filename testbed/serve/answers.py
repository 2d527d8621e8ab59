"""Endpoints out of plain functions: their answer as JSON, or what is wrong, in words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from testbed.base.errors import InputError, UserError
from testbed.serve.server import Ending

MOST_CHARS = 200
Endpoint = Callable[[Request], Awaitable[Response]]


class Gone(Exception):
    """What pages show is no longer there; the text says why.  `failed`: nobody has ended it."""

    def __init__(self, why: str, *, failed: bool) -> None:
        super().__init__(why)
        self.failed = failed


def text_of(request: Request, key: str, most: int = MOST_CHARS) -> str:
    """A parameter of the URL."""
    return str(request.query_params.get(key, ""))[:most]


def told(answer: Callable[[Request], Any], ending: Ending) -> Endpoint:
    """An endpoint of a function that may take its time."""

    async def endpoint(request: Request) -> Response:
        return await _answered(lambda: answer(request), ending)

    return endpoint


def posted(answer: Callable[[Mapping[str, Any]], Any], ending: Ending) -> Endpoint:
    """The same of one that gets the JSON object that was sent."""

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return await _answered(lambda: answer(_object(body)), ending)

    return endpoint


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("what was sent is no JSON object", "body", 'such as {"line": "show pfc"}')
    return found


async def _answered(answer: Callable[[], Any], ending: Ending) -> Response:
    try:
        return JSONResponse(await asyncio.to_thread(answer))
    except UserError as error:
        return JSONResponse({"error": error.to_dict()}, 400)
    except Gone as gone:
        ending.end(str(gone), failed=gone.failed)
        return JSONResponse({"error": {"what": str(gone), "where": "", "hint": ""}}, 410)
