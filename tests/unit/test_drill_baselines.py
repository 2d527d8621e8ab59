"""Players who know little, on tables that a session would have shown: limits as alerts have them, and a guess."""

from __future__ import annotations

from typing import Any

import pytest

from drills.sheet.answer import parse
from drills.solve.baselines import PLAYERS
from tests.recorded import (
    STANDS,
    Ranks,
    Recorded,
    Wrong,
    accelerators,
    but,
    crc,
    deep,
    log,
    nics,
    status,
    traffic,
)  # fmt: skip


def dropped(*rows: tuple[str, str, int]) -> dict[str, Any]:
    """Port, reason, count."""
    found = [(*port.split(":"), reason, count) for port, reason, count in rows]
    return {"drops": {"drops": [dict(zip(("node", "port", "reason", "count"), row, strict=True)) for row in found]}}


ALERTS: list[tuple[Recorded, str]] = [
    (Recorded(dropped(("leaf0:5", "crc", 3), ("leaf1:1", "headroom", 9))), "pfc_off@cable:h4-leaf1"),  # the loudest
    (Recorded(dropped(("leaf0:5", "tail", 3))), "small_buffer@switch:leaf0"),
    (Recorded(dropped(("h3:1", "icrc", 3))), "corruption@cable:h3-leaf0"),
    (Recorded(dropped(("leaf0:9", "crc", 3))), "healthy"),  # nothing is plugged in there
    (Recorded(dropped(("leaf0:5", "of its own", 3))), "healthy"),
    (Recorded(status(leaf0_5={"Oper": "down"})), "cable_down@cable:leaf0-spine0"),
    (Recorded(status(leaf0_5={"Speed": "99G"})), "reduced_rate@cable:leaf0-spine0"),
    (Recorded(status()), "healthy"),
    (Recorded(accelerators(spine0={"status": "down"})), "accelerator_down@switch:spine0"),
    (Recorded(log((1.0, "rank3", "ended: killed"))), "worker_killed@nic:3"),
    (Recorded(log((1.0, "leaf3", "ended"))), "healthy"),
    (Recorded(deep("leaf0:4", 1_000_001)), "incast@nic:3"),
    (Recorded(deep("leaf0:4", 1_000_000)), "healthy"),
    (Recorded(deep("leaf0:5", 1_000_001)), "healthy"),  # not towards a host
    (Recorded(nics(rnr_nak_retry_err={2: 1})), "slow_receiver@nic:2"),
    (Recorded(nics(tx_prio3_pause={2: 1})), "slow_pcie@nic:2"),
    (Recorded({**nics(tx_prio3_pause={2: 1}), "job": {"job": STANDS}}), "pause_storm@nic:2"),
    (Recorded(traffic((1, 5, 111_112))), "noisy_neighbour@all"),  # more than a tenth of all
    (Recorded(traffic((1, 5, 111_111))), "healthy"),
    (Ranks(but(3, 11.6)), "straggler@nic:3"),  # 31.6 us of 21: more than 1.5 times as long
    (Ranks(but(3, 11.5)), "healthy"),
    (Wrong("any", r2=3), "silent_corruption@cable:h2-leaf0"),
]


@pytest.mark.parametrize(("session", "alert"), ALERTS, ids=range(len(ALERTS)))
def test_an_alert_is_one_limit_that_is_exceeded(session: Recorded, alert: str) -> None:
    """The limits are fixed, and of none of them a look at another place is needed."""
    assert PLAYERS["thresholds"](session) == alert


def test_who_guesses_names_a_class_where_it_can_be_and_the_same_in_the_same_world() -> None:
    first, again = (Recorded(crc("leaf0:6")) for _ in range(2))
    assert PLAYERS["random"](first) == PLAYERS["random"](again)
    parse(PLAYERS["random"](first), first.fabric)
