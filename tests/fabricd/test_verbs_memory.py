"""Memory of programs that is more than registered: on demand, and the NIC's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, sealed_memfd
from tests.parts.timing_model import RETH, Model
from tests.parts.verbs_program import Memory, Piece, Program, couple
from workloads.verbs import wire

SUCCESS, LOCAL_PROTECTION, FLUSHED, REMOTE_ACCESS = 0, 4, 5, 10  # of ibv_wc_status
ON_DEMAND, THERE = 64, 1
DEVICE_BYTES = 128 << 10
PAGE, REST_PS = 4096, 10**12


@pytest.fixture
def fabric() -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0, 1)
        yield f


@pytest.fixture
def alone() -> Iterator[BareFabric]:
    """Nothing waits for the second rank."""
    with bare_fabric("star", {"hosts": 2}, Hardware()) as f:
        f.start(0)
        yield f


class Ends:
    """`a` acts, `b` rests."""

    def __init__(self, f: BareFabric) -> None:
        self.a, self.b = Program(f.worker_socket(0)), Program(f.worker_socket(1))
        self.qp, _ = couple(f, self.a, self.b)

    def rest(self, *commands: bytes) -> None:
        self.b.begin_wait(10_000, REST_PS, *commands)

    def write(self, near: Piece, far: Memory, at: int = 0, op: int = wire.WRITE) -> tuple[int, int]:
        """Status, and how long it took in ps."""
        began = self.a.time_ps
        post = self.a.send_list(self.qp, op, [near], remote=far.address + at, rkey=far.key)
        (record,) = self.a.wait(1, wire.FOREVER, post)
        return record.status, record.time_ps - began

    def over(self) -> None:
        for p in (self.b, self.a):
            p.socket.close()


def pages(memory: Memory, at: int, nbytes: int, *, there: bool) -> bytes:
    return wire.command(wire.PAGES, memory.key, THERE if there else 0, memory.address + at, nbytes)


def test_memory_on_demand_is_what_its_program_has_of_it(fabric: BareFabric) -> None:
    """What is not there cannot be got at: by its program a protection error, by its peer an access error."""
    ends = Ends(fabric)
    far = ends.b.memory(4 * PAGE, 15 | ON_DEMAND)
    near = ends.a.memory(4 * PAGE, 15 | ON_DEMAND)
    ends.rest(pages(far, PAGE, 2 * PAGE, there=True))
    ends.a.send(pages(near, 0, 4 * PAGE, there=True))
    near.bytes[:8] = b"on demand"[:8]
    assert ends.write(near.piece(0, 2 * PAGE), far, PAGE)[0] == SUCCESS
    assert far.bytes[PAGE : PAGE + 8] == b"on deman"
    assert ends.write(near.piece(0, 8), far, 3 * PAGE - 7)[0] == REMOTE_ACCESS
    ends.over()


@pytest.mark.parametrize("posted", [False, True])
def test_pages_that_go_break_what_names_them_and_nothing_else(fabric: BareFabric, *, posted: bool) -> None:
    ends = Ends(fabric)
    far, near = ends.b.memory(1 << 20), ends.a.memory(1 << 20, 15 | ON_DEMAND)
    ends.rest()
    gone = pages(near, PAGE, PAGE, there=False)
    post = [
        ends.a.send_list(ends.qp, wire.WRITE, [near.piece(at, nbytes)], remote=far.address, rkey=far.key, wr_id=k)
        for k, (at, nbytes) in enumerate([(8 * PAGE, 1 << 19), (0, 2 * PAGE)])
    ]
    ends.a.send(pages(near, 0, 1 << 20, there=True))
    commands = [*post, gone] if posted else [gone, *post]
    records = ends.a.wait(1, wire.FOREVER, *commands)
    records += ends.a.wait(2 - len(records)) if len(records) < 2 else []
    assert [(r.wr_id, r.status) for r in records] == [(0, SUCCESS), (1, LOCAL_PROTECTION)]
    ends.over()


def test_pages_of_what_is_no_region_end_the_session(alone: BareFabric) -> None:
    p = Program(alone.worker_socket(0))
    plain = p.memory(PAGE)
    p.send(pages(plain, 0, 1 << 62, there=False))  # nothing that there is
    assert p.wait(0, wire.FOREVER) == []
    p.send(wire.command(wire.PAGES, 12345, 1, 0, PAGE))
    assert p.reason() == "PAGES: unknown key"


def device(p: Program, nbytes: int) -> int:
    """A key of so much device memory, or 0."""
    p.send(wire.command(wire.ALLOC_DM, nbytes, 3, 0), fds=[sealed_memfd(nbytes)])
    _, key = wire.REGION_BODY.unpack(p.packet(wire.REGION))
    return int(key)


def part(p: Program, key: int, nbytes: int, offset: int = 0) -> int:
    p.send(wire.command(wire.REGISTER_DM, nbytes, offset, key, 4, 15, 1))
    _, made = wire.REGION_BODY.unpack(p.packet(wire.REGION))
    return int(made)


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_device_memory_is_reached_without_pcie(fabric: BareFabric, *, ours: bool, theirs: bool) -> None:
    """A write's fetch, at the one who writes; a READ's at the other. Its completion comes over PCIe all the same, but
    behind no data."""
    model = Model(fabric.hardware, 1)
    ends = Ends(fabric)
    near, far = ends.a.memory(PAGE), ends.b.memory(PAGE)
    if ours:
        near = Memory(0, part(ends.a, device(ends.a, PAGE), PAGE), near.bytes)
    if theirs:
        far = Memory(0, part(ends.b, device(ends.b, 2 * PAGE), PAGE, PAGE), far.bytes)
    ends.rest()
    fetch = model.pcie + model.pcie_ps(PAGE)
    status, took = ends.write((near.address, PAGE, near.key), far)
    assert (status, took) == (SUCCESS, model.sent(PAGE, RETH) - (fetch if ours else 0))
    status, took = ends.write((near.address, PAGE, near.key), far, op=wire.READ)
    there, back = model.travel(0, RETH), model.travel(PAGE, 4)
    into = model.pcie + (0 if ours else model.pcie_ps(PAGE))
    assert (status, took) == (SUCCESS, model.doorbell + there + (0 if theirs else fetch) + back + into)
    ends.over()


def test_device_memory_is_little_and_comes_back(alone: BareFabric) -> None:
    """Of all programs of a NIC together; with the program, and with a region of it that nobody can get at then."""
    a, other = Program(alone.worker_socket(0)), Program(alone.worker_socket(0))
    first = device(a, DEVICE_BYTES - 4)
    assert first and not device(other, 8) and device(other, 4)
    assert not device(a, 1 << 20)
    mine = part(a, first, 64)
    other.begin_wait(10_000, 10**7)
    a.wait(10_000, 10**7, wire.command(wire.DEREGISTER, first, 0))
    other.end_wait()
    assert device(other, DEVICE_BYTES - 4)
    other.socket.close()
    a.wait(10_000, 10**8, wire.command(wire.DEREGISTER, mine, 0))
    again = device(a, DEVICE_BYTES)
    assert again
    a.send(wire.command(wire.REGISTER_DM, 8, DEVICE_BYTES - 4, again, 4, 15, 1))
    assert a.reason() == "REGISTER_DM: outside its device memory, or unknown access"


def test_what_is_of_device_memory_that_went_is_no_memory(fabric: BareFabric) -> None:
    ends = Ends(fabric)
    whole = device(ends.b, PAGE)
    far = Memory(0, part(ends.b, whole, PAGE), ends.b.memory(PAGE).bytes)
    ends.rest(wire.command(wire.DEREGISTER, whole, 0))
    assert ends.write(ends.a.memory(PAGE).piece(), far)[0] == REMOTE_ACCESS
    ends.over()


def test_what_a_program_holds_is_counted_by_its_kind(alone: BareFabric) -> None:
    """Of device memory what is registered is a region, too; of its bytes none are the program's."""
    p = Program(alone.worker_socket(0))
    p.memory(PAGE)
    whole = device(p, 2 * PAGE)
    part(p, whole, PAGE)
    p.send(wire.command(wire.ALLOC_MW, 1, 1, 2, 0))
    p.packet(wire.REGION)

    def held() -> tuple[int, ...]:
        (its,) = alone.fabricd.request("programs")["programs"]
        return tuple(its[key] for key in ("regions", "region_bytes", "windows", "device_memories", "device_bytes"))

    assert held() == (2, PAGE, 1, 1, 2 * PAGE)
    p.wait(10_000, 10**7, wire.command(wire.DEREGISTER, whole, 0))
    assert held() == (2, PAGE, 1, 0, 0)
    p.socket.close()


@pytest.mark.parametrize("name", ["REGISTER", "ALLOC_DM"])
def test_memory_that_cannot_be_shared_is_refused_in_the_commands_name(alone: BareFabric, name: str) -> None:
    p = Program(alone.worker_socket(0))
    fd = sealed_memfd(8)
    command = {"REGISTER": (PAGE, 0, 0, 7, 15, 1, 0), "ALLOC_DM": (PAGE, 3, 0)}[name]
    p.send(wire.command(getattr(wire, name), *command), fds=[fd])
    assert p.reason() == f"{name}: memfd is shorter than the length named"
