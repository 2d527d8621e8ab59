"""A server on loopback for one application, until Ctrl-C or until what it shows is gone."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from testbed.base.errors import InputError, UserError
from testbed.serve.connections import Bounded

ADDRESS = "127.0.0.1"
CLOSE_S = 1
"""How long requests under way may take when the server ends."""


class Ending:
    """Says when a server has to end, and why. Streams of events end when it does."""

    def __init__(self) -> None:
        self.why = ""
        self.failed = False
        self.over = asyncio.Event()

    def end(self, why: str, *, failed: bool) -> None:
        if not self.over.is_set():
            self.why, self.failed = why, failed
        self.over.set()


def listen(port: int) -> socket.socket:
    """A socket on loopback: on this port, or with 0 on a free one. Raises UserError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((ADDRESS, port))
        sock.listen(64)
    except OSError as error:
        sock.close()
        where = f"--port {port}"
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is taken", where, "name another one, or none: then a free one is") from None
        if error.errno == errno.EACCES:
            raise InputError(f"port {port} needs root", where, "name one from 1024 to 65535") from None
        raise UserError(error.strerror or str(error), where) from None
    return sock


def url(sock: socket.socket, token: str, path: str = "/") -> str:
    return f"http://{ADDRESS}:{sock.getsockname()[1]}{path}?token={token}"


def serve(make: Callable[[Ending], ASGIApp], sock: socket.socket) -> Ending:
    """Serves until Ctrl-C (raises KeyboardInterrupt), or until the application ends it: the result says why."""
    ending = asyncio.run(_serve(make, sock))
    if not ending.why:  # by a signal that does nothing more: a shell's `COMMAND &` in a script ignores SIGINT
        raise KeyboardInterrupt
    return ending


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ending: Ending) -> None:
        super().__init__(config)
        self.ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ending.over.set()  # streams end, or it would wait for them
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Of a lost terminal, too; once the server has ended, the signal does what it would have done."""
        before = signal.getsignal(signal.SIGHUP)
        lost: list[int] = []

        def handle(number: int, frame: FrameType | None) -> None:
            lost.append(number)
            self.should_exit = True
            self.ending.over.set()

        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, handle)
        try:
            with super().capture_signals():
                yield
        finally:
            signal.signal(signal.SIGHUP, before)
        if lost:
            signal.raise_signal(signal.SIGHUP)


async def _serve(make: Callable[[Ending], ASGIApp], sock: socket.socket) -> Ending:
    ending = Ending()
    server = _Server(
        uvicorn.Config(
            make(ending),
            loop="asyncio",
            http=Bounded,
            ws="none",
            lifespan="on",
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=CLOSE_S,
            h11_max_incomplete_event_size=32 * 1024,
        ),
        ending,
    )

    async def watch() -> None:
        await ending.over.wait()
        server.should_exit = True

    watching = asyncio.create_task(watch())
    try:
        await server.serve(sockets=[sock])
    finally:
        watching.cancel()
        sock.close()
    return ending
