"""Ports of the loopback interfaces here and there, joined through an SSH connection. They end with it."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Any

import paramiko

_BLOCK = 1 << 16


class FromThere:
    """A port there, `port`, that leads to one here as soon as `target` is set.

    Raises SSHException if its sshd forwards nothing.
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self.target: int | None = None
        self.port = int(transport.request_port_forward("127.0.0.1", 0, self._accepted))

    def _accepted(self, channel: paramiko.Channel, _origin: tuple[str, int], _server: tuple[str, int]) -> None:
        try:
            if self.target is None:
                raise OSError("not yet")
            here = socket.create_connection(("127.0.0.1", self.target), timeout=10)
        except OSError:
            channel.close()
            return
        _join(here, channel)


class ToThere:
    """A port here, `port`, that leads to one there as soon as `target` is set."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self.target: int | None = None
        self._transport = transport
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tunnel", daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                here, peer = self._listener.accept()
            except OSError:
                return
            try:
                if self.target is None:
                    raise OSError("not yet")
                there = self._transport.open_channel("direct-tcpip", ("127.0.0.1", self.target), peer, timeout=10)
            except (OSError, EOFError, paramiko.SSHException):
                here.close()
                continue
            _join(here, there)


def _join(here: socket.socket, there: paramiko.Channel) -> None:
    threading.Thread(target=_pump, args=(here, there), name="tunnel", daemon=True).start()


def _pump(here: socket.socket, there: paramiko.Channel) -> None:
    """Carries bytes both ways until one side ends."""
    here.settimeout(None)
    with suppress(OSError, EOFError):
        while True:
            sides: list[Any] = [here, there]
            readable, _, _ = select.select(sides, [], [])
            if here in readable:
                data = here.recv(_BLOCK)
                if not data:
                    break
                there.sendall(data)
            if there in readable:
                data = there.recv(_BLOCK)
                if not data:
                    break
                here.sendall(data)
    here.close()
    there.close()
