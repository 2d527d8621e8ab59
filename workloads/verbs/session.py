"""A worker's session with fabricd: commands gather and go out in one packet, answers come back, errors end it."""

from __future__ import annotations

import mmap
import os
import socket
import time
from array import array
from collections.abc import Iterable
from typing import NoReturn

from workloads.verbs import wire

DEFAULT_SOCKET = "/run/railbed/worker.sock"
PROGRESS_EVERY_S = 0.25  # a worker that says nothing while it runs tries fabricd's patience
_LARGEST_ANSWER = 1 << 20


class FabricError(Exception):
    """The fabric ended this worker's session; the text says why."""


class Session:
    """Every method may raise FabricError: the session is over."""

    def __init__(self, path: str | None) -> None:
        """Connects to the worker socket at `path` (default: $RAILBED_SOCKET, else /run/railbed/worker.sock).

        Raises OSError when nobody listens.
        """
        self.unanswered = False  # something was said since the last answer that the owner took
        # mapped: nearly all packets are short, and what is never written takes no memory
        self.out = mmap.mmap(-1, wire.MAX_PACKET, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.said = 0  # bytes of `out` that have not gone out yet
        self.answers = mmap.mmap(-1, _LARGEST_ANSWER, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._in = memoryview(self.answers)
        self.last_sent_s = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(path or os.environ.get("RAILBED_SOCKET", DEFAULT_SOCKET))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def descriptor(self) -> int:
        """That of the socket; -1: what stands in its place has none."""
        return int(getattr(self._socket, "fileno", lambda: -1)())

    def close(self) -> None:
        """Without BYE before, the fabric counts this worker as lost."""
        self._socket.close()

    def progress(self) -> None:
        """Now and then a sign of life."""
        if time.monotonic() - self.last_sent_s >= PROGRESS_EVERY_S:
            self.send(wire.command(wire.PROGRESS))

    def queue(self, op: int, *body: int | bytes, data: bytes = b"") -> None:
        """Collects a command.  Packets are at most 64 KiB: a full one goes out at once."""
        command = wire.command(op, *body, data=data)
        end = self.said + len(command)
        if end > wire.MAX_PACKET:
            self.flush()
            end = len(command)
        self.out[self.said : end] = command
        self.said = end
        self.unanswered = True

    def flush(self, fds: Iterable[int] = ()) -> None:
        if self.said:
            said, self.said = self.said, 0
            self.send(memoryview(self.out)[:said], fds)

    def send(self, data: bytes | memoryview, fds: Iterable[int] = ()) -> None:
        try:
            if fds:
                self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))])
            else:
                self._socket.send(data)
        except (BrokenPipeError, ConnectionError):
            self.last_words()
        self.last_sent_s = time.monotonic()

    def last_words(self) -> NoReturn:
        """fabricd has closed; what it said is still there to be read."""
        while True:
            self._receive()

    def _receive(self) -> tuple[int, memoryview]:
        """Kind and body of the next packet (valid until the one after).  Raises FabricError when it is the last."""
        try:
            n = self._socket.recv_into(self._in)
        except ConnectionError:  # said once, when fabricd closed before it read all of ours; its last words come after
            n = self._socket.recv_into(self._in)
        return self._packet(n)

    def _packet(self, n: int) -> tuple[int, memoryview]:
        if n == 0:
            raise FabricError("fabricd closed the session without a word")
        try:  # of a packet that is too long the header says so
            kind, body = wire.packet(self._in[:n])
        except wire.Malformed as e:
            raise FabricError(f"fabricd sent {e}") from None
        if kind == wire.ERROR:
            raise FabricError(bytes(body).decode("utf-8", "replace").rstrip("\0"))
        return kind, body

    def answer(self, expected: int, size: int | None, come: int | None = None) -> memoryview:
        """The body of the next packet, which must be of kind `expected` and of `size` bytes (None: any).

        `come`: the packet is in `answers` already, and has so many bytes.
        """
        kind, body = self._receive() if come is None else self._packet(come)
        if kind != expected or (size is not None and len(body) != size):
            raise FabricError(
                f"fabricd sent a packet of kind {kind} with {len(body)} bytes where kind {expected} was due"
            )
        return body
