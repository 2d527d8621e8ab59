"""RoCEv2 packets made by hand, byte by byte from InfiniBand's and RoCEv2's annexes, and put out at a switch's port."""

from __future__ import annotations

import struct
import zlib

from tests.parts.fabricd_fixture import BareFabric, wait_until

SEND_LAST, SEND_ONLY, SEND_ONLY_IMM = 2, 4, 5
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY, WRITE_ONLY_IMM, READ = 6, 7, 8, 10, 11, 12
ACKNOWLEDGE, NOTIFICATION = 17, 0x81


def _checksum(ip: bytes) -> bytes:
    """Of a header in which it is zero (RFC 791)."""
    words = sum(struct.unpack(">10H", ip))
    return (~(words + (words >> 16)) & 0xFFFF).to_bytes(2)


def packet(
    macs: tuple[str, str], ips: tuple[int, int], qp: int, opcode: int, psn: int, behind: bytes, *, asks: bool = True
) -> bytes:
    """From and to these; `behind` the BTH are extension headers and payload, padded here."""
    pad = -len(behind) % 4
    bth = struct.pack(">BBHII", opcode, 0x40 | pad << 4, 0xFFFF, qp, asks << 31 | psn)
    udp = struct.pack(">HHHH", 0xC000, 4791, 8 + len(bth) + len(behind) + pad + 4, 0)
    total = 20 + len(udp) + len(bth) + len(behind) + pad + 4
    ip = bytearray(struct.pack(">BBHHHBBHII", 0x45, 0, total, 0, 0x4000, 64, 17, 0, *ips))
    ip[10:12] = _checksum(ip)
    ones = bytearray(b"\xff" * 8 + ip + udp + bth)
    for at in (9, 16, 18, 19, 34, 35, 40):  # type of service, TTL, both checksums, and the BTH's reserved byte
        ones[at] = 0xFF
    icrc = zlib.crc32(bytes(ones) + behind + bytes(pad)).to_bytes(4, "little")
    ethernet = b"".join(bytes.fromhex(mac.replace(":", "")) for mac in reversed(macs)) + b"\x08\x00"
    return ethernet + bytes(ip) + udp + bth + behind + bytes(pad) + icrc


def what_is_left(frame: bytes, left: int, dscp: int) -> bytes:
    """Of a frame that a switch trims to so many bytes."""
    ip = bytearray(frame[14:34])
    ip[1:4], ip[10:12] = bytes([dscp << 2]) + (left - 14).to_bytes(2), bytes(2)
    ip[10:12] = _checksum(ip)
    return frame[:14] + bytes(ip) + frame[34:38] + (left - 34).to_bytes(2) + frame[40:left]


def reth(offset: int, key: int, length: int) -> bytes:
    return struct.pack(">QII", offset, key, length)


def aeth(syndrome: int, number: int = 0) -> bytes:
    return (syndrome << 24 | number).to_bytes(4)


def put_out(f: BareFabric, switch: str, to: str, frame: bytes) -> None:
    """As a controller does; it has come out of Open vSwitch when this returns."""
    before = f.counters()["fidelity"]["flagged"]
    out = f"in_port=controller,packet={frame.hex()},actions=output:{f.port_to(switch, to)}"
    f.switch.run("ovs-ofctl", "-OOpenFlow13", "packet-out", f.bridge(switch), out)
    wait_until(lambda: f.counters()["fidelity"]["flagged"] > before, "the packet-out to come out")
