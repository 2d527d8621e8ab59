"""A program at a rank's NIC, as one that uses verbs: a session with its own memory and queue pairs.

A plain client of the worker socket.  Nothing is checked: what the test asks for is sent as it is.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from tests.parts.fabricd_fixture import BareFabric, RawWorker, sealed_memfd
from workloads.verbs import wire

RC, UD = 2, 4  # of ibv_qp_type
RESET, INIT, RTR, RTS, ERR = 0, 1, 2, 3, 6
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
WRITTEN = 1
INLINE = 8
PROGRAM = 1
PIECE = Struct("<QII")

Piece = tuple[int, int, int]
"""Address, bytes, key."""


@dataclass
class Memory:
    """A region: its first byte's address, its key, and its bytes."""

    address: int
    key: int
    bytes: mmap.mmap

    def piece(self, at: int = 0, nbytes: int | None = None, key: int | None = None) -> Piece:
        length = len(self.bytes) - at if nbytes is None else nbytes
        return self.address + at, length, self.key if key is None else key


@dataclass
class Attributes:
    """What MODIFY_QP says, as verbs' programs mostly have it."""

    mtu: int = 5
    timeout: int = 4  # 65.536 us
    retry: int = 7
    rnr_retry: int = 7
    rnr_timer: int = 1  # 10 us
    expected_psn: int = 0
    send_psn: int = 0
    peer: int = 0
    address: int = 0
    flags: int = 0
    dscp: int = 0
    queue: int = 0
    access: int = 15
    reads_out: int = 16
    reads_in: int = 16
    rate: int = 0
    qkey: int = 0

    def command(self, qp: int, state: int) -> bytes:
        return wire.command(
            wire.MODIFY_QP,
            *(
                qp,
                state,
                self.mtu,
                self.timeout,
                self.retry,
                self.rnr_retry,
                self.rnr_timer,
                self.reads_out,
                self.reads_in,
            ),
            *(self.expected_psn, self.send_psn, self.peer, self.address),
            *(self.flags, self.dscp, self.queue, self.access, self.rate, self.qkey),
        )


class Program(RawWorker):
    """A session that has said that it is a program."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, hello=False)
        self.send(wire.command(wire.HELLO, wire.MAGIC, wire.VERSION, PROGRAM))
        _, self.rank, _, _, self.time_ps, self.mtu, _ = wire.WELCOME_BODY.unpack(self.packet(wire.WELCOME))

    def memory(self, nbytes: int, access: int = 15, *, address: int = 0x7F00_0000_0000, domain: int = 1) -> Memory:
        """A region at an address of the program's; its memfd has it at that place modulo 1 MiB."""
        place = address % (1 << 20)
        fd = sealed_memfd(place + nbytes)
        self.send(wire.command(wire.REGISTER, nbytes, address, place, 7, access, domain, 0), fds=[fd])
        cookie, key = wire.REGION_BODY.unpack(self.packet(wire.REGION))
        assert cookie == 7
        within = place % mmap.ALLOCATIONGRANULARITY
        whole = mmap.mmap(fd, within + nbytes, offset=place - within)
        os.close(fd)
        assert not within, "such memory is looked at from its page on"
        return Memory(address, key, whole)

    def queue_pair(self, domain: int = 1, kind: int = RC, shared: int = 0) -> int:
        self.send(wire.command(wire.CREATE_QP, 9, kind, 0, 0, domain, shared, 0, 0))
        cookie, number = wire.QP_BODY.unpack(self.packet(wire.QP))
        assert cookie == 9
        return int(number)

    def send_list(
        self,
        qp: int,
        opcode: int,
        pieces: Sequence[Piece] = (),
        *,
        remote: int = 0,
        rkey: int = 0,
        imm: int = 0,
        wr_id: int = 1,
        flags: int = wire.SIGNALED,
        inline: bytes | None = None,
        compare: int = 0,
        swap: int = 0,
    ) -> bytes:
        data = b"".join(PIECE.pack(*p) for p in pieces) if inline is None else inline
        count = len(pieces) if inline is None else len(inline)
        flags |= INLINE if inline is not None else 0
        return wire.command(
            wire.POST_SEND_LIST, qp, opcode, flags, count, wr_id, remote, rkey, imm, compare, swap, data=data
        )

    def shared_queue(self, domain: int = 1) -> int:
        self.send(wire.command(wire.CREATE_SRQ, 11, domain))
        cookie, number = wire.QP_BODY.unpack(self.packet(wire.QP))
        assert cookie == 11
        return int(number)

    def recv_list(
        self, qp: int, pieces: Sequence[Piece] = (), *, wr_id: int = 2, op: int = wire.POST_RECV_LIST
    ) -> bytes:
        data = b"".join(PIECE.pack(*p) for p in pieces)
        return wire.command(op, qp, len(pieces), wr_id, data=data)


def address_of(f: BareFabric, rank: int) -> int:
    return int(f.fabric.nics[rank].ip)


def couple(f: BareFabric, a: Program, b: Program, domain: int = 1, **attributes: int) -> tuple[int, int]:
    """Two connected queue pairs: of `a` to `b` and of `b` to `a`, by the numbers that they were given."""
    ends = [(a, a.queue_pair(domain), b.rank), (b, b.queue_pair(domain), a.rank)]
    for (program, number, other), (_, peer, _) in zip(ends, reversed(ends), strict=True):
        its = Attributes(**{"peer": peer, "address": address_of(f, other), **attributes})
        program.send(*(its.command(number, state) for state in (INIT, RTR, RTS)))
    return ends[0][1], ends[1][1]
