"""Two programs with a queue pair and a region each: one acts, the other rests."""

from __future__ import annotations

import random
from typing import Any

from tests.parts.fabricd_fixture import BareFabric
from tests.parts.verbs_program import Program, couple
from workloads.verbs import wire

BYTES, REST_PS = 1 << 16, 10**12


class Ends:
    """`a` acts, `b` rests; each has a region of BYTES, of which `b`'s may be read and changed."""

    def __init__(self, f: BareFabric, rights: int = 15, **attributes: int) -> None:
        self.a, self.b = Program(f.worker_socket(0)), Program(f.worker_socket(1))
        self.qp, self.qp_b = couple(f, self.a, self.b, **attributes)
        self.near, self.far = self.a.memory(BYTES), self.b.memory(BYTES, rights, address=0x5000)
        self.far.bytes[:] = random.Random(3).randbytes(BYTES)
        self.b.begin_wait(10_000, REST_PS)

    def read(self, at: int, nbytes: int, to: int = 0, **how: Any) -> bytes:
        remote = {"remote": self.far.address + at, "rkey": self.far.key, **how}
        return self.a.send_list(self.qp, wire.READ, [self.near.piece(to, nbytes)], **remote)

    def atomic(self, opcode: int, at: int, compare: int, swap: int = 0, to: int = 0, **how: Any) -> bytes:
        remote = {"remote": self.far.address + at, "rkey": self.far.key, "compare": compare, "swap": swap, **how}
        return self.a.send_list(self.qp, opcode, [self.near.piece(to, 8)], **remote)

    def done(self, count: int, *posts: bytes) -> list[wire.Record]:
        records = self.a.wait(count, wire.FOREVER, *posts)
        while len(records) < count:
            records += self.a.wait(count - len(records))
        return records

    def over(self) -> None:
        for p in (self.b, self.a):  # who rests first: or the clock would run on to its end
            p.socket.close()
