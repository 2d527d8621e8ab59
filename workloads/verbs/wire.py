"""The bytes on the worker socket: packed commands out, checked packets in (docs/fabricd-protocol.md).

Numbers and layouts are fabricd's own (hardware/wire.py).  Nothing here has state or does I/O, so that a client and a
test server can share the layout and still disagree.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

COMMAND = Struct("<HHI")  # op, length, 0
PACKET = Struct("<HHI")  # kind, 0, total length
RECORD = Struct("<HHIQQIIQ")  # kind, length, status, wr_id, time ps, qp, imm, bytes

MAX_PACKET = 65536  # of commands to fabricd
MAX_PRIVATE = 256
FOREVER = 2**64 - 1
SIGNALED = 1
ALL_ACCESS = 15  # REGISTER: local write, remote write, read and atomic
NETWORK_ONLY = 1  # CONNECT: never the scale-up domain
OWN_CLASS = 2  # CONNECT: DSCP and class are the connection's own
GROUP_ARGS = 8

# tables: written by `python -m hardware.protocol`
MAGIC = 0x31574252
VERSION = 6

HELLO = 1
REGISTER = 2
CONNECT = 3
POST_SEND = 4
POST_RECV = 5
COMPUTE = 6
SPEND = 7
WAIT = 8
SYNC = 9
PROGRESS = 10
BYE = 11
GROUP = 12
POST_OFFLOAD = 13
LEAVE = 14
DEREGISTER = 15
CREATE_QP = 16
MODIFY_QP = 17
DESTROY_QP = 18
POST_SEND_LIST = 19
POST_RECV_LIST = 20
QUERY_PORT = 21
CREATE_SRQ = 22
MODIFY_SRQ = 23
DESTROY_SRQ = 24
POST_SRQ_RECV = 25
MODIFY_REGION = 26
AWAIT_PROGRAMS = 27
PAGES = 28
ALLOC_DM = 29
REGISTER_DM = 30
ALLOC_MW = 31
FORESEE = 32

BODY = {
    # magic 0x31574252, version 6, flags
    HELLO: Struct("<IHH"),
    # length, address, place, cookie, access, domain, 0
    REGISTER: Struct("<QQQIIII"),
    # peer rank, tag, cookie, private length, flags, transport, 0
    CONNECT: Struct("<IIIHHII"),
    # qp, opcode, flags, 0, wr_id, lkey, rkey, local offset, remote offset, length, imm, 0
    POST_SEND: Struct("<IBBHQIIQQQII"),
    # qp, lkey, wr_id, offset, length
    POST_RECV: Struct("<IIQQQ"),
    # wr_id, duration ps, stream, 0
    COMPUTE: Struct("<QQII"),
    # duration ps
    SPEND: Struct("<Q"),
    # records, flags, until ps
    WAIT: Struct("<IIQ"),
    # tag, participants
    SYNC: Struct("<II"),
    # nothing
    PROGRESS: Struct("<"),
    # nothing
    BYE: Struct("<"),
    # name of the kind, tag, cookie, members, 0, arguments of the kind
    GROUP: Struct("<16sIIII8Q"),
    # group, collective, reduction, element, flags, wr_id, key of the input, key of the output, input offset, output
    # offset, elements, arguments
    POST_OFFLOAD: Struct("<IBBBBQIIQQQ4Q"),
    # group, 0
    LEAVE: Struct("<II"),
    # key, 0
    DEREGISTER: Struct("<II"),
    # cookie, type, 0, 0, domain, shared receive queue, 0, 0
    CREATE_QP: Struct("<IBBHIIII"),
    # qp, state, path MTU, timeout, retry count, RNR retry, RNR timer, most READs and atomics of its own under way, of
    # its peer, first PSN to come, first PSN to send, peer's number, peer's address, flags, DSCP, class, access, most
    # kbit/s, Q_Key
    MODIFY_QP: Struct("<IBBBBBBBBIIIIBBBBII"),
    # qp, 0
    DESTROY_QP: Struct("<II"),
    # qp, opcode, flags, count, wr_id, remote address, rkey, imm, compare, swap
    POST_SEND_LIST: Struct("<IBBHQQIIQQ"),
    # qp, count, wr_id
    POST_RECV_LIST: Struct("<IIQ"),
    # cookie, 0
    QUERY_PORT: Struct("<II"),
    # cookie, domain
    CREATE_SRQ: Struct("<II"),
    # srq, limit
    MODIFY_SRQ: Struct("<II"),
    # srq, 0
    DESTROY_SRQ: Struct("<II"),
    # srq, count, wr_id
    POST_SRQ_RECV: Struct("<IIQ"),
    # key, access, domain, 0
    MODIFY_REGION: Struct("<IIII"),
    # programs, 0, until ps
    AWAIT_PROGRAMS: Struct("<IIQ"),
    # key, flags, address, length
    PAGES: Struct("<IIQQ"),
    # length, cookie, 0
    ALLOC_DM: Struct("<QII"),
    # length, offset, key of device memory, cookie, access, domain
    REGISTER_DM: Struct("<QQIIII"),
    # cookie, domain, type, 0
    ALLOC_MW: Struct("<IIII"),
    # chain, kind, flags, key
    FORESEE: Struct("<IHHQ"),
}

WELCOME = 1
REGION = 2
RECORDS = 3
ERROR = 4
QP = 5
PORT = 6

# version, rank, ranks, flags, time ps, mtu, ns that its NIC's PCIe takes one way
WELCOME_BODY = Struct("<IIIIQII")
# cookie, key
REGION_BODY = Struct("<II")
# time ps, count, more, host ps, sent bytes
RECORDS_BODY = Struct("<QIIQQ")
# cookie, number
QP_BODY = Struct("<II")
# cookie, flags, rate bps, mtu, datagrams dropped because of their Q_Key
PORT_BODY = Struct("<IIQII")

SENT = 1
RECEIVED = 2
RECEIVED_IMM = 3
COMPUTED = 4
CONNECTED = 5
SYNCED = 6
GROUPED = 7
OFFLOADED = 8
GROUP_FAILED = 9
GROUP_NOTED = 10
QP_EVENT = 11
RECEIVED_SEND_IMM = 12
RECEIVED_DATAGRAM = 13
RECEIVED_DATAGRAM_IMM = 14
SRQ_LIMIT = 15
RECEIVED_SEND_INV = 16

RECORD_KINDS = frozenset(range(1, 17))
WITH_DATA = frozenset((CONNECTED, GROUPED, GROUP_FAILED, GROUP_NOTED))
"""Records behind which something stands."""

WRITE = 0
WRITE_IMM = 1
SEND = 2
SEND_IMM = 3
READ = 4
COMPARE_SWAP = 5
FETCH_ADD = 6

REDUCTIONS = {
    "sum": 0,
    "min": 1,
    "max": 2,
    "prod": 3,
    "avg": 4,
    "band": 5,
    "bor": 6,
    "bxor": 7,
}
ELEMENTS = {
    "float32": 0,
    "float16": 1,
    "bfloat16": 2,
    "int32": 3,
    "int8": 4,
    "uint8": 5,
    "float8_e4m3fn": 6,
    "float8_e5m2": 7,
}
STATUS = {
    0: "success",
    1: "local length error",
    2: "local queue pair operation error",
    4: "local protection error",
    5: "flushed",
    6: "memory window bind error",
    9: "remote invalid request error",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retries exceeded",
    13: "receiver-not-ready retries exceeded",
}
# end of the tables

_PLAIN = RECORD_KINDS - WITH_DATA


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


_WHOLE = {
    op: Struct(f"{COMMAND.format}{layout.format[1:]}{-(COMMAND.size + layout.size) % 8}x")
    for op, layout in BODY.items()
}
"""Commands with nothing behind their bodies."""


def command(op: int, *body: int | bytes, data: bytes = b"") -> bytes:
    """A command, padded to 8 bytes.  Raises struct.error when a number does not fit its field."""
    if not data:
        whole = _WHOLE[op]
        return whole.pack(op, whole.size, 0, *body)
    layout = BODY[op]
    length = COMMAND.size + layout.size + len(data)
    padding = -length % 8
    return COMMAND.pack(op, length + padding, 0) + layout.pack(*body) + data + bytes(padding)


def packet(data: memoryview) -> tuple[int, memoryview]:
    """Kind and body of a packet from fabricd.  Raises Malformed."""
    if len(data) < PACKET.size:
        raise Malformed(f"a packet of {len(data)} bytes")
    kind, zero, length = PACKET.unpack_from(data)
    if zero != 0 or length != len(data):
        raise Malformed(f"a packet of {len(data)} bytes whose header says {length}")
    return kind, data[PACKET.size :]


def records(body: memoryview, at: int, count: int) -> list[Record]:
    """The `count` records that fill `body` from byte `at` on.  Raises Malformed."""
    parsed = []
    for _ in range(count):
        if len(body) - at < RECORD.size:
            raise Malformed("a record cut short")
        kind, length, *rest = RECORD.unpack_from(body, at)
        if kind in _PLAIN and length == RECORD.size:
            parsed.append(Record(kind, *rest))
        else:
            parsed.append(_with_data(body, at))
        at += length
    if at != len(body):
        raise Malformed(f"{len(body) - at} bytes behind the last record")
    return parsed


def _with_data(body: memoryview, at: int) -> Record:
    kind, length, *rest = RECORD.unpack_from(body, at)
    nbytes, private = rest[-1], length - RECORD.size
    if private < 0 or length % 8 or at + length > len(body):
        raise Malformed(f"a record of {length} bytes")
    if kind not in WITH_DATA:
        raise Malformed(f"a record of kind {kind} and {length} bytes")
    if not private - 8 < nbytes <= private:
        raise Malformed(f"{nbytes} bytes behind a record, in {private}")
    first = at + RECORD.size
    return Record(kind, *rest)._replace(private=bytes(body[first : first + nbytes]))
