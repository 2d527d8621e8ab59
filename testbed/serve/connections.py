"""Connections to a page's server: not more than a bound, and none that begins a request without an end.

Anybody on this machine can connect, and the token is only asked for by whole requests (guard.py).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64
"""A page has up to six, one of them for its events."""
REQUEST_S = 10.0
"""From its first byte, or the connection's begin, to its last."""


class Bounded(H11Protocol):
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.abort()
        else:
            self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._in_time()

    def _look(self) -> None:
        """Is a request under way?"""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._in_time()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self._end)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        cast(Any, self.transport).abort()
