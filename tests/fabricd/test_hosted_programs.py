"""A worker that has started programs: the clock waits for those without a session, and goes on with others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parts.fabricd_fixture import BareFabric, RawWorker, SessionOver, bare_fabric
from tests.parts.verbs_program import Program
from workloads.verbs import wire

US = 10**6  # ps
PLACE = 1  # bits of HELLO's flags by which a place is shifted


class Host(RawWorker):
    """A rank's worker."""

    def awaits(self, programs: int, until: int = wire.FOREVER) -> None:
        self.send(wire.command(wire.AWAIT_PROGRAMS, programs, 0, until))

    def answer(self) -> int:
        """Its time, of the next RECORDS."""
        return int(wire.RECORDS_BODY.unpack_from(self.packet(wire.RECORDS))[0])


class Placed(Program):
    """The program that was started in a place."""

    place = 0

    def __init__(self, f: BareFabric, rank: int, place: int) -> None:
        RawWorker.__init__(self, f.worker_socket(rank), hello=False)
        self.send(wire.command(wire.HELLO, wire.MAGIC, wire.VERSION, 1 | place << PLACE))
        _, self.rank, _, _, self.time_ps, self.mtu, _ = wire.WELCOME_BODY.unpack(self.packet(wire.WELCOME))


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        yield f


def bye(program: Program) -> None:
    program.send(wire.command(wire.BYE))


def test_the_clock_stands_between_two_programs_of_a_process(fabric: BareFabric) -> None:
    """What it does between them, and what another rank does meanwhile, takes of it nothing."""
    host, other = Host(fabric.worker_socket(0)), Host(fabric.worker_socket(1))
    other.begin_wait(1, 10**12)  # a second: it goes on as far as the clock does
    host.awaits(1)
    first = Program(fabric.worker_socket(0))
    assert first.time_ps == 0
    first.wait(1, 5 * US)
    bye(first)
    second = Program(fabric.worker_socket(0))  # much later, by the wall: other's second would be over
    assert second.time_ps == 5 * US
    second.wait(1, 9 * US)
    bye(second)
    host.awaits(0)  # the process has ended
    assert [host.answer(), host.answer()][-1] == 9 * US
    host.send(wire.command(wire.BYE))
    other.end_wait()
    assert other.time_ps == 10**12


def test_a_limit_a_record_or_a_further_packet_ends_its_wait(fabric: BareFabric) -> None:
    host, other = Host(fabric.worker_socket(0)), Host(fabric.worker_socket(1))
    program = Program(fabric.worker_socket(0))
    program.begin_wait(1)
    host.awaits(1, 3 * US)
    other.begin_wait(1, 4 * US)
    assert host.answer() == 3 * US
    host.send(wire.command(wire.SYNC, 1, 2), wire.command(wire.AWAIT_PROGRAMS, 1, 0, wire.FOREVER))
    other.end_wait()
    other.send(wire.command(wire.SYNC, 1, 2), wire.command(wire.WAIT, 1, 0, wire.FOREVER))
    assert host.answer() == 4 * US
    host.awaits(1)
    host.send(wire.command(wire.PROGRESS))
    assert host.answer() == 4 * US
    program.send(wire.command(wire.BYE))


def test_places_say_which_numbers_programs_have_whoever_was_first(fabric: BareFabric) -> None:
    """Of queue pairs and of keys; one after another in a place they differ."""
    made = []
    for order in ((1, 2), (2, 1)):
        with bare_fabric("star", {"hosts": 2}) as f:
            f.start(0)
            programs = {place: Placed(f, 0, place) for place in order}
            pairs = {place: programs[place].queue_pair() for place in reversed(order)}
            keys = {place: programs[place].memory(4096).key for place in order}
            bye(programs[1])
            again = Placed(f, 0, 1)
            made.append(
                (dict(sorted(pairs.items())), dict(sorted(keys.items())), again.queue_pair(), again.memory(4096).key)
            )
    assert made[0] == made[1]
    pairs, keys, later, key = made[0]
    assert len({*pairs.values(), later}) == 3 and len({*keys.values(), key}) == 3


@pytest.mark.parametrize(
    "said, why",
    [
        ([wire.command(wire.AWAIT_PROGRAMS, 1, 0, 0), wire.command(wire.PROGRESS)], "must be the last"),
        ([wire.command(wire.AWAIT_PROGRAMS, 1, 0, 2**63)], "thirteen days"),
    ],
)
def test_what_is_wrong_ends_the_session(fabric: BareFabric, said: list[bytes], why: str) -> None:
    host = Host(fabric.worker_socket(0))
    host.send(*said)
    assert why in host.reason()


def test_programs_have_no_programs(fabric: BareFabric) -> None:
    program = Program(fabric.worker_socket(0))
    program.send(wire.command(wire.AWAIT_PROGRAMS, 1, 0, wire.FOREVER))
    with pytest.raises(SessionOver, match="ranks in a job"):
        program.packet(wire.RECORDS)


def test_a_limit_from_before_keeps_nobody_who_waits_for_another_rank(fabric: BareFabric) -> None:
    """A program had until 9 us, and ended sooner; then its worker waits for a rank that waits for longer than that."""
    host, other = Host(fabric.worker_socket(0)), Host(fabric.worker_socket(1))
    other.begin_wait(1, 20 * US)
    host.awaits(1, 9 * US)
    program = Program(fabric.worker_socket(0))
    program.wait(1, 5 * US)
    bye(program)
    host.send(wire.command(wire.SYNC, 7, 2) + wire.command(wire.WAIT, 1, 0, wire.FOREVER))
    other.end_wait()
    assert other.time_ps == 20 * US
    other.send(wire.command(wire.SYNC, 7, 2) + wire.command(wire.WAIT, 1, 0, wire.FOREVER))
    assert [host.answer(), host.answer()][-1] == other.answer() == 20 * US


def test_a_program_that_has_waited_for_others_says_something_while_another_does(fabric: BareFabric) -> None:
    """fabricd listened to it before it listened to it, for ever, and came to the end of its stack."""
    outside = wire.command(wire.WAIT, 1, 2, US)
    first, second, third, other = (Program(fabric.worker_socket(rank)) for rank in (0, 0, 0, 1))
    for program in (first, second):
        program.send(outside)
    other.begin_wait(1, 2 * US)
    third.begin_wait(1, 2 * US)
    assert first.end_wait() == [] == second.end_wait()
    assert first.time_ps == second.time_ps == US
    third.send(wire.command(wire.PROGRESS), wire.command(wire.WAIT, 1, 2, wire.FOREVER))
    third.end_wait()
    first.send(wire.command(wire.PROGRESS), wire.command(wire.WAIT, 0, 0, wire.FOREVER))
    first.end_wait()
    for program in (other, third, second, first):
        program.socket.close()
