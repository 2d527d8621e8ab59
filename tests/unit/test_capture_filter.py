"""Captured frames decoded by their headers' standards, and filters over what was decoded."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.base.errors import InputError
from testbed.live.tools import TOOLS
from testbed.live.tools import filter as filters
from testbed.live.tools.packets import Packet, decode, read
from testbed.words.kinds import Wrong
from topologies import build

FABRIC = build("star", {"hosts": 3})
A, B = FABRIC.nics[0].ip, FABRIC.nics[1].ip


def roce(opcode: int, *, dscp: int = 26, ecn: int = 2, qp: int = 17, psn: int = 5, rest: bytes = bytes(8)) -> bytes:
    """Ethernet, IPv4 (RFC 791), UDP, base transport header (InfiniBand's 9.2)."""
    bth = struct.pack(">BBHI I", opcode, 0, 0xFFFF, qp, psn)
    udp = struct.pack(">HHHH", 50_000, 4791, 8 + len(bth) + len(rest), 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, dscp << 2 | ecn, 20 + len(udp + bth + rest), 0, 0x4000, 64, 17, 0,
                     A.packed, B.packed)  # fmt: skip
    return bytes(12) + b"\x08\x00" + ip + udp + bth + rest


def pause(classes: dict[int, int]) -> bytes:
    """IEEE 802.1Qbb: opcode 0x0101, a vector of classes, a time for each."""
    vector = sum(1 << c for c in classes)
    times = b"".join(struct.pack(">H", classes.get(c, 0)) for c in range(8))
    return bytes(12) + b"\x88\x08\x01\x01" + struct.pack(">H", vector) + times + bytes(26)


WRITE, CNP = decode(1000, True, roce(7)), decode(2000, False, roce(0x81, dscp=48, ecn=3, psn=0))
NAK = decode(3000, False, roce(17, rest=bytes([0x60, 0, 0, 1]) + bytes(4)))
PAUSE = decode(4000, False, pause({3: 65535, 4: 0}))


def test_headers_are_decoded() -> None:
    assert (WRITE.src, WRITE.dst, WRITE.protocol, WRITE.dport) == (str(A), str(B), "RRoCE", 4791)
    assert (WRITE.opcode, WRITE.qp, WRITE.psn, WRITE.dscp, WRITE.ecn, WRITE.ttl) == ("WRITE_MIDDLE", 17, 5, 26, 2, 64)
    assert CNP.opcode == "CNP" and CNP.info == "RC CNP"
    assert NAK.info == "RC ACKNOWLEDGE NAK, PSN sequence error"
    assert PAUSE.protocol == "PFC" and PAUSE.info == "Pause class 3: 65535, class 4: resume"
    assert decode(0, True, bytes(20)).protocol == "Ethernet"


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", "WCNP"),
        ("roce", "WCN"),
        ("pfc", "P"),
        ("ce", "C"),
        ("not ip", "P"),
        ("! ip || ecn == CE", "CP"),
        ("roce and not opcode == CNP", "WN"),
        ("psn >= 5 && (dscp == 48 or dscp = 0x1a)", "WN"),
        ("src host h0 and dst h1", "WCN"),
        (f"host {A}", "WCN"),
        ("dst h0", ""),
        ("udp port 4791 and len < 70", "WCN"),
        ("out", "W"),
        ("qp != 17", ""),
        ("ecn == ect0", "WN"),
    ],
)
def test_filters(text: str, passes: str) -> None:
    text = text.replace("udp port", "udp and port")
    test = filters.parse(text, FABRIC)
    assert (
        "".join(name for name, packet in zip("WCNP", (WRITE, CNP, NAK, PAUSE), strict=True) if test(packet)) == passes
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("rocee", "'rocee' is nothing known"),
        ("psn", "a comparison is missing at the end"),
        ("psn 5", "not with '5'"),
        ("psn == x", "'x' is no number"),
        ("opcode == WRITES", "there is no opcode 'WRITES'"),
        ("(roce", ") is missing at the end"),
        ("roce ce", "'ce' does not belong there"),
        ("host h9", "'h9' is no address and no NIC"),
        ("roce and", "a test is missing at the end"),
    ],
)
def test_what_is_wrong_with_a_filter_is_said_by_its_word(text: str, what: str) -> None:
    with pytest.raises(Wrong) as wrong:
        filters.parse(text, FABRIC)
    assert what in wrong.value.what and "roce" in wrong.value.hint


def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    frame = roce(10)
    padded = frame + bytes(-len(frame) % 4)
    body = struct.pack("<IIIII", 0, 0, 123, len(frame), len(frame)) + padded + struct.pack("<HHIHH", 2, 4, 2, 0, 0)
    block = struct.pack("<II", 6, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
    path = tmp_path / "x.pcapng"
    path.write_bytes(block + block[:8])
    (packet,) = read(path)
    assert isinstance(packet, Packet) and (packet.time_ns, packet.out, packet.opcode) == (123, True, "WRITE_ONLY")


@pytest.mark.parametrize("deep", ["(" * 5000, "not " * 5000 + "ip"])
def test_a_filter_is_only_so_deep(deep: str) -> None:
    with pytest.raises(Wrong, match="more than 50"):
        filters.parse(deep, FABRIC)


def test_a_capture_is_refused_that_would_not_end() -> None:
    tool = TOOLS["capture"]
    values = tool.read(["nic:1", "--for", "21ms"], FABRIC)
    with pytest.raises(InputError, match="capture of 21ms of emulated time is too long") as error:
        tool.run(SimpleNamespace(lab=SimpleNamespace(fabric=FABRIC)), **values)  # type: ignore[arg-type]
    assert error.value.hint == "at most --for 20ms"
