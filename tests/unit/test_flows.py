"""Flows between ranks: how often a sender is woken, and what receivers keep (workloads/parts/flows.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workloads.parts.flows import ALL_KEPT_BYTES, DEPTH, KEPT_BYTES, MESSAGE_BYTES, Flow, Flows, _Sending, windows
from workloads.verbs import wire


class Nic:
    """Completes what was posted, the oldest first, as many as are waited for."""

    answered_ps = 0
    lanes = 1

    def __init__(self, wake_ns: float) -> None:
        self.wake_ns = wake_ns
        self.posted: list[int] = []
        self.waits: list[int] = []

    def lane(self, number: int) -> Nic:
        return self

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


def neighbours(ranks: int, nbytes: int) -> list[Flow]:
    """Each rank sends to the next one."""
    return [Flow(k, k, (k + 1) % ranks, nbytes, 0.0) for k in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "kept"), [(2, KEPT_BYTES), (8, KEPT_BYTES), (9, 56 << 20), (64, 8 << 20), (1024, MESSAGE_BYTES)]
)
def test_many_receivers_keep_less_each(ranks: int, kept: int) -> None:
    """Their share of all that is kept, in whole messages, and one message at least."""
    assert windows(neighbours(ranks, 1 << 30), 1) == {0: kept}
    assert ranks * kept <= max(ALL_KEPT_BYTES, ranks * MESSAGE_BYTES)


def test_a_flow_is_kept_whole_if_it_fits() -> None:
    assert windows(neighbours(64, 5 << 20), 1) == {0: 5 << 20}
    assert windows(neighbours(64, 5 << 20)[:1], 0) == {}
