"""Connections to a page's server: not more than a bound, and none that begins a request without an end.

Anybody on this machine can connect, and the token is only asked for by whole requests (guard.py). So a new connection
is worth more than one that has been silent for long and waits for nothing: nobody can keep others out.
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
    _heard = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._look()
        if len(self.connections) > MOST:
            others = cast("set[Bounded]", self.connections) - {self}
            given_up = min((c for c in others if not c._answering()), key=lambda c: c._heard, default=self)
            self.connections.discard(given_up)
            given_up._end()

    def _answering(self) -> bool:
        """Whether a whole request has not its whole answer yet; a page's events are one without end."""
        return self._late is None and self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._in_time()

    def _look(self) -> None:
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
