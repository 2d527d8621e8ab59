"""Captured frames, read from fabricd's pcapng files and decoded: Ethernet, PFC, IPv4, UDP, RoCEv2."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

PACKET = 6
_OUT = 2
ECN = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")
ROCE_PORT = 4791
_ACK = 17
_NAKS = {0: "PSN sequence error", 1: "invalid request", 2: "remote access error", 3: "remote operational error"}
OPCODES = {
    0: "SEND_FIRST", 1: "SEND_MIDDLE", 2: "SEND_LAST", 3: "SEND_LAST_IMM", 4: "SEND_ONLY", 5: "SEND_ONLY_IMM",
    6: "WRITE_FIRST", 7: "WRITE_MIDDLE", 8: "WRITE_LAST", 9: "WRITE_LAST_IMM", 10: "WRITE_ONLY",
    11: "WRITE_ONLY_IMM", 12: "READ_REQUEST", 13: "READ_RESPONSE_FIRST", 14: "READ_RESPONSE_MIDDLE",
    15: "READ_RESPONSE_LAST", 16: "READ_RESPONSE_ONLY", 18: "ATOMIC_ACKNOWLEDGE", 19: "COMPARE_SWAP",
    20: "FETCH_ADD", 22: "SEND_LAST_INV", 23: "SEND_ONLY_INV", _ACK: "ACKNOWLEDGE",
    100: "UD_SEND_ONLY", 101: "UD_SEND_ONLY_IMM", 0x81: "CNP",
    0xC0: "CONTRIBUTE", 0xC1: "RESULT", 0xC2: "MULTICAST",
    0xC3: "PARTIAL", 0xC4: "CREDIT", 0xC5: "REQUEST", 0xC6: "READ_ACK",
}  # fmt: skip
OPCODES |= {0x20 | number: f"UC_{name}" for number, name in OPCODES.items() if number < 12}
"""Those of connections and datagrams, the notification, and what fabricd's accelerators and NICs use."""


@dataclass(frozen=True)
class Packet:
    """One frame; what it does not have is None."""

    time_ns: int
    out: bool  # sent by the port, otherwise received
    data: bytes
    src: str = ""
    dst: str = ""
    protocol: str = "Ethernet"
    sport: int | None = None
    dport: int | None = None
    dscp: int | None = None
    ecn: int | None = None
    ttl: int | None = None
    opcode: str | None = None
    qp: int | None = None
    psn: int | None = None
    info: str = ""

    @property
    def length(self) -> int:
        """Without FCS."""
        return len(self.data)


def read(path: Path) -> Iterator[Packet]:
    """The packets of a file that fabricd has written, in order."""
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        kind, total = struct.unpack_from("<II", data, at)
        if kind == PACKET:
            _, high, low, captured, _ = struct.unpack_from("<IIIII", data, at + 8)
            frame = data[at + 28 : at + 28 + captured]
            options = at + 28 + (captured + 3) // 4 * 4
            flags = struct.unpack_from("<HHI", data, options)[2]
            yield decode(high << 32 | low, flags & 3 == _OUT, frame)
        at += total


def decode(time_ns: int, out: bool, frame: bytes) -> Packet:
    mac: dict[str, Any] = {"src": _mac(frame[6:12]), "dst": _mac(frame[:6])}
    kind = int.from_bytes(frame[12:14], "big")
    if kind == 0x8808 and len(frame) >= 34:
        return Packet(time_ns, out, frame, **mac, protocol="PFC", info=_pause(frame))
    if kind == 0x0806:
        return Packet(time_ns, out, frame, **mac, protocol="ARP")
    if kind != 0x0800 or len(frame) < 34:
        return Packet(time_ns, out, frame, **mac, info=f"type 0x{kind:04x}")
    return _ip(time_ns, out, frame)


def _mac(raw: bytes) -> str:
    return ":".join(f"{byte:02x}" for byte in raw)


def _pause(frame: bytes) -> str:
    """Which classes it pauses, for how many quanta; 0 lets them go on."""
    classes = int.from_bytes(frame[16:18], "big")
    quanta = (int.from_bytes(frame[18 + 2 * c : 20 + 2 * c], "big") for c in range(8))
    texts = [f"class {c}: {q if q else 'resume'}" for c, q in enumerate(quanta) if classes >> c & 1]
    return "Pause " + ", ".join(texts)


def _ip(time_ns: int, out: bool, frame: bytes) -> Packet:
    tos, ttl, protocol = frame[15], frame[22], frame[23]
    common: dict[str, Any] = {
        "src": str(IPv4Address(frame[26:30])), "dst": str(IPv4Address(frame[30:34])),
        "dscp": tos >> 2, "ecn": tos & 3, "ttl": ttl,
    }  # fmt: skip
    at = 14 + (frame[14] & 15) * 4
    if protocol not in (6, 17) or len(frame) < at + 8:
        name = {1: "ICMP", 2: "IGMP"}.get(protocol, "IPv4")
        return Packet(time_ns, out, frame, **common, protocol=name, info=f"protocol {protocol}")
    sport, dport = struct.unpack_from(">HH", frame, at)
    ports = {**common, "sport": sport, "dport": dport}
    if protocol == 17 and dport == ROCE_PORT and len(frame) >= at + 20:
        return Packet(time_ns, out, frame, **ports, protocol="RRoCE", **_roce(frame, at + 8))
    name = "UDP" if protocol == 17 else "TCP"
    return Packet(time_ns, out, frame, **ports, protocol=name, info=f"{sport} > {dport}")


def _roce(frame: bytes, at: int) -> dict[str, Any]:
    code = frame[at]
    opcode = OPCODES.get(code, f"opcode 0x{code:02x}")
    qp, psn = int.from_bytes(frame[at + 5 : at + 8], "big"), int.from_bytes(frame[at + 9 : at + 12], "big")
    info = f"RC {opcode}"
    if code == _ACK and len(frame) > at + 12:
        syndrome = frame[at + 12]
        if syndrome >> 5 == 3:
            info += f" NAK, {_NAKS.get(syndrome & 31, syndrome & 31)}"
        elif syndrome >> 5 == 1:
            info += " RNR NAK"
    return {"opcode": opcode, "qp": qp, "psn": psn, "info": info}
