"""Players that know little: what a solver is measured against."""

from __future__ import annotations

import random as chance
from collections.abc import Callable

from testbed.drill.session import Session
from testbed.drill.sheet.truth import HEALTHY
from testbed.drill.solve.desk import Desk, number
from testbed.drill.solve.solver import solve
from testbed.drill.solve.traces import traces
from testbed.faults import CATALOGUE

Player = Callable[[Session], str]


def healthy(session: Session) -> str:
    """Always says so."""
    return HEALTHY


def random(session: Session) -> str:
    """Any class, at any place; what the world is like is its dice, so that each time it says the same of it."""
    desk = Desk(session)
    dice = chance.Random(f"{desk.ticket.get('title')} {session.state()['steps']}")
    places = [f"cable:{c.name}" for c in desk.plan.cables] + [f"nic:{n.rank}" for n in desk.plan.nics]
    places += [f"switch:{s.name}" for s in desk.plan.switches]
    return f"{dice.choice(sorted(CATALOGUE))}@{dice.choice(places)}"


def loudest(session: Session) -> str:
    """The port with the most drops and errors since the beginning: it must be its cable."""
    desk = Desk(session)
    loud = {str(row["IFACE"]): number(row, "RX_ERR") + number(row, "RX_DRP") + number(row, "TX_DRP")
            for row in desk.rows("show interfaces errors")}  # fmt: skip
    port = max(loud, key=lambda p: loud[p], default="")
    cable = desk.cable(port)
    return f"loss@cable:{cable.name}" if cable is not None and loud[port] else HEALTHY


REASONS = {"crc": "loss", "cable": "cable_down", "mtu": "small_mtu", "forwarding": "missing_entry", "ttl": "loop",
           "headroom": "pfc_off", "tail": "small_buffer", "lossy": "wrong_dscp_map", "watchdog": "short_watchdog",
           "icrc": "corruption", "meter": "meter", "no_qp": "wrong_port"}  # fmt: skip
MARKED, PAUSED = 50, 50


def thresholds(session: Session) -> str:
    """Fixed limits on what has grown of late, as alerts have them; the loudest alert is the answer."""
    desk = Desk(session)
    drops = sorted(desk.recent("show drops"), key=lambda row: -number(row, "count"))
    for row in drops:
        kind = REASONS.get(str(row["reason"]))
        cable = desk.cable(f"{row['node']}:{row['port']}")
        if kind and cable is not None:
            node = str(row["node"])
            switch = "switch" in CATALOGUE[kind].on and "cable" not in CATALOGUE[kind].on
            if switch and node not in desk.plan.nic_by_name:
                return f"{kind}@switch:{node}"
            return f"{kind}@cable:{cable.name}"
    for row in desk.rows("show interfaces status"):
        cable = desk.cable(str(row["Interface"]))
        if row["Oper"] == "down" and cable is not None:
            return f"cable_down@cable:{cable.name}"
    nics = desk.recent("show nics")
    for key, limit, kind in (
        ("tx_prio3_pause", 1, "slow_pcie"),
        ("rnr_nak_retry_err", 1, "slow_receiver"),
        ("np_ecn_marked_roce_packets", MARKED, "incast"),
        ("rx_prio3_pause", PAUSED, "pause_storm"),
    ):
        worst = max(nics, key=lambda row, key=key: number(row, key), default=None)  # type: ignore[misc]
        if worst is not None and number(worst, key) >= limit:
            return f"{kind}@nic:{worst['rank']}"
    return HEALTHY


PLAYERS: dict[str, Player] = {
    "healthy": healthy,
    "random": random,
    "traces": traces,
    "loudest": loudest,
    "thresholds": thresholds,
    "solver": solve,
}
