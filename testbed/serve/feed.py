"""Frames for the pages that listen: read once each period, while anybody does, and sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from testbed.base.errors import UserError
from testbed.serve.answers import Gone
from testbed.serve.server import Ending

BEAT_S = 15.0
"""After so long without news a comment is sent, by which a listener that has gone is noticed."""


class Feed:
    """The newest frame for every listener; one that is slow misses those between."""

    def __init__(self, read: Callable[[], dict[str, Any]], alive: Callable[[], bool], gone: Callable[[], Gone]) -> None:
        self._read, self._alive, self._gone = read, alive, gone
        self._listeners = 0
        self._news = asyncio.Condition()
        self._number = 0
        self._text = ""

    async def run(self, period: float, ending: Ending) -> None:
        """Until the fabric is gone, or the server ends."""
        while not ending.over.is_set():
            try:
                if self._listeners:
                    self._text = await self._frame()
                    await self._tell()
                elif not await asyncio.to_thread(self._alive):
                    raise await asyncio.to_thread(self._gone)
            except Gone as gone:
                ending.end(str(gone), failed=gone.failed)
            except UserError as error:
                ending.end(str(error), failed=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await ending.over.wait()
        await self._tell()

    async def events(self, ending: Ending) -> AsyncIterator[str]:
        """What a listener is sent: `frame` events, and at last `gone` with the reason."""
        self._listeners += 1
        try:
            seen = self._number
            yield _event("frame", await self._frame())
            while not ending.over.is_set():
                if await self._newer(seen) and not ending.over.is_set():
                    seen = self._number
                    yield _event("frame", self._text)
                else:
                    yield ": still here\n\n"
        except Gone as gone:
            ending.end(str(gone), failed=gone.failed)
        except UserError as error:
            ending.end(str(error), failed=True)
        finally:
            self._listeners -= 1
        yield _event("gone", json.dumps(ending.why or "the server was ended"))

    async def _frame(self) -> str:
        return json.dumps(await asyncio.to_thread(self._read), separators=(",", ":"))

    async def _tell(self) -> None:
        async with self._news:
            self._number += 1
            self._news.notify_all()

    async def _newer(self, seen: int) -> bool:
        """Whether there is a frame after this one, within a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S), self._news:
                await self._news.wait_for(lambda: self._number != seen)
        return self._number != seen


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
