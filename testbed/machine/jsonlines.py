"""Servers and clients on this machine: requests and answers are a line of JSON each, over a socket of our user's.

Whoever has connected may say anything: what is no JSON object, or a line without end, raises ValueError.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

LINE_MAX = 16 << 20


class HasFileno(Protocol):
    def fileno(self) -> int: ...


File = TypeVar("File", bound="int | HasFileno")


def ready(files: Sequence[File], timeout_s: float) -> list[File]:
    """Those that can be read, or whose other end is gone; waits until there is one, but no longer than that."""
    poll, by_number = select.poll(), {one if isinstance(one, int) else one.fileno(): one for one in files}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(timeout_s * 1000)]


class JsonLines:
    """One end of a connection. `most`: bytes of a line (None: the other end is trusted). `whole`: lines that came."""

    def __init__(self, sock: socket.socket, most: int | None = LINE_MAX) -> None:
        self.sock = sock
        self.whole: deque[bytes] = deque()
        self._most = most
        self._rest = b""

    @classmethod
    def to(cls, path: Path, most: int | None = LINE_MAX) -> Self:
        """Connects. Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except OSError:
            sock.close()
            raise
        return cls(sock, most)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, told: Any) -> None:
        """Raises OSError if the other end is gone."""
        self.sock.sendall(json.dumps(told).encode() + b"\n")

    def receive(self) -> bool:
        """Takes what is there, waits if nothing is; False at the end. Raises OSError."""
        data = self.sock.recv(1 << 20)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self.whole += whole
        if self._most is not None and len(self._rest) > self._most:
            raise ValueError("a line without end")
        return bool(data)

    def peek(self) -> dict[str, Any] | None:
        """The next line that has come whole, which stays; None if none has."""
        if not self.whole:
            return None
        try:
            told = json.loads(self.whole[0])
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None
        if not isinstance(told, dict):
            raise ValueError("no JSON object")
        return told

    def next(self) -> dict[str, Any] | None:
        if (told := self.peek()) is not None:
            self.whole.popleft()
        return told

    def there(self) -> bool:
        """Whether the other end still is."""
        poll = select.poll()
        poll.register(self.sock, 0)  # the kernel always says so
        return not poll.poll(0)

    def close(self) -> None:
        self.sock.close()


class JsonServer:
    """Listens where only our user may connect. `left` is called for each of the `clients` that has gone."""

    def __init__(self, path: Path, left: Callable[[JsonLines], None] = lambda client: None) -> None:
        self.clients: list[JsonLines] = []
        self.met = False  # anybody
        self._left = left
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(old)
        self._listener.listen(16)

    @property
    def files(self) -> list[socket.socket | JsonLines]:
        return [self._listener, *self.clients]

    def hear(self, ready: Iterable[object], answer: Callable[[JsonLines], None]) -> None:
        """Takes what has come, out of what can be read: `answer` is called with each client who has said something.
        Who has gone is dropped, and so is who says what is no line of JSON."""
        for one in ready:
            if one is self._listener:
                self.clients.append(JsonLines(self._listener.accept()[0]))
                self.met = True
            elif isinstance(one, JsonLines) and one in self.clients:
                with self.talk(one):
                    if one.receive():
                        answer(one)
                    else:
                        self.drop(one)

    @contextmanager
    def talk(self, client: JsonLines) -> Iterator[None]:
        """The client is dropped if it is found to have gone, or to talk nonsense."""
        try:
            yield
        except (OSError, ValueError):
            self.drop(client)

    def drop(self, client: JsonLines) -> None:
        if client in self.clients:
            self.clients.remove(client)
            client.close()
            self._left(client)

    def close(self) -> None:
        for client in self.clients:
            client.close()
