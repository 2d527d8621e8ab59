"""Flows between ranks: how often a sender is woken (workloads/parts/flows.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workloads.parts.flows import DEPTH, MESSAGE_BYTES, Flow, Flows, _Sending
from workloads.verbs import wire


class Nic:
    """Completes what was posted, the oldest first, as many as are waited for."""

    answered_ps = 0

    def __init__(self, wake_ns: float) -> None:
        self.wake_ns = wake_ns
        self.posted: list[int] = []
        self.waits: list[int] = []

    def write(self, *args: Any, wr_id: int, **more: Any) -> None:
        self.posted.append(wr_id)

    def wait(self, records: int, until_ns: float | None) -> list[wire.Record]:
        assert 1 <= records <= len(self.posted)  # or it would wait for ever
        self.waits.append(records)
        done, self.posted = self.posted[:records], self.posted[records:]
        return [wire.Record(wire.SENT, 0, flow, 0, 0, 0, MESSAGE_BYTES, b"") for flow in done]


def waits(*messages: int, wake_ns: float = 0.0) -> list[int]:
    """What one rank waits for, each time, that sends flows of so many messages."""
    nic = Nic(wake_ns)
    flows = object.__new__(Flows)
    flows.device = nic  # type: ignore[assignment]
    flows.context = SimpleNamespace(tick=lambda done, of: None)  # type: ignore[assignment]
    flows.incoming, flows.receiving, flows.source = {}, {}, None  # type: ignore[assignment]
    flows.sending = {
        k: _Sending(Flow(k, 0, 1, n * MESSAGE_BYTES, 0.0), nic, 0, 0, MESSAGE_BYTES)  # type: ignore[arg-type]
        for k, n in enumerate(messages)
    }
    flows.run(0.0)
    assert all(s.done == s.messages for s in flows.sending.values()) and not nic.posted
    return nic.waits


def test_a_sender_with_all_posted_is_not_woken_for_each_message() -> None:
    assert waits(64) == [8] * 8


def test_each_completion_counts_while_there_is_something_to_post() -> None:
    assert waits(DEPTH + 40)[:40] == [1] * 40


def test_a_flow_that_fails_is_heard_of_at_once() -> None:
    """All that it lacks ends with it: so no more than that is waited for."""
    assert max(waits(64, 2)[:2]) <= 2


@pytest.mark.parametrize("messages", [1, 7, 64])
def test_where_waking_takes_time_every_completion_wakes(messages: int) -> None:
    assert waits(messages, wake_ns=100.0) == [1] * messages
