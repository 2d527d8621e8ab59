"""The same network with nobody else in it: a message takes what it takes by itself, so all of them no more than that.

A message is one event, whatever its packets and the length of its way.
"""

from __future__ import annotations

from workloads.times.messages import Costs, Path, received_ns, sent_ns
from workloads.times.network import Agenda, Callback, Network, QueuePair
from workloads.times.ways import Pair, Ways


class Alone(Network):
    def __init__(self, agenda: Agenda, ways: Ways, costs: Costs) -> None:
        super().__init__(agenda, ways, costs, 1)
        self._paths: dict[QueuePair, Path] = {}

    def connect(self, pair: Pair, channel: int = 0) -> QueuePair:
        made = super().connect(pair, channel)
        self._paths[made] = self._ways.route(pair, channel).path
        return made

    def post(self, t: float, pair: QueuePair, nbytes: int, received: Callback, sent: Callback | None) -> None:
        path = self._paths[pair]
        self._agenda.at(t + received_ns(nbytes, path, self._costs), received)
        if sent is not None:
            self._agenda.at(t + sent_ns(nbytes, path, self._costs), sent)
