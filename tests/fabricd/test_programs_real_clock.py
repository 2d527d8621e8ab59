"""Programs with the real clock: what one says reaches its NIC in its order, whichever thread interrupts which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.parts.fabricd_fixture import BareFabric, bare_fabric
from tests.parts.verbs_program import INIT, RTR, RTS, Attributes, Program, address_of
from workloads.verbs import wire

AHEAD_PS = 2 * 10**8
"""That long a program computes. By the machine's clock it is 2 s: what it says next it says before that."""
DILATION = 10_000
PROGRESS = wire.command(wire.PROGRESS)
SPEND = wire.command(wire.SPEND, AHEAD_PS)
SUCCESS = 0


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": DILATION}) as f:
        yield f


def test_a_program_that_is_interrupted_has_done_what_it_has_done(fabric: BareFabric) -> None:
    """A thread waits, and another has something to say: what the program has used of time before that is used."""
    p = Program(fabric.worker_socket(0))
    p.begin_wait(1, wire.FOREVER, SPEND)
    began = p.time_ps
    p.send(PROGRESS)
    assert p.end_wait() == [] and p.time_ps >= began + AHEAD_PS
    p.socket.close()


def test_states_are_taken_in_their_order_when_another_thread_waits_in_between(fabric: BareFabric) -> None:
    """Else the last one reaches the NIC first, and what it says is gone by what the one before says: a READ is refused
    then (status 2), as was that of rping's server now and then on a busy machine."""
    a = Program(fabric.worker_socket(0))
    qp = a.queue_pair()
    itself = Attributes(peer=qp, address=address_of(fabric, 0))
    memory = a.memory(4096)
    unknown = replace(itself, reads_out=0)  # it is known with the last state
    a.begin_wait(1, wire.FOREVER, itself.command(qp, INIT), SPEND, unknown.command(qp, RTR))
    a.send(PROGRESS)
    a.end_wait()
    began = a.time_ps
    a.wait(1, began + 2 * AHEAD_PS, itself.command(qp, RTS))  # long enough for all of it
    read = a.send_list(qp, wire.READ, [memory.piece(0, 64)], remote=memory.address + 1024, rkey=memory.key)
    (record,) = a.wait(1, wire.FOREVER, read)
    assert record.status == SUCCESS
    a.socket.close()
