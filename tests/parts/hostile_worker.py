"""Workers that break the protocol, beside honest ones that must not notice."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, wait_until
from tests.parts.timing_model import RETH, Model, timed_write

MODEL = Model(Hardware(), 1)
BIG = 2**64 - 1


def raw(op: int, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A command with any header."""
    return struct.pack("<HHI", op, 8 + len(body) if length is None else length, 0) + body


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def sessions(f: BareFabric) -> dict[int, str]:
    return {w["rank"]: w["state"] for w in f.fabricd.request("status")["workers"]}


@contextlib.contextmanager
def beside_honest_ones() -> Iterator[BareFabric]:
    """Ranks 1 and 2 are connected and work on while the test attacks as ranks 0 and 3."""
    with bare_fabric("star", {"hosts": 4}) as f:
        before = descriptors(f.pid)
        pair = f.pair(1, 2)
        yield f
        for _ in range(3):
            took, record = timed_write(pair, 4096)
            assert (took, record.status) == (MODEL.sent(4096, RETH), 0)
        pair.done()
        wait_until(lambda: descriptors(f.pid) == before, "all descriptors to be closed")
        assert sessions(f)[1] == sessions(f)[2] == "done"
