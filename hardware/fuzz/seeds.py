"""Inputs to start from: one for each thing that a protocol knows, so that the fuzzers need not find them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence

from hardware.cc import CONTROLS, Setting

PROTOCOL = 6  # of workers
MULTIPATH_PARAMS: dict[str, dict[str, float]] = {
    "random": {},
    "round": {},
    "bitmap": {"mark": 1, "loss": 255, "most": 255, "saturated": 0.5},
    "reps": {"buffer": 8, "freeze_on": 0, "freeze_ns": 1000, "explore": 4},
    "plb": {"threshold": 0.5, "rounds": 3, "idle_rounds": 1, "suspend_ns": 1000},
}
SETTING = Setting(line_rate_bps=400e9, base_rtt_ns=4000, mtu=1024)


def _paths(policy: str, params: object, rank: int) -> dict[str, object]:
    """A NIC that sprays, and places what comes in any order or not."""
    values = {
        "multipath": {"policy": policy, "entropies": 16384 >> 7 * rank, "params": params},
        "recovery": "selective_repeat",
        "ordering": ("any", "in_order")[rank],
        **{"sack_bits": 128, "sack_every": 1, "reorder_packets": 64, "loss_after_ns": 5000, "first_psn": 16777214},
    }
    return {
        "op": "inject",
        "fault": f"paths {policy}",
        "primitive": "params",
        "nic": rank,
        "for_ns": 9000,
        "values": values,
    }


def _frame_faults(*effects: str) -> Iterator[dict[str, object]]:
    common = {"op": "inject", "primitive": "frames", "ports": ["h0:1", "sw0:2"], "dscp": 0}
    return ({**common, "fault": effect, "effect": effect} for effect in effects)


CONTROL_REQUESTS: tuple[dict[str, object], ...] = (
    {"id": 1, "op": "status"},
    {"id": "x", "op": "start", "ranks": [0, 1, 2]},
    {"op": "counters"},
    {"op": "cable", "cable": "sw0-h0", "up": False, "at_ns": 1000},
    {"op": "cable", "cable": "h1-sw0", "rate_bps": 1e9, "delay_ns": 0.5},
    {"op": "cable", "cable": "sw0-h0", "up": True},
    {"op": "capture", "port": "sw0:1", "path": "a"},
    {"op": "capture", "port": "h0:2", "path": "a"},
    {"op": "capture_stop", "path": "a"},
    {"id": [None, {"a": 1}], "op": "quiesce"},
    {"id": 2, "op": "carried_out"},
    {"op": "subscribe", "settles": True},
    {"op": "subscribe", "settles": True, "acts": "controller"},
    {"op": "settled", "event": 1},
    {
        "op": "inject",
        "fault": "a",
        "primitive": "frames",
        "ports": ["h0:1", "sw0:1"],
        "effect": "drop",
        "select": {"share": 0.5},
        "match": {"classes": [3], "opcodes": ["CNP"], "src_rank": 0, "qp": 17, "dscp": 26},
    },
    {
        "op": "inject",
        "fault": "b",
        "primitive": "frames",
        "ports": ["h0:1"],
        "effect": "delay",
        "delay_ns": 10,
        "jitter_ns": 5,
        "reorder": True,
        "select": {"burst": {"to_bad": 0.1, "to_good": 0.5}},
        "at_ns": 5,
        "for_ns": 9,
    },
    {
        "op": "inject",
        "fault": "c",
        "primitive": "params",
        "switch": "sw0",
        "for_ns": 5,
        "every_ns": 10,
        "values": {"buffer_bytes": 1, "dscp": {"26": 0}, "ecn": {"3": None}, "watchdog": {"detect_ns": 1}},
    },
    {"op": "inject", "fault": "d", "primitive": "params", "cable": "sw0-h0", "values": {"up": False, "mtu": 64}},
    {
        "op": "inject",
        "fault": "e",
        "primitive": "params",
        "nic": 0,
        "values": {"storm": [3], "frozen": True, "slow": 2},
    },
    {"op": "inject", "fault": "f", "primitive": "params", "port": "sw0:1", "values": {"pfc_rx": False}},
    *_frame_faults("corrupt", "corrupt_silent", "leak_credits", "duplicate", "set_dscp", "clear_ecn"),
    {
        "op": "inject",
        "fault": "m",
        "primitive": "frames",
        "ports": ["h0:1"],
        "effect": "drop",
        "select": {"meter": {"rate_bps": 1e9, "burst_bytes": 2000}},
    },
    {"op": "inject", "fault": "k", "primitive": "params", "nic": 1, "values": {"pcie_rate_bps": 2e10}},
    *(
        {
            "op": "inject",
            "fault": name,
            "primitive": "params",
            "nic": 0,
            "at_ns": 2000,
            "for_ns": 3000,
            "values": {"cc": control.in_fabricd(control.values(SETTING, {})), "recovery": "selective_repeat"},
        }
        for name, control in CONTROLS.items()
    ),
    *(_paths(policy, params, rank) for rank in (0, 1) for policy, params in MULTIPATH_PARAMS.items()),
    {"op": "inject", "fault": "n", "primitive": "params", "nic": 0, "values": {"multipath": None}},
    {
        **{"op": "inject", "fault": "o", "primitive": "params", "switch": "sw0"},
        "values": {
            "adaptive": {
                **{"policy": "two_choices", "bands": 8, "every_ns": 100, "flowlet_gap_ns": 10},
                **{"flowlet_entries": 64, "local_repair": True},
            }
        },
    },
    {"op": "paths"},
    {"op": "inject", "fault": "j", "primitive": "params", "control": True, "values": {"reaction_ns": 5}},
    {"op": "inject", "fault": "g", "primitive": "swap", "cables": ["sw0-h0", "h1-sw0"]},
    {"op": "inject", "fault": "h", "primitive": "act", "to": "controller", "spec": {}},
    {"op": "inject", "fault": "i", "primitive": "traffic", "flows": [[0, 1, 20000, 0], [2, 1, 20000, 0], [1, 0, 1, 3]]},
    {"op": "traffic_results", "fault": "i"},
    {"op": "heal", "fault": "a"},
    {"op": "ask_controller"},
    {"op": "transports", "transports": [{"cc": {"algorithm": "dctcp"}, "sack_bits": 64}, {"recovery": "go_back_n"}]},
    {"op": "next_job"},
    {
        "op": "accelerator_program",
        "switch": "sw0",
        "job": 7,
        "slots": 2,
        "group_ip": 4009754631,
        "children": [{"ip": 1}, {"ip": 2, "accelerator": True}],
        "parent": {"ip": 3, "child": 1},
    },
    {
        "op": "accelerator_program",
        "switch": "sw0",
        "job": 8,
        "shared": True,
        "group_ip": 4009754632,
        "next_ip": 167772161,
        "ranks": [1, 2],
        "window": 4,
        "age_ns": 100000,
    },
    {"op": "settled", "event": 1, "job": {"slots": 4, "parents": [[3323068419, 0], [3323068419, 1], [3323068419, 2]]}},
    {"op": "settled", "event": 1, "job": {"refused": "no"}},
    {"op": "sample", "path": "a", "period_ns": 100},
    {"op": "sample_stop"},
    {"op": "faults"},
    {"op": "stop"},
)


def worker_seeds() -> Iterator[bytes]:
    """Steps of fuzz_worker.c: what, then for 64..127 a raw packet behind its length, for more a few bytes a command.

    The first byte: 1, ranks are connected; 2, the fabric is congested.
    """
    yield bytes([1, 3])
    long = struct.pack("<HHIIBBHQIIQQQII", 4, 64, 0, 16, 0, 1, 0, 5, 1, 1, 0, 0, 60000, 42, 0)
    for setting in (1, 3):  # enough at once for marks, pauses and a watchdog
        yield bytes([setting]) + b"".join(_raw(rank, long * 4) for rank in (0, 1, 2)) + bytes([7] * 40)
    for op in range(13):  # cooked: op, and the bytes that its fields are made of
        for fields in ((0, 0, 0), (1, 1, 1), (0, 129, 2, 0, 4), (2, 2, 255, 7, 15), (200, 1, 64, 14, 14)):
            yield bytes([1, 128 | op % 3, op, *fields, 3, 128, 8, 1, 1, 0, 10])
            yield bytes([0, 160, op, *fields, 7])
    for at in range(16):  # ranks are connected; each post holds but for one offset, or one length, of every odd size
        for length in (65, 66, 67, 64 + at):  # also rkey 1
            yield bytes([1, 128, 4, 66, at % 3, length, at, at, 8, 1, 1, 0, 7])  # on queue pair 16, lkey 1
            yield bytes([1, 129, 5, 66, 1, length, at, 8, 1, 1, 0, 128, 4, 66, 2, 66, 0, 0, 8, 1, 1, 0, 7])
    hello = struct.pack("<HHIII", 1, 16, 0, 0x31574252, PROTOCOL)
    register = struct.pack("<HHIQII", 2, 24, 0, 65536, 7, 0)
    connect = struct.pack("<HHIIIIHH4x", 3, 32, 0, 1, 5, 9, 0, 0)
    send = struct.pack("<HHIIBBHQIIQQQII", 4, 64, 0, 16, 1, 1, 0, 5, 1, 1, 0, 0, 5000, 42, 0)
    receive = struct.pack("<HHIIIQQQ", 5, 40, 0, 16, 1, 7, 0, 6000)
    compute = struct.pack("<HHIQQ", 6, 24, 0, 1, 1000)
    spend = struct.pack("<HHIQ", 7, 16, 0, 1000)
    wait = struct.pack("<HHIIIQ", 8, 24, 0, 1, 0, 2**64 - 1)
    sync = struct.pack("<HHIII", 9, 16, 0, 1, 2)
    progress, bye = struct.pack("<HHI", 10, 8, 0), struct.pack("<HHI", 11, 8, 0)
    pairs = (connect + wait, send + wait, receive + send, compute + spend, sync + wait)
    on_stream = struct.pack("<HHIQQII", 6, 32, 0, 1, 1000, 0, 0) + struct.pack("<HHIQQII", 6, 32, 0, 2, 1000, 1, 0)
    foresee = struct.pack("<HHIIHHQ", 32, 40, 0, 0, 4, 0, 1) + spend + struct.pack("<HHIIHHQ", 32, 24, 0, 0, 4, 1, 2)
    message = struct.pack("<HHIIHHQ", 32, 24, 0, 1, 3, 0, 16 << 32 | 42)
    wait_on = struct.pack("<HHIIIQ", 8, 24, 0, 1, 4, 2**64 - 1)
    beforehand = (on_stream + foresee + message + wait_on, foresee + foresee, message + wait_on)
    for packet in (hello, register, *pairs, *beforehand, progress):
        yield b"\0" + _raw(0, packet) + _raw(1, packet) + b"\7"
    yield b"\1" + _raw(1, receive * 4 + wait) + b"\7" + _raw(0, send * 3 + wait) + b"\7\7\7" + _raw(2, bye)
    group = struct.pack("<HHI16sIIII", 12, 120, 0, b"aggregate", 4, 9, 3, 0)
    group += struct.pack("<8QIIII", 4, 16, 20_000_000, 2, 0, 0, 0, 0, 0, 1, 2, 0)
    offload = struct.pack("<HHIIBBBBQIIQQQ4Q", 13, 88, 0, 1, 0, 0, 0, 0, 5, 1, 1, 0, 4096, 300, 0, 0, 0, 0)
    leave = struct.pack("<HHIII", 14, 16, 0, 1, 0)
    yield b"\1" + b"".join(_raw(rank, group + wait) for rank in range(3)) + bytes([7] * 6)
    for element in range(5):
        post = offload[:14] + bytes([element]) + offload[15:]
        yield b"\5" + b"".join(_raw(rank, post + wait) for rank in range(3)) + bytes([7] * 30) + _raw(0, leave)
        yield b"\x0d" + b"".join(_raw(rank, post + wait) for rank in range(3)) + bytes([7] * 30) + _raw(0, leave)
        yield b"\5" + _raw(0, post + wait) + bytes([7] * 4) + _raw(1, post + wait) + b"\77\2" + bytes([7] * 30)
    yield b"\1" + _raw(0, send) + b"\3\77\1" + _raw(0, send + wait) + b"\7\7"  # 63: a rank dies


def _raw(rank: int, packet: bytes) -> bytes:
    return bytes([64 | rank]) + struct.pack("<H", len(packet)) + packet


def control_seeds() -> Iterator[bytes]:
    """Requests as they are on the wire, behind a first byte and the size of each piece.

    The first byte: 1, ranks are at work; 2, the fabric is congested.
    """
    lines = [json.dumps(request).encode() + b"\n" for request in CONTROL_REQUESTS]
    for line in lines:
        yield b"\1\xff" + line
        yield b"\0\0" + line
        yield b"\3\xff" + line
    for setting in (b"\1", b"\3"):
        yield setting + b"\xff" + b"".join(lines[:-1])
    yield b"\1\xff" + b'{"op": "\\u0000"}\n[[[]]]\n{}\n\n"\xff'


def frame_seeds() -> Iterator[bytes]:
    """RoCE frames of every opcode, and steps of fuzz_frame.c."""
    for opcode in (0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 17, 100, 101, 0x81, 0xC4, 0xC5, 0xC6):
        frame = _roce(opcode)
        yield frame
        yield frame[:53]
        yield b"\0" + bytes([2]) + struct.pack("<H", len(frame)) + frame
        yield b"\1" + bytes([3]) + struct.pack("<H", len(frame)) + frame + bytes([1, 0, 4])
        for flags in (1, 4, 5, 8, 16, 64, 129):
            yield bytes([200, 1, 0, opcode, flags, 0, 3, 5, 31, 10, 0, 1, 1, opcode, flags, 1, 2, 2, 96, 200, 4])
    for opcode in (32 | 6, 32 | 7, 32 | 10, 32 | 17):  # trimmed, in turn and ahead, and twice; then NAKs that say so
        for ahead in (0, 1, 5, 255):
            step = bytes([1, 0, opcode, 5, ahead, 1, 0, 0, 0, 127, 130])
            yield bytes([200]) + step + step + bytes([4])
            yield bytes([1]) + step + bytes([1, 1, 17, 4, ahead, 1, 0, 0, 0, 127, 0, 4, 12])
    for flags in (1, 0, 2, 3, 17, 5, 9, 33):  # of an offload: contributions of all ranks, results, and what is neither
        steps = [bytes([65, flags, who, 0, 16, who, 16, 0, 130, 0]) for who in range(3)]
        yield bytes([32, 65, 65]) + b"".join(steps) + bytes([4, 4]) + b"".join(steps) + bytes([12])
    for flags in (1, 0, 2, 3, 5, 9, 17, 33):  # likewise by best effort: partial sums and sums of numbers 0 to 5
        for element in (0, 3):  # float32, which begins without elements, and int32
            at = [(who, number, 16 if element else 0) for number in (0, 1, 4, 0) for who in (1, 2, 0)]
            steps = [bytes([65, flags, w, 0, number, n, 130, 130, 8 * (w == 2), 6]) for w, number, n in at]
            yield bytes([48 | element, 4]) + b"".join(steps) + bytes([4, 12]) + b"".join(steps[::-1]) + bytes([12])
    for setting in (0, 1, 2, 66, 200):
        yield bytes([setting, 4, 3, 0, 0, 2, 0, 1, 10, 0, 255, 0, 4, 3, 0, 0, 1, 0, 0, 12])


def _roce(opcode: int) -> bytes:
    extension = bytes(16) if opcode in (6, 10, 11) else b""
    extension += bytes(4) if opcode in (9, 11, 17) else b""
    bth = struct.pack(">BBHII", opcode, 0x40, 0xFFFF, 16, 1 << 31)
    udp = struct.pack(">HHHH", 0xC000, 4791, 8 + len(bth) + len(extension) + 8 + 4, 0)
    total = 20 + 8 + len(bth) + len(extension) + 8 + 4
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, total, 0, 0x4000, 64, 17, 0, 0x0A000001, 0x0A000002)
    mac = bytes.fromhex("02000a000001" + "02000a000000" + "0800")
    return mac + ip + udp + bth + extension + bytes(8) + bytes(4)


def multicast_seeds() -> Iterator[bytes]:
    """Steps of fuzz_multicast.c: 1 a request of a rank, 2 a datagram, 0 events."""
    arm_all, arm_of = 128, 0  # all members have a part, or one
    for setting in (0, 2, 4):
        for what in (arm_all, arm_of):
            arms = b"".join(bytes([1, rank, what, 0, 0, 100, 1]) + bytes([0] * (what == arm_of)) for rank in range(3))
            starts = b"".join(bytes([1, rank, 1, 0, 0, 0, 1, 100, 3]) for rank in range(3))
            came = b"".join(bytes([2, rank, 64 | sender, chunk, 0]) for rank in range(3) for sender in range(3)
                            for chunk in range(15))  # fmt: skip
            yield bytes([setting]) + arms + bytes([28]) + starts + bytes([28, 28]) + came + bytes([28] * 8)
            yield bytes([setting]) + arms + bytes([28]) + starts + came + arms + came
            yield bytes([setting]) + came + arms + starts + bytes([28] * 12)
    for flags in (1, 2, 4, 8, 16, 32, 64, 128):
        yield (
            bytes([0])
            + bytes([1, 1, 0, 0, 0, 100, 1, 0, 28])
            + bytes([2, 1, 64, 0, flags, 1, 2, 3, 4]) * 3
            + bytes([28])
        )


def ring_seeds() -> Iterator[bytes]:
    """Steps of fuzz_ring.c: 1 a request of a rank, 2 a packet, 0 events; 252 a rank dies, 248 leaves."""
    for setting in (0, 4, 8, 12, 2, 32, 64, 96, 98):  # elements, congested, optimizers, compression
        for collective in range(4):
            posts = b"".join(bytes([1, rank, 16 | collective, 32]) for rank in range(3))
            few = b"".join(
                bytes([1, rank, collective, op, count])
                for op in range(5)
                for count in (0, 40, 255)
                for rank in range(3)
            )
            yield bytes([setting]) + posts + bytes([28] * 30)
            yield bytes([setting]) + few + bytes([28] * 40)
            yield bytes([setting]) + posts + bytes([28, 252, 1]) + bytes([28] * 30)
            yield (
                bytes([setting])
                + posts[:4]
                + bytes([28] * 4)
                + posts[4:]
                + bytes(
                    [28] * 8,
                )
                + bytes([248, 0, 248, 1, 248, 2])
            )
        for flags in (0, 1, 3, 4, 8, 16, 32, 63):
            strange = bytes([2, 1, flags, 1, 1, 2, 3])
            yield bytes([setting, 1, 1, 0, 32]) + strange * 8 + bytes([28] * 10)
            yield bytes([setting, 1, 1, 2, 32, 1, 0, 2, 32, 28]) + strange * 8 + bytes([28] * 10)
    for odd in (64, 128, 192, 255):
        yield bytes([0, 1, 0, 224, odd, 250, 201, 3, 0, 28])


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "worker": worker_seeds,
    "control": control_seeds,
    "frame": frame_seeds,
    "multicast": multicast_seeds,
    "ring": ring_seeds,
}
DICTIONARY: dict[str, Sequence[str]] = {
    "control": sorted({str(word) for request in CONTROL_REQUESTS for pair in request.items() for word in pair}),
}
