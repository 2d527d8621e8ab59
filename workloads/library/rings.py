"""What multi-channel rings take: every rank's clock of every channel, slice by slice, as arrays.

All servers are alike and begin together, so that one stands for all: the state is an array over the channels that share
a NIC and the GPUs of a server in ring order; the last of them sends over the NIC to the first of the next server, which
is where the first of this one is.  A further axis has the cases of costs that are arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from workloads.library.costs import STREAMED, Protocol
from workloads.library.pieces import Cut, loops

_FOLLOWED = 6
"""Loops of which each is followed; of more, each takes as long as the last ones of these."""
_ALIKE = 1e-9
"""Relative: turns that differ by no more take the same."""


class Around(NamedTuple):
    """What a ring does: hops that send in a loop, and whether what comes last is added up."""

    hops: int
    adds_last: bool


def around(collective: str, ranks: int) -> Around:
    if collective == "all_reduce":
        return Around(2 * (ranks - 1), False)
    return Around(ranks - 1, collective == "reduce_scatter")


class State:
    """Clocks of the channels' thread blocks and of the NIC, and what has arrived."""

    def __init__(self, its: Protocol, gpus: int, nodes: int, lanes: int, of_gpu: int, pxn: bool) -> None:
        """`lanes`: channels of a NIC; `of_gpu`: that leave a GPU into its domain; `pxn`: also on the way to a NIC."""
        cases = its.launch.shape[0]
        self.its, self.lanes, self.gpus, self.over_net = its, lanes, gpus, nodes > 1
        self.free = np.zeros((cases, lanes, gpus)) + its.launch
        self.nic = np.zeros((cases, 1, 1))
        self.pxn = its.nvlink if pxn and gpus > 1 else 0.0
        self.byte = np.maximum(its.byte, its.link_byte * of_gpu) if gpus > 1 else its.byte
        self.streamed = its.name in STREAMED

    def work(self, free: Any, nbytes: int, coming: Any = 0.0) -> Any:
        """Until the thread blocks have done a slice that comes then, and may be sent then."""
        takes, begin = nbytes * self.byte + self.its.slice, np.maximum(self.free, free)
        done = np.maximum(begin + takes, coming) if self.streamed else np.maximum(begin, coming) + takes
        self.free = done
        return done

    def kept(self, ready: Any) -> Any:
        """Until they have a slice that need not be copied."""
        self.free = np.maximum(self.free, ready)
        return self.free

    def later(self, ns: Any) -> None:
        """As if all had been so much later; a number for each case."""
        self.free, self.nic = self.free + ns[:, None, None], self.nic + ns[:, None, None]

    def sent(self, done: Any, nbytes: int) -> Any:
        """When it arrives at each one's right neighbour, given when the thread block was done: by the receiver."""
        arrived = done + self.its.nvlink + nbytes * self.its.near_byte
        if self.over_net:
            arrived[:, :, -1] = self._over_nic(done[:, :, -1:] + self.pxn, nbytes)[:, :, 0]
        return np.roll(arrived, 1, axis=2)

    def _over_nic(self, ready: Any, nbytes: int) -> Any:
        """Messages of the channels that share the NIC, in the order in which they are ready."""
        its = self.its
        takes = its.message + nbytes * its.net_byte
        arrived = np.empty_like(ready)
        if self.lanes == 1:
            self.nic = np.maximum(ready, self.nic) + takes
            return self.nic + its.net
        order = np.argsort(ready[:, :, 0], axis=1, kind="stable")
        rows = np.arange(ready.shape[0])
        for k in range(self.lanes):
            lane = order[:, k]
            self.nic = np.maximum(ready[rows, lane].reshape(-1, 1, 1), self.nic) + takes
            arrived[rows, lane] = (self.nic + its.net)[:, :, 0]
        return arrived


class _Slots:
    """When what was sent is through at its receiver, so that its slot is free again.

    Over the network there are twice as many: the sender's, until a NIC has sent what is in them, and the receiver's.
    """

    def __init__(self, count: int, *, over_net: bool) -> None:
        self.count, self.over_net = count, over_net
        self.forget()

    def forget(self) -> None:
        self._sent, self._through = 0, list[Any]()

    def free(self) -> Any:
        """When the next slice may be made, by its sender."""
        before, self._sent = self._sent - self.count, self._sent + 1
        if before < 0:
            return 0.0
        free = np.roll(self._through[before], -1, axis=2)
        if self.over_net:
            far = before - self.count
            free[:, :, -1] = self._through[far][:, :, 0] if far >= 0 else 0.0
        return free

    def through(self, when: Any) -> None:
        """The next of those that came in, by its receiver."""
        self._through.append(when)

    def later(self, ns: Any) -> None:
        """As of a state."""
        self._through[-2 * self.count :] = [when + ns[:, None, None] for when in self.lately]

    @property
    def lately(self) -> list[Any]:
        """All on which what comes depends."""
        return self._through[-2 * self.count :]


class _Turns:
    """Whether what a ring does has come to be the same again and again, only later."""

    def __init__(self) -> None:
        self._before: Any = None

    def later(self, state: State, slots: _Slots, arriving: Sequence[Any]) -> Any:
        """By how much each case was later than when last asked, if all of it was by as much; else None."""
        parts = [state.free, *([state.nic] if state.over_net else ()), *arriving, *slots.lately]
        cases = len(state.free)
        now = np.concatenate([part.reshape(cases, -1) for part in parts], axis=1)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape:
            return None
        more = now - before
        alike = np.abs(more - more[:, :1]).max() <= _ALIKE * now.max()
        return more[:, 0] if alike else None


def ring_ns(state: State, collective: str, channel_bytes: int, ranks: int, cut: Cut) -> Any:
    """Until the last slice of a channel's share has come, for each case."""
    todo, slots = around(collective, ranks), _Slots(cut.slots, over_net=state.over_net)
    total: Any = 0.0
    for count, chunk in loops(channel_bytes, ranks, cut.chunk):
        ends, turns, slices = list[Any](), _Turns(), cut.slices_of(chunk)
        for followed in range(1, count + 1):
            total = _loop(state, todo, slices, slots)
            ends.append(total)
            more = turns.later(state, slots, ())
            if more is None and followed == _FOLLOWED:
                more = (ends[-1] - ends[-3]) / 2
            if more is not None:
                more = (count - followed) * more
                state.later(more)
                slots.later(more)
                total = total + more
                break
    return total


def _loop(state: State, todo: Around, slices: list[int], slots: _Slots) -> Any:
    """One loop: a chunk of each rank, around the ring; when the last slice has come."""
    turn = state.gpus * ceil(2 * slots.count / len(slices) / state.gpus)
    arriving: list[Any] = []
    hop, turns = 0, _Turns()
    while hop < todo.hops:
        coming, arriving = arriving, []
        for k, nbytes in enumerate(slices):
            done = state.work(slots.free(), nbytes, coming[k] if hop else 0.0)
            if hop:
                slots.through(done)
            arriving.append(state.sent(done, nbytes))
        hop += 1
        left = (todo.hops - hop) // turn
        if hop % turn == 0 and left and (more := turns.later(state, slots, arriving)) is not None:
            state.later(left * more)
            slots.later(left * more)
            arriving = [when + (left * more)[:, None, None] for when in arriving]
            hop += left * turn
    for k, nbytes in enumerate(slices):
        slots.through(state.work(0.0, nbytes, arriving[k]) if todo.adds_last else state.kept(arriving[k]))
    return state.free.max(axis=(1, 2))
