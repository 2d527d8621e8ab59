"""The bookkeeping of one switch, against a model of a switch that is slow, loses its line and is tampered with."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controllers.flows import PRIORITY, ROUTE, Flow, Output
from controllers.flows.bridge import Bridge, Change
from controllers.routing.ports import DownPorts

Key = tuple[int, tuple[tuple[str, object], ...]]

# Few matches with several actions each, so that flows replace one another.
flows = st.builds(
    lambda address, port: Flow(
        ROUTE, PRIORITY, (("ipv4_dst", (f"10.0.0.{address}", "255.255.255.255")),), (Output(port),)
    ),
    st.integers(1, 4),
    st.integers(1, 3),
)
tables = st.frozensets(flows, max_size=5).map(lambda fs: frozenset({f.match: f for f in fs}.values()))


class SlowSwitch(RuleBasedStateMachine):
    """Messages wait in a queue until the switch takes them; replies reach the bridge at once."""

    def __init__(self) -> None:
        super().__init__()
        self.bridge = Bridge("sw0")
        self.table: dict[Key, Flow] = {}
        self.queue: deque[Flow | int | str] = deque()
        self.connected = False
        self.barriers = 0

    def send(self, change: Change) -> None:
        self.queue.extend(change.add)
        self.queue.extend(change.delete)
        self.barriers += 1
        self.bridge.barrier_sent(self.barriers)
        self.queue.append(f"barrier {self.barriers}")

    @rule(wanted=tables)
    def want(self, wanted: frozenset[Flow]) -> None:
        self.bridge.wanted = wanted
        if change := self.bridge.change():
            self.send(change)

    @precondition(lambda self: not self.connected)
    @rule(stale=st.lists(flows, max_size=2))
    def connect(self, stale: list[Flow]) -> None:
        for flow in stale:
            self.table[flow.table, flow.match] = flow
        self.connected = True
        self.bridge.connected()
        self.queue.append("list")

    @precondition(lambda self: self.connected)
    @rule()
    def disconnect(self) -> None:
        self.connected = False
        self.queue.clear()
        self.bridge.lost()

    @precondition(lambda self: self.queue)
    @rule(steps=st.integers(1, 8))
    def take(self, steps: int) -> None:
        while self.queue and steps:
            steps -= 1
            match self.queue.popleft():
                case Flow() as flow:
                    self.table[flow.table, flow.match] = flow
                case int(cookie):
                    self.table = {k: f for k, f in self.table.items() if f.cookie != cookie}
                case "list":
                    self.send(self.bridge.found([f.cookie for f in self.table.values()]))
                case str(barrier):
                    self.bridge.barrier_seen(int(barrier.split()[1]))

    @invariant()
    def settled_means_in(self) -> None:
        if self.bridge.settled:
            assert frozenset(self.table.values()) == self.bridge.wanted

    @invariant()
    def all_taken_means_settled(self) -> None:
        if self.connected and not self.queue:
            assert self.bridge.settled


TestSlowSwitch = SlowSwitch.TestCase
TestSlowSwitch.settings = settings(stateful_step_count=30)


def test_a_port_is_down_while_either_witness_says_so() -> None:
    ports = DownPorts()
    port = ("leaf0", 3)
    ports.fabricd_says(port, up=False)
    ports.switch_says(port, up=False)
    assert ports.down == {port}
    ports.fabricd_says(port, up=True)
    assert ports.down == {port}
    ports.switch_says(port, up=True)
    assert ports.down == frozenset()
    ports.switch_lists("leaf0", [1, 2])
    ports.switch_lists("leaf1", [9])
    ports.switch_lists("leaf0", [2])
    assert ports.down == {("leaf0", 2), ("leaf1", 9)}
