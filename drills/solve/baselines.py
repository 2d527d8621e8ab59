"""Players that know little: what a solver is measured against."""

from __future__ import annotations

import random as chance
import re
from collections.abc import Callable, Iterator
from statistics import median_high

from drills.session import Session
from drills.sheet.answer import fits
from drills.sheet.truth import HEALTHY
from drills.solve.host import rate
from drills.solve.operator import Operator, by_rank, number, sums
from drills.solve.solver import solve
from drills.solve.traces import traces
from testbed.faults import CATALOGUE

Player = Callable[[Session], str]


def healthy(session: Session) -> str:
    """Always says so."""
    return HEALTHY


def random(session: Session) -> str:
    """Any class, anywhere that it can be; seeded by the world, so that its answer is always the same."""
    op = Operator(session)
    dice = chance.Random(f"{op.ticket.get('title')} {session.state()['steps']}")
    places = [f"cable:{c.name}" for c in op.plan.cables] + [f"nic:{n.rank}" for n in op.plan.nics]
    places += [f"switch:{s.name}" for s in op.plan.switches]
    while not fits(kind := dice.choice(sorted(CATALOGUE)), place := dice.choice(places)):
        pass
    return f"{kind}@{place}"


def loudest(session: Session) -> str:
    """The cable of the port with the most drops and errors since the beginning."""
    op = Operator(session)
    errors = sums(op.rows("show interfaces errors"), lambda row: str(row["IFACE"]), "RX_ERR", "RX_DRP", "TX_DRP")
    port = max(errors, key=lambda port: errors[port], default="")
    cable = op.cable(port)
    return f"loss@cable:{cable.name}" if cable is not None and errors[port] else HEALTHY


REASONS = {"crc": "loss", "cable": "cable_down", "mtu": "small_mtu", "forwarding": "missing_entry", "ttl": "loop",
           "headroom": "pfc_off", "tail": "small_buffer", "lossy": "wrong_dscp_map", "watchdog": "short_watchdog",
           "icrc": "corruption", "meter": "meter", "no_qp": "wrong_port"}  # fmt: skip
COUNTED = {"out_of_sequence": "loss", "duplicate_request": "duplication"}
"""Counters of NICs; missing frames first, for they are sent again, and some come twice."""
_REFUSED = re.compile(r"(\S+) refused \d+ flow mods")
DEEP, OTHERS, OWN_TIME = 1_000_000, 0.1, 1.5
"""Bytes in a queue; share of traffic that is not the job's; a rank's own time, of the usual one."""


def thresholds(session: Session) -> str:
    """Fixed limits, as alerts have them; the first that is exceeded is the answer.

    There is one for each row of the student's table (docs/drills.md) that one counter or message alone tells. None
    compares places of one kind, reads a configuration, measures, or tries.
    """
    op = Operator(session)
    return next((f"{kind}@{place}" for kind, place in _alerts(op)), HEALTHY)


def _alerts(op: Operator) -> Iterator[tuple[str, str]]:
    yield from _logged(op)
    yield from _drops(op)
    ports = [(row, cable) for row in op.rows("show interfaces status") if (cable := op.cable(str(row["Interface"])))]
    fastest = max((rate(str(row["Speed"])) for row, _ in ports), default=0.0)
    for row, cable in ports:
        if row["Oper"] == "down":
            yield "cable_down", f"cable:{cable.name}"
        elif rate(str(row["Speed"])) < fastest:
            yield "reduced_rate", f"cable:{cable.name}"
    for row in op.rows("show accelerators"):
        if row.get("status") == "down":
            yield "accelerator_down", f"switch:{row['switch']}"
    yield from _ranks(op)
    for row in op.rows("show queue watermark"):
        rank = op.rank(op.peer(str(row["Port"])))
        if rank is not None and number(row, "UC3") > DEEP:
            yield "incast", f"nic:{rank}"
    for row in op.recent("show nics"):
        if number(row, "rnr_nak_retry_err") > 0:
            yield "slow_receiver", f"nic:{row['rank']}"
        if number(row, "tx_prio3_pause") > 0:
            yield "pause_storm" if op.stands else "slow_pcie", f"nic:{row['rank']}"
    yield from _counted(op)
    sent = sums(op.recent("show traffic"), lambda row: row["tenant"] == "job", "tx_bytes")
    if sent.get(False, 0.0) > OTHERS * sum(sent.values()):
        yield "noisy_neighbour", "all"


def _drops(op: Operator) -> Iterator[tuple[str, str]]:
    """The loudest first."""
    for row in sorted(op.recent("show drops"), key=lambda row: -number(row, "count")):
        kind = REASONS.get(str(row["reason"]))
        cable = op.cable(f"{row['node']}:{row['port']}")
        if kind and cable is not None:
            node = str(row["node"])
            switch = "switch" in CATALOGUE[kind].on and "cable" not in CATALOGUE[kind].on
            yield kind, f"switch:{node}" if switch and node not in op.plan.nic_by_name else f"cable:{cable.name}"


def _logged(op: Operator) -> Iterator[tuple[str, str]]:
    """Messages that name their cause."""
    for row in op.rows("show logging"):
        message = str(row["message"])
        if "connection lost" in message:
            yield "controller_dead", "controller"
        if found := _REFUSED.match(message):
            yield "table_full", f"switch:{found[1]}"
        if message.startswith("PFC deadlock"):
            yield "dateline_off", "all"


def _counted(op: Operator) -> Iterator[tuple[str, str]]:
    """Errors that NICs and ranks count; the place is their own cable, for they know no other."""
    for row in op.rows("show job --ranks --last 1"):
        if number(row, "wrong") > 0:
            yield "silent_corruption", f"cable:{op.nic_cable(int(row['rank'])).name}"
    for counter, kind in COUNTED.items():
        for row in sorted(op.recent("show nics"), key=lambda row: -number(row, counter)):
            if number(row, counter) > 0:
                yield kind, f"cable:{op.nic_cable(int(row['rank'])).name}"


def _ranks(op: Operator) -> Iterator[tuple[str, str]]:
    for row in op.rows("show logging"):
        if str(row["who"]).startswith("rank") and "ended" in str(row["message"]):
            yield "worker_killed", f"nic:{str(row['who'])[4:]}"
    own = sums(op.rows("show job --ranks --last 1"), by_rank, "host_us", "compute_us")
    usual = median_high(own.values()) if own else 0.0
    for rank, took in own.items():
        if took > OWN_TIME * usual:
            yield "straggler", f"nic:{rank}"


PLAYERS: dict[str, Player] = {
    "healthy": healthy,
    "random": random,
    "traces": traces,
    "loudest": loudest,
    "thresholds": thresholds,
    "solver": solve,
}
