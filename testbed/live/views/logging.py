"""What switches, NICs and the controller have logged, in one order, with emulated times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import View
from testbed.words import kinds
from testbed.words.entry import Parameter

Event = Mapping[str, Any]
_LEVELS = ("info", "warning", "error")


def _link(e: Event) -> tuple[str, str, str]:
    old, new = ("down", "up") if e["up"] else ("up", "down")
    return e["node"], "info" if e["up"] else "warning", f"{e['node']}:{e['port']} oper state set from {old} to {new}"


def _watchdog(e: Event) -> tuple[str, str, str]:
    at = f"{e['switch']}:{e['port']}, queue {e['class']}"
    storm = f"detected PFC storm on {at}, action {e['action']}" if e["on"] else f"storm restored on {at}"
    return e["switch"], "warning", f"PFC Watchdog {storm}"


def _deadlock(e: Event) -> tuple[str, str, str]:
    circle = ", ".join(f"{p['switch']}:{p['port']} queue {p['class']}" for p in e["ports"])
    return "fabric", "error", f"PFC deadlock: these wait for each other: {circle}"


def _qp(e: Event) -> tuple[str, str, str]:
    return f"nic{e['rank']}", "error", f"QP {e['qp']} to rank {e['peer']} in error: {e['status']}"


def _worker(e: Event) -> tuple[str, str, str]:
    return f"rank{e['rank']}", "error", f"worker: {e['reason']}"


def _group(e: Event) -> tuple[str, str, str]:
    return f"rank{e['rank']}", "warning", f"job {e['job']} ({e['kind']}): ranks do it by themselves: {e['reason']}"


def _noted(e: Event) -> tuple[str, str, str]:
    what = e["reason"] or "as it was asked for again"
    return "fabric", "warning" if e["reason"] else "info", f"job {e['job']} ({e['kind']}): {what}"


def _silent(e: Event) -> tuple[str, str, str]:
    return e["who"], "error", f"{e['who']} does not answer: {e['reason']}"


def _fault(e: Event) -> tuple[str, str, str]:
    return "railbed", "info", f"fault {e['fault']} {'on' if e['on'] else 'off'}"


_SAID: dict[str, Callable[[Event], tuple[str, str, str]]] = {
    "link": _link, "pfc_watchdog": _watchdog, "deadlock": _deadlock, "qp_error": _qp, "worker_lost": _worker,
    "worker_hung": _worker, "group_failed": _group, "group_noted": _noted, "controller_timeout": _silent,
    "note": lambda e: (e["who"], e["level"], e["text"]), "fault": _fault,
}  # fmt: skip
"""Who says what, and how bad it is. Other events are for programs."""


def logging(look: Look, who: str | None = None, level: str | None = None) -> list[Table]:
    """The log, the oldest line first."""
    rows = []
    for event in look.log:
        if (said := _SAID.get(event["event"])) is None or (event["event"] == "fault" and look.sight.drops != "all"):
            continue
        by, how, text = said(event)
        worse = _LEVELS.index(how) >= _LEVELS.index(level or "info")
        since = look.then is None or event["time_ns"] >= look.then["time_ns"]
        if worse and since and who in (None, by):
            rows.append({"time_us": f"{event['time_ns'] / 1000:.3f}", "who": by, "level": how, "message": text})
    return [Table("log", "", rows)]


VIEWS = (
    View(
        words="logging", about="Show what switches, NICs and the controller have logged, with emulated times.",
        make=logging,
        parameters=(
            Parameter("who", kinds.TEXT, "Only this one: a switch, nicRANK, rankRANK, controller.", option=True),
            Parameter("level", kinds.Choice("level", "LEVEL", _LEVELS), "At least so bad: info, warning, error.", True),
        ),
        samples=("", "--level warning", "--who rail0"),
    ),
)  # fmt: skip
