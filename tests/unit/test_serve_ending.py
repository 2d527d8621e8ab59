"""How a server on loopback ends: by a signal, or because what it shows is gone."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from testbed.serve import server


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with server.listen(0) as sock:
        yield sock


def when_it_answers(sock: socket.socket, do: Callable[[], None]) -> Thread:
    """Does something as soon as the server has answered a request."""
    port = sock.getsockname()[1]

    def ask() -> None:
        with socket.create_connection((server.ADDRESS, port), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 404")
        do()

    thread = Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_sigint_ends_it_as_ctrl_c_does_also_where_a_script_ignores_it(
    before: signal.Handlers, sock: socket.socket
) -> None:
    old = signal.signal(signal.SIGINT, before)
    try:
        thread = when_it_answers(sock, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            server.serve(lambda _: Starlette(), sock)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, old)


def test_an_application_that_ends_it_says_why(sock: socket.socket) -> None:
    found: list[server.Ending] = []

    def make(ending: server.Ending) -> ASGIApp:
        found.append(ending)

        async def application(scope: object, receive: object, send: Callable[..., object]) -> None:
            if isinstance(scope, dict) and scope["type"] == "http":
                ending.end("it is gone", failed=True)
            await Starlette()(scope, receive, send)  # type: ignore[arg-type]

        return application

    thread = when_it_answers(sock, lambda: None)
    ended = server.serve(make, sock)
    thread.join()
    assert (ended, ended.why, ended.failed) == (found[0], "it is gone", True)
