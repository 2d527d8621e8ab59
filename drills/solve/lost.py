"""Lost frames: those that a port counts, and those that nobody counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from drills.solve.diagnosis import Diagnosis
from drills.solve.host import rate
from drills.solve.mending import new_cable
from drills.solve.operator import RECENT_NS, Operator, Row, by_port, by_rank, node_of, number
from topologies.graph.fabric import Cable, End

UNDER_WAY = 12
"""Frames that may be in flight when the counters of both ends are read: at least."""
ON_CABLE_NS, IN_PORT_NS = 500.0, 200.0
"""Of a cable of 100 m, if the plan has no delay; in the ports at its ends."""
ACK_BYTES = 128
LOOKS = 4
"""From look to look lost frames accumulate, frames in flight do not."""
BIN_NS = 10_000.0
BINS = 40
REGULAR = 6  # errors, at least
FRAMES = 8  # in a bin, at least
UNEVEN = 4.0  # variance over mean; 1 if each frame is lost by itself


def damaged(op: Operator) -> Iterator[Diagnosis]:
    """CRC errors grow at the ends of a cable."""
    counts: dict[Cable, dict[str, float]] = defaultdict(dict)
    for row in op.recent("show interfaces errors", of_ns=1_200_000.0):
        cable = op.cable(str(row["IFACE"]))
        if cable is not None and number(row, "RX_CRC") > 0:
            counts[cable][str(row["IFACE"])] = number(row, "RX_CRC")
    for cable, ports in counts.items():
        yield Diagnosis(_pattern(op, ports), f"cable:{cable.name}", new_cable(op, cable))


def _pattern(op: Operator, errors: dict[str, float]) -> str:
    """The class of the loss: every n-th frame, bursts, or independent losses, by the errors over time at the worse
    end."""
    port = max(errors, key=lambda port: errors[port])
    crc = [_counted(op, "errors", port, "RX_CRC", k) for k in range(1, BINS + 1)]
    frames = [_counted(op, "counters", port, "RX_OK", k) + lost for k, lost in enumerate(crc, 1)]
    if not crc[-1]:
        return "loss"
    every = frames[-1] / crc[-1]
    regular = all(abs(lost - n / every) <= 1.01 for lost, n in zip(crc, frames, strict=True))
    if crc[0] < crc[-1] and crc[-1] >= REGULAR and regular:
        return "drop_every"
    lost_in, frames_in = ([now - before for before, now in pairwise([0.0, *counts])] for counts in (crc, frames))
    share = max((lost / n for lost, n in zip(lost_in, frames_in, strict=True) if n >= FRAMES), default=0.0)
    mean = sum(lost_in) / BINS
    spread = sum((lost - mean) ** 2 for lost in lost_in) / BINS / mean
    return "burst_loss" if spread > UNEVEN and share > 0.5 else "loss"


def _counted(op: Operator, view: str, port: str, column: str, bins: int) -> float:
    """In the last so many bins."""
    rows = op.recent(f"show interfaces {view}", of_ns=bins * BIN_NS)
    return next((number(row, column) for row in rows if row["IFACE"] == port), 0.0)


def missing(op: Operator, of_ns: float = RECENT_NS, *, dropped: bool = True) -> dict[str, float]:
    """By port: frames sent less frames that its peer has received or counted as lost; negative for duplicates.

    `of_ns`: of that time, 0 for all of it. A port that has counted nothing in it has no row. `dropped`: the peer's tail
    drops count, too, although some are also counted as received.
    """
    ports, ranks = (
        op.recent(view, of_ns=of_ns) if of_ns else op.rows(view) for view in ("show interfaces counters", "show nics")
    )
    rows: dict[str, Row] = {str(row["IFACE"]): row for row in ports}
    rows |= {op.plan.nics[by_rank(row)].name: row for row in ranks}

    def counted(end: End, of_nic: Sequence[str], of_port: Sequence[str]) -> float:
        nic = end.node in op.plan.nic_by_name
        row = rows.get(end.node if nic else f"{end.node}:{end.port}", {})
        return sum(number(row, column) for column in (of_nic if nic else of_port))

    received = ("RX_OK", "RX_ERR", "RX_DRP") if dropped else ("RX_OK", "RX_ERR")
    return {
        f"{end.node}:{end.port}": counted(end, ["tx_packets_phy"], ["TX_OK"])
        - counted(peer, ("rx_packets_phy", "rx_crc_errors_phy"), received)
        for cable in (op.plan.cables if ports else ())
        for end, peer in ((cable.a, cable.b), (cable.b, cable.a))
    }


def under_way(op: Operator) -> dict[str, float]:
    """By port: how many frames its cable may hold, of the mean size of data there.

    ACKs do not count: there are no more of them than of data.
    """
    sizes: dict[str, float] = {}
    for row in op.rows("show queue counters"):
        size = number(row, "Counter/bytes") / max(1.0, number(row, "Counter/pkts"))
        if size > ACK_BYTES:
            sizes[by_port(row)] = min(size, sizes.get(by_port(row), size))
    least = min(sizes.values(), default=math.inf)
    speed = {str(row["Interface"]): rate(str(row["Speed"])) for row in op.rows("show interfaces status")}
    frames = {}
    for cable in op.plan.cables:
        ends = [f"{end.node}:{end.port}" for end in (cable.a, cable.b)]
        size = min((sizes[port] for port in ends if port in sizes), default=least)
        on_cable_ns = ON_CABLE_NS if cable.delay_ns is None else cable.delay_ns
        holds = max(speed.get(port, 0.0) for port in ends) / 8e9 * (on_cable_ns + IN_PORT_NS)
        frames.update(dict.fromkeys(ends, max(UNDER_WAY, holds / size)))
    return frames


def vanished(op: Operator) -> list[Diagnosis]:
    """TX here, no RX there, and no counter of the loss. If few are missing and a NIC times out, it looks again."""
    for look in range(1, LOOKS + 1):
        rows = op.recent("show nics", of_ns=look * RECENT_NS)
        timeouts = any(number(row, "local_ack_timeout_err") > 0 for row in rows)
        if not timeouts and not any(number(row, "packet_seq_err") > 0 for row in rows):
            return []  # no receiver misses anything: frames are in flight
        if lost := _lost(op, look * RECENT_NS):
            return _where(op, lost)
        if op.stands or not timeouts:
            return []
        op.pass_(RECENT_NS)
    return []


def _lost(op: Operator, of_ns: float) -> dict[str, float]:
    """By port: frames that are missing and cannot be in flight. If the job stands none is in flight."""
    sent, in_flight = missing(op, of_ns), under_way(op)
    most = max([*sent.values(), 0.0])
    return {port: n for port, n in sent.items() if n >= max(1 if op.stands else in_flight[port], 0.2 * most)}


def _where(op: Operator, lost: Mapping[str, float]) -> list[Diagnosis]:
    """A cable, or a switch that loses what it sends on more than one cable."""
    stands = op.stands
    received = {str(r["IFACE"]): number(r, "RX_OK") for r in op.recent("show interfaces counters")}
    cables = dict.fromkeys(cable for port in lost if (cable := op.cable(port)) is not None)
    if len(cables) > 1 and len(set(map(node_of, lost))) == 1:
        return [_silent_switch(op, next(iter(lost)))]
    diagnoses = []
    for cable in cables:  # a dead direction lets nothing pass, a switch all but some flows
        senders = [port for end in (cable.a, cable.b) if (port := f"{end.node}:{end.port}") in lost]
        kind = "loss"
        if stands and len(senders) == 1:
            peer = op.peer(senders[0])
            if received.get(peer, 0.0) or _lets_pass(op, peer):
                return [_silent_switch(op, senders[0])]
            kind = "one_way"
        diagnoses.append(Diagnosis(kind, f"cable:{cable.name}", new_cable(op, cable)))
    return diagnoses


def _lets_pass(op: Operator, port: str) -> bool:
    """Whether a port receives any of a mesh of probes, though none of the job's flows."""
    began = op.time_ns
    if not op.do("probe mesh"):
        return False
    rows = op.recent("show interfaces counters", of_ns=op.time_ns - began)
    return any(number(row, "RX_OK") > 0 for row in rows if row["IFACE"] == port)


def _silent_switch(op: Operator, port: str) -> Diagnosis:
    """The port's switch, or that of its peer if it is a NIC's."""
    switch = node_of(port if op.rank(port) is None else op.peer(port))
    return Diagnosis("drop_hash", f"switch:{switch}", (f"route drain {switch}",))


RULES = (damaged,)
LATER = (vanished,)
