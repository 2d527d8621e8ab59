"""Connections to a page's server: half a request does not stay, and there are not more than a bound."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from threading import Thread

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from testbed.serve import connections, server

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALVES = {
    "nothing": b"",
    "half a line": b"GE",
    "half a head": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "half a body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345",
    "a request and half of another one": WHOLE + b"GET / HT",
}


SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"


async def _slowly(request: Request) -> StreamingResponse:
    """As a page's events: an answer without an end."""

    async def said() -> AsyncIterator[str]:
        while not await request.is_disconnected():
            yield "more"
            await asyncio.sleep(0.01)

    return StreamingResponse(said())


async def _read(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


def _while_served(play: Callable[[int], None]) -> None:
    """Serves in this thread while another one plays, and then ends the server."""
    app = Starlette(routes=[Route("/", _read, methods=["GET", "POST"]), Route("/slow", _slowly)])
    failed: list[BaseException] = []

    def run(port: int) -> None:
        try:
            play(port)
        except BaseException as error:
            failed.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with server.listen(0) as sock:
        thread = Thread(target=run, args=(sock.getsockname()[1],))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            server.serve(lambda _: app, sock)
        thread.join()
    assert not failed, failed[0]


def _connected(port: int) -> socket.socket:
    return socket.create_connection((server.ADDRESS, port), timeout=60)


def _answer(client: socket.socket) -> bytes:
    """One answer to WHOLE, head and body, however many pieces it comes in."""
    said = b""
    while not said.endswith(b"\r\n\r\n0"):
        more = client.recv(1 << 16)
        assert more, said
        said += more
    return said


def _ended(client: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    said = b""
    try:
        while more := client.recv(1 << 16):
            said += more
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_is_not_waited_for_for_ever(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)

    def play(port: int) -> None:
        with _connected(port) as client:
            client.sendall(HALVES[half])
            assert _ended(client).count(b"200 OK") == HALVES[half].count(WHOLE)
        with _connected(port) as client:
            client.sendall(WHOLE)
            assert b"200 OK" in _answer(client)

    _while_served(play)


@pytest.mark.parametrize("half", HALVES)
def test_who_keeps_all_connections_open_keeps_nobody_out(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been silent for longest goes, and it alone."""
    monkeypatch.setattr(connections, "MOST", 4)

    def play(port: int) -> None:
        with ExitStack() as open_ones:
            first = []
            for _ in range(4):
                first.append(open_ones.enter_context(_connected(port)))
                first[-1].sendall(WHOLE)
                assert b"200 OK" in _answer(first[-1])
                first[-1].sendall(HALVES[half].removeprefix(WHOLE))
            with _connected(port) as fifth:
                fifth.sendall(WHOLE)
                assert b"200 OK" in _answer(fifth)
                assert _ended(first[0]) == b""
                if half == "nothing":
                    first[1].sendall(WHOLE)
                    assert b"200 OK" in _answer(first[1])

    _while_served(play)


def test_who_waits_for_an_answer_is_not_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 4)

    def play(port: int) -> None:
        with ExitStack() as open_ones:
            first = [open_ones.enter_context(_connected(port)) for _ in range(4)]
            for client in first:
                client.sendall(SLOW)
                assert client.recv(15) == b"HTTP/1.1 200 OK"
            with _connected(port) as fifth:
                assert _ended(fifth) == b""
            for client in first:
                assert b"more" in client.recv(1 << 16)

    _while_served(play)
