"""PFC: pause storms, pauses that are ignored, buffers that are too small; credits that are lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import new_cable
from drills.solve.operator import Operator, by_rank, node_of, number, sums

MORE = 3.0
FEW = 20
FEWEST = 3


def _sent(op: Operator) -> dict[str, float]:
    """XOFFs by port, of all lossless classes."""
    return sums(op.recent("show pfc", "tx"), lambda row: str(row["Port Tx"]), "PFC3", "PFC4")


def storm(op: Operator) -> list[Diagnosis]:
    """The job stands, and a NIC pauses its switch."""
    if not op.stands:
        return []
    sent = {port: n for port, n in _sent(op).items() if n and op.rank(port) is not None}
    if not sent:
        return []
    port = max(sent, key=lambda port: sent[port])
    return [Diagnosis("pause_storm", f"nic:{op.rank(port)}", (f"pfc {op.peer(port)} off",))]


def unheeded(op: Operator) -> list[Diagnosis]:
    """Headroom overflows at one port, although it has as much as all."""
    rows = (row for row in op.recent("show drops", of_ns=1_200_000.0) if row["reason"] == "headroom")
    over = sums(rows, lambda row: f"{row['node']}:{row['port']}", "count")
    if not over:
        return []
    port = max(over, key=lambda port: over[port])
    peer, rank = op.peer(port), op.rank(op.peer(port))
    ignored = _sent(op).get(port, 0.0) > 0  # else it has sent no pauses
    place = f"port:{port}" if not ignored else f"port:{peer}" if rank is None else f"nic:{rank}"
    mend = (f"pfc {port} on", f"pfc {peer} on" if rank is None else f"nic pfc {rank} on")
    return [Diagnosis("pfc_off", place, mend)]


def overflowing(op: Operator) -> Iterator[Diagnosis]:
    """A switch drops at most of its ports, for its shared buffer is full, and its like do not."""
    full: dict[str, set[int]] = {}
    for row in op.recent("show drops", of_ns=1_200_000.0):
        if row["reason"] == "tail":
            full.setdefault(str(row["node"]), set()).add(int(row["port"]))
    for switch, ports in full.items():
        like = op.like(switch)
        cables = [cable for cable in op.plan.cables if switch in (cable.a.node, cable.b.node)]
        if like and 2 * len(ports) > len(cables) and not full.keys() & set(like):
            yield _small(op, switch)


def _small(op: Operator, switch: str) -> Diagnosis:
    size = next((row["size"] for row in op.rows("show buffer config", "pools") if row["Switch"] == switch), 0)
    return Diagnosis("small_buffer", f"switch:{switch}", (f"buffer {switch} {size}B",))


def shallow(op: Operator) -> Iterator[Diagnosis]:
    """One switch pauses far more than another of its kind, and its queues are no deeper."""
    if not op.slow:
        return
    sent: dict[str, float] = defaultdict(float)
    for port, n in _sent(op).items():
        sent[node_of(port)] += n
    for switch in (switch.name for switch in op.plan.switches):
        n, like = sent[switch], [sent[other] for other in op.like(switch)]
        if like and n > FEW and n > MORE * max(like):
            yield _small(op, switch)


def never_paused(op: Operator) -> list[Diagnosis]:
    """The job is slow, and switches pause all NICs but one, which never sends enough."""
    if not op.slow or op.stands:
        return []
    rows = {by_rank(row): row for row in op.recent("show nics")}
    never = [nic.rank for nic in op.plan.nics if not number(rows.get(nic.rank, {}), "rx_prio3_pause")]
    if len(never) != 1 or len(op.plan.nics) <= FEWEST or number(rows.get(never[0], {}), "tx_prio3_pause"):
        return []
    return [Diagnosis("slow_pcie", f"nic:{never[0]}", (f"nic pcie retrain {never[0]}",))]


@distinct
def leaking(op: Operator) -> Iterator[Diagnosis]:
    """The ends of a cable find that credits are gone, and no frame was damaged there."""
    damaged = {str(row["IFACE"]) for row in op.recent("show interfaces errors") if number(row, "RX_CRC")}
    for row in op.recent("show cables credits", of_ns=1_200_000.0):
        port = str(row["Port"])
        if number(row, "Found/bytes") and port not in damaged and (cable := op.cable(port)) is not None:
            yield Diagnosis("credit_leak", f"cable:{cable.name}", new_cable(op, cable))


RULES = (leaking,)
LATER = (storm, unheeded, overflowing)
BEHIND = (never_paused,)
LAST = (shallow,)
