"""The bytes on the worker socket: packed commands out, checked packets in (docs/fabricd-protocol.md).

Nothing here has state or does I/O, so that a client and a test server can share the layout and still disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

MAGIC = 0x31574252
VERSION = 3
MAX_PACKET = 65536  # of commands to fabricd
MAX_PRIVATE = 256
FOREVER = 2**64 - 1
U32 = 2**32 - 1

HELLO, REGISTER, CONNECT, POST_SEND, POST_RECV, COMPUTE, SPEND, WAIT, SYNC, PROGRESS, BYE = range(1, 12)
GROUP, POST_OFFLOAD, LEAVE = range(12, 15)
WELCOME, REGION, RECORDS, ERROR = range(1, 5)
SENT, RECEIVED, RECEIVED_IMM, COMPUTED, CONNECTED, SYNCED, GROUPED, OFFLOADED, GROUP_FAILED = range(1, 10)
WRITE, WRITE_IMM, SEND = range(3)

SIGNALED = 1
NETWORK_ONLY = 1  # CONNECT: never the scale-up domain

# Offloads: what NICs and accelerators do by themselves
GROUP_ARGS = 8
ELEMENTS = {
    **{"float32": 0, "float16": 1, "bfloat16": 2, "int32": 3},
    **{"int8": 4, "uint8": 5, "float8_e4m3fn": 6, "float8_e5m2": 7},
}
REDUCTIONS = {"sum": 0, "min": 1, "max": 2, "prod": 3, "avg": 4}

COMMAND = Struct("<HHI")  # op, length, 0
BODY = {
    HELLO: Struct("<II"),  # magic, version
    REGISTER: Struct("<QII"),  # length, cookie, 0
    CONNECT: Struct("<IIIHH"),  # peer, tag, cookie, private length, flags; private data follows
    POST_SEND: Struct("<IBBHQIIQQQII"),  # qp, opcode, flags, 0, wr_id, lkey, rkey, local, remote, length, imm, 0
    POST_RECV: Struct("<IIQQQ"),  # qp, lkey, wr_id, offset, length
    COMPUTE: Struct("<QQ"),  # wr_id, ps
    SPEND: Struct("<Q"),  # ps
    WAIT: Struct("<IIQ"),  # records, 0, until ps
    SYNC: Struct("<II"),  # tag, participants
    PROGRESS: Struct(""),
    BYE: Struct(""),
    GROUP: Struct("<16sIIII8Q"),  # kind, tag, cookie, members, 0, arguments; the members' ranks (u32) follow
    # group, collective, reduction, element, flags, wr_id, in_key, out_key, in, out, count, arguments
    POST_OFFLOAD: Struct("<IBBBBQIIQQQ4Q"),
    LEAVE: Struct("<II"),  # group, 0
}
PACKET = Struct("<HHI")  # kind, 0, total length
WELCOME_BODY = Struct("<IIIIQII")  # version, rank, ranks, flags, time ps, mtu, 0
REGION_BODY = Struct("<II")  # cookie, key
RECORDS_BODY = Struct("<QIIQQ")  # time ps, count, more, host ps, sent bytes
RECORD = Struct("<HHIQQIIQ")  # kind, length, status, wr_id, time ps, qp, imm, bytes

STATUS = {
    0: "success",
    5: "flushed",
    10: "remote access error",
    12: "transport retries exceeded",
    13: "receiver-not-ready retries exceeded",
}


class Malformed(ValueError):
    """Bytes that the protocol does not allow."""


class Record(NamedTuple):
    """One completion or answer: `time_ps` is when it became due, `nbytes` what it moved."""

    kind: int
    status: int
    wr_id: int
    time_ps: int
    qp: int
    imm: int
    nbytes: int
    private: bytes = b""


def command(op: int, *body: int | bytes, data: bytes = b"") -> bytes:
    """A command, padded to 8 bytes.  Raises struct.error when a number does not fit its field."""
    layout = BODY[op]
    length = COMMAND.size + layout.size + len(data)
    padding = -length % 8
    return COMMAND.pack(op, length + padding, 0) + layout.pack(*body) + data + bytes(padding)


def packet(data: bytes | memoryview) -> tuple[int, memoryview]:
    """Kind and body of a packet from fabricd.  Raises Malformed."""
    view = memoryview(data)
    if len(view) < PACKET.size:
        raise Malformed(f"a packet of {len(view)} bytes")
    kind, zero, length = PACKET.unpack_from(view)
    if zero != 0 or length != len(view):
        raise Malformed(f"a packet of {len(view)} bytes whose header says {length}")
    return kind, view[PACKET.size :]


def records(body: memoryview, count: int) -> Iterator[Record]:
    """The `count` records that fill `body`.  Raises Malformed."""
    at = 0
    for _ in range(count):
        if len(body) - at < RECORD.size:
            raise Malformed("a record cut short")
        kind, length, status, wr_id, time_ps, qp, imm, nbytes = RECORD.unpack_from(body, at)
        private = length - RECORD.size
        if private < 0 or length % 8 or at + length > len(body):
            raise Malformed(f"a record of {length} bytes")
        if kind in (CONNECTED, GROUPED, GROUP_FAILED):
            if not private - 8 < nbytes <= private:
                raise Malformed(f"{nbytes} bytes behind a record, in {private}")
            data = bytes(body[at + RECORD.size : at + RECORD.size + nbytes])
        elif private or not SENT <= kind <= GROUP_FAILED:
            raise Malformed(f"a record of kind {kind} and {length} bytes")
        else:
            data = b""
        yield Record(kind, status, wr_id, time_ps, qp, imm, nbytes, data)
        at += length
    if at != len(body):
        raise Malformed(f"{len(body) - at} bytes behind the last record")
