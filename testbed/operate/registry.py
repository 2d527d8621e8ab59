"""All actions of operators, by their words."""

from __future__ import annotations

from testbed.operate.actions import control, interfaces, jobs, nics, queues, tenants
from testbed.operate.steps.action import Action

GROUPS: dict[str, tuple[Action, ...]] = {
    "Interfaces and cables": interfaces.ACTIONS,
    "Queues": queues.ACTIONS,
    "NICs": nics.ACTIONS,
    "Routes, flows, accelerators": control.ACTIONS,
    "Tenants": tenants.ACTIONS,
    "The job of a held fabric": jobs.ACTIONS,
}
ACTIONS: dict[str, Action] = {action.words: action for actions in GROUPS.values() for action in actions}
