"""Frames captured at a NIC's port and sampled rates, to compare models with."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.frames import series
from tests.parts.fabricd_fixture import BareFabric

if TYPE_CHECKING:
    import pandas as pd

ACK, CNP, CREDIT, REQUEST = 17, 0x81, 0xC4, 0xC5
IP = 14


@dataclass(frozen=True)
class Hop:
    seconds: float
    tx_bytes: int
    queue_bytes: int
    rate_bps: float


@dataclass(frozen=True)
class WireFrame:
    """A RoCE frame as it left (first bit) or came in (last bit)."""

    time_ns: int
    out: bool
    opcode: int
    psn: int
    dscp: int
    ecn: int
    ttl: int
    dst_qp: int
    syndrome: int = 0
    sent_ns: float | None = None
    seen: int = 0
    marked: int = 0
    hops: list[Hop] = field(default_factory=list)
    msn: int = 0
    sack: tuple[int, int] | None = None
    """The first packet of an acknowledgement's bitmap, and its bits as a number."""
    macs: tuple[str, str] = ("", "")
    """To, and from."""
    source_port: int = 0
    becn: bool = False
    asks: bool = False
    reserved: int = 0
    """The seven bits behind that which asks to be acknowledged."""
    reth: tuple[int, int, int] | None = None
    """Address, key, length."""
    imm: int | None = None
    credit: tuple[int, ...] | None = None
    """Of a credit: what was granted so far. Of data and requests: the target, what all needs, what has not left."""


def frames(path: Path) -> list[WireFrame]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        kind, total = struct.unpack_from("<II", data, at)
        if kind == 6:
            high, low, length = struct.unpack_from("<III", data, at + 12)
            frame = data[at + 28 : at + 28 + length]
            (flags,) = struct.unpack_from("<I", data, at + 28 + (length + 3) // 4 * 4 + 4)
            if frame[12:14] == b"\x08\x00":
                found.append(_frame(high << 32 | low, flags & 3 == 2, frame))
        at += total
    return found


def _frame(time_ns: int, out: bool, frame: bytes) -> WireFrame:
    length = int.from_bytes(frame[IP + 2 : IP + 4])
    bth, behind = frame[IP + 28 :], frame[IP + length :]
    more: dict[str, Any] = {}
    credit = behind
    if behind[:1] == b"T":
        room, hops, _, seen, marked, sent_ps = struct.unpack_from(">BBBHHQ", behind, 1)
        behind, credit = behind[: 16 + 16 * room], behind[16 + 16 * room :]
        assert len(behind) == 16 + 16 * room
        more = {"seen": seen, "marked": marked, "sent_ns": sent_ps / 1000, "hops": [
            Hop(t * 256e-12, tx, queue, mbps * 1e6)
            for t, tx, queue, mbps in (struct.unpack_from(">4I", behind, 16 + 16 * i) for i in range(hops))
        ]}  # fmt: skip
    if credit[:1] == b"C":
        more["credit"] = struct.unpack(">4xIII", credit)
    if bth[0] in (CREDIT, REQUEST):
        target, known, end, rest = struct.unpack_from(">IIII", bth, 12)
        more["credit"] = (target,) if bth[0] == CREDIT else (target, end, rest, known)
    if bth[0] == ACK and length > 20 + 8 + 12 + 4 + 4:
        bitmap = bth[16 : length - 28 - 4]
        more["sack"] = (int.from_bytes(bitmap[:4]), int.from_bytes(bitmap[4:], "little"))
    if bth[0] in (6, 10, 11):
        more["reth"] = struct.unpack_from(">QII", bth, 12)
    if bth[0] in (9, 11):
        (more["imm"],) = struct.unpack_from(">I", bth, 28 if bth[0] == 11 else 12)
    return WireFrame(
        time_ns, out, bth[0], int.from_bytes(bth[9:12]), frame[IP + 1] >> 2, frame[IP + 1] & 3, frame[IP + 8],
        int.from_bytes(bth[5:8]), bth[12] if bth[0] == ACK else 0,
        msn=int.from_bytes(bth[13:16]) if bth[0] == ACK else 0, macs=(frame[:6].hex(":"), frame[6:12].hex(":")),
        source_port=int.from_bytes(frame[IP + 20 : IP + 22]), becn=bool(bth[4] & 0x40),
        asks=bth[8] >> 7 > 0, reserved=bth[8] & 127, **more,
    )  # fmt: skip


@contextmanager
def watched(f: BareFabric, port: str, period_ns: float = 1000) -> Iterator[dict[str, Any]]:
    """Afterwards: `frames` at that port, and every series of results.frames.series, sampled at that period."""
    result: dict[str, Any] = {}
    capture, samples = f.directory / "seen.pcapng", f.directory / "samples"
    f.fabricd.request("capture", port=port, path=str(capture))
    places = f.fabricd.request("sample", path=str(samples), period_ns=period_ns)
    yield result
    f.fabricd.request("capture_stop", path=str(capture))
    f.fabricd.request("sample_stop")
    result.update(series.read(samples, places), frames=frames(capture))


def of_rank(frame: pd.DataFrame, rank: int, value: str) -> list[tuple[float, float]]:
    """(time, value) of one rank's queue pair that sends."""
    rows = frame[frame["rank"] == rank]
    return list(zip(rows["time_ns"], rows[value], strict=True))
