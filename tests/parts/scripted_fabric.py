"""A fabric of two ranks that answers rank 0 by a script: whatever is in it, a worker must bear it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workloads.verbs import wire

QP = 17
DEADLINE_S = 60.0


def reply(kind: int, body: bytes, length: int | None = None) -> bytes:
    return wire.PACKET.pack(kind, 0, wire.PACKET.size + len(body) if length is None else length) + body


def records(*rows: bytes, count: int | None = None) -> bytes:
    return reply(
        wire.RECORDS, wire.RECORDS_BODY.pack(0, len(rows) if count is None else count, 0, 0, 0) + b"".join(rows)
    )


def record(kind: int, wr_id: int = 0, *, qp: int = QP, imm: int = 0, status: int = 0, data: bytes = b"") -> bytes:
    padded = data + bytes(-len(data) % 8)
    return wire.RECORD.pack(kind, wire.RECORD.size + len(padded), status, wr_id, 0, qp, imm, len(data)) + padded


@contextmanager
def scripted(folder: Path, answers: Sequence[bytes]) -> Iterator[Path]:
    """Rank 0's socket.  It gets one queue pair; then each of its waits gets the next answer.  After the last one the
    session is closed."""
    path = folder / "sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=_serve, args=(listener, list(answers)))
        thread.start()
        yield path
        thread.join()


def _serve(listener: socket.socket, answers: list[bytes]) -> None:
    session, _ = listener.accept()
    session.settimeout(DEADLINE_S)
    with session:
        while True:
            data, fds, _, _ = socket.recv_fds(session, wire.MAX_PACKET, 4)
            for fd in fds:
                os.close(fd)
            for op, body in _commands(data):
                if op == wire.HELLO:
                    session.send(reply(wire.WELCOME, wire.WELCOME_BODY.pack(wire.VERSION, 0, 2, 0, 0, 4096, 0)))
                elif op == wire.REGISTER:
                    cookie = wire.BODY[op].unpack(body)[3]
                    session.send(reply(wire.REGION, wire.REGION_BODY.pack(cookie, cookie)))
                elif op == wire.CONNECT:  # its peer hands over what it has
                    head = wire.BODY[op]
                    _, _, cookie, nbytes, *_ = head.unpack_from(body)
                    private = body[head.size : head.size + nbytes]
                    answers.insert(0, records(record(wire.CONNECTED, cookie, data=private)))
                elif op == wire.WAIT and answers:
                    session.send(answers.pop(0))
                elif op == wire.WAIT:
                    return
            if not data:
                return


def _commands(packet: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(packet):
        op, length, _ = wire.COMMAND.unpack_from(packet, at)
        yield op, packet[at + wire.COMMAND.size : at + length]
        at += length
