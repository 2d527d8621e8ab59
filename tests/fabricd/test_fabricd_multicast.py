"""Multicast in the NIC: what is placed where and when, what is dropped, when it is cut off, whose turn it is."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.config import Hardware
from tests.parts.fabricd_fixture import SessionOver, bare_fabric
from tests.parts.multicast_group import (
    ARM,
    BITMAP_AT,
    NO_ROOT,
    SLACK_PS,
    START,
    Members,
    Refused,
    answer_job,
    group,
    multicast_group,
    offload,
)
from tests.parts.timing_model import Model, wire_ps
from tests.parts.wire_view import watched
from workloads.offloads.chunking import Chunks, span
from workloads.verbs import wire

H = Hardware()
MODEL = Model(H, 1)
OFF = 24
FULL_PS = wire_ps(H.cable_rate_bps, 4096, OFF)
STARTED_PS = 2 * MODEL.doorbell - MODEL.pcie  # arm and start are posted, and start has reached the NIC
FRAME = 14 + 20 + 8 + 12 + OFF + 4


def fill(group: Members, nbytes: int, root: int | None) -> bytes:
    """Random input of whoever has one, and what would be wrong anywhere else."""
    vector = os.urandom(nbytes)
    chunks = Chunks(nbytes, 1, 4096, 1 if root is not None else len(group.members))
    for i, m in enumerate(group.members):
        m.memory[:nbytes] = bytes(nbytes)
        first, end = (0, nbytes if i == root else 0) if root is not None else (chunks.edges[i], chunks.edges[i + 1])
        m.memory[first:end] = vector[first:end]
    return vector


def lose(group: Members, port: str, **select: object) -> None:
    match = {"opcodes": ["MULTICAST"]}
    group.f.fabricd.request(
        "inject",
        fault=f"lose {port} {select}",
        primitive="frames",
        ports=[port],
        effect="drop",
        match=match,
        select=select,
    )


def test_broadcast_is_placed_and_timed() -> None:
    with multicast_group(3) as g:
        vector = fill(g, 10_000, 0)
        root, *others = g.run(10_000, root=0)
        assert (root.kind, root.nbytes, root.wr_id) == (wire.OFFLOADED, 0, 7)
        fetched = STARTED_PS + MODEL.pcie_ps(4096) + MODEL.pcie
        second = fetched + 3 * FULL_PS + MODEL.passing
        # the last, shorter one has come before the one ahead of it has gone over PCIe
        written = second + MODEL.pcie_ps(4096) + MODEL.pcie_ps(10_000 - 8192)
        assert [(r.nbytes, r.time_ps) for r in others] == [(0, written + MODEL.pcie)] * 2
        assert all(m.memory[:10_000] == vector for m in g.members)
        nics = g.f.counters()["nics"]
        frames = [4096, 4096, 10_000 - 8192]
        assert nics[0]["tx_vport_rdma_multicast_bytes"] == sum(frames) + 3 * FRAME
        assert nics[0]["tx_vport_rdma_unicast_bytes"] == 0
        assert [n["rx_vport_rdma_multicast_packets"] for n in nics] == [0, 3, 3]


def test_all_gather_sends_every_part_once() -> None:
    with multicast_group(4) as g:
        vector = fill(g, 4 * 8192, None)
        records = g.run(4 * 8192)
        assert all(m.memory[: 4 * 8192] == vector for m in g.members)
        # a frame of each every three frames' time; the last ones of the others come one behind the other
        arrived = STARTED_PS + MODEL.pcie_ps(4096) + MODEL.pcie + 3 * FULL_PS + 4 * FULL_PS + MODEL.passing
        assert [r.time_ps for r in records] == [arrived + MODEL.pcie_ps(4096) + MODEL.pcie] * 4
        for nic in g.f.counters()["nics"]:
            assert nic["tx_vport_rdma_multicast_bytes"] == 2 * (4096 + FRAME)
            assert nic["rx_vport_rdma_multicast_bytes"] == 3 * 2 * (4096 + FRAME)
            assert nic["pcie_read_bytes"] == 8192, "fetched once, for all receivers"
            assert nic["pcie_write_bytes"] == 3 * 8192


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_size_number_and_chains(data: st.DataObject) -> None:
    hosts = data.draw(st.integers(2, 5))
    with multicast_group(hosts, payload=256) as g:
        for operation in range(1, 4):
            elements, element = data.draw(st.integers(1, 3000)), data.draw(st.sampled_from([1, 2, 4, 8]))
            root = data.draw(st.one_of(st.none(), st.integers(0, hosts - 1)))
            nbytes = elements * element
            chunks = Chunks(nbytes, element, 256, hosts if root is None else 1)
            vector = os.urandom(nbytes)
            for i, m in enumerate(g.members):
                m.memory[:nbytes] = bytes(nbytes)
                first, end = (0, nbytes) if root == i else (0, 0) if root is not None else chunks.edges[i : i + 2]
                m.memory[first:end] = vector[first:end]
            chains = data.draw(st.integers(1, hosts))
            number = NO_ROOT if root is None else root
            records = g.run(nbytes, operation=operation, root=number, element=element, chains=chains)
            assert [r.nbytes for r in records] == [0] * hosts
            assert all(m.memory[:nbytes] == vector for m in g.members)
        assert g.f.counters()["drops"] == []


@pytest.mark.parametrize(("nbytes", "lost"), [(4 * 4096, 1), (4 * 4096, 4), (100, 1)])
def test_what_does_not_come_is_cut_off(nbytes: int, lost: int) -> None:
    """Slack after S/B, or after the last that came; the bitmap says what is here, the record how much is not."""
    with multicast_group(3) as g:
        vector = fill(g, nbytes, 0)
        lose(g, f"sw0:{g.f.port_to('sw0', 'h2')}", first=lost)
        _, whole, part = g.run(nbytes, root=0)
        assert (whole.nbytes, part.nbytes) == (0, lost)
        chunks = -(-nbytes // 4096)
        assert g.bitmap(2) == span(lost, chunks)
        assert g.members[2].memory[:nbytes] == bytes(min(lost * 4096, nbytes)) + vector[lost * 4096 :]
        sent = STARTED_PS + MODEL.pcie_ps(4096) + MODEL.pcie
        last = sent + (chunks + 1) * FULL_PS + MODEL.passing if lost < chunks else 0
        cut = max(STARTED_PS + chunks * FULL_PS, last) + SLACK_PS
        assert part.time_ps == cut + MODEL.pcie_ps(8) + MODEL.pcie
        assert g.f.nic(2)["local_ack_timeout_err"] == 1


def test_the_cutoff_waits_for_what_still_comes() -> None:
    """Slack after the last chunk, where that is later: here the only one that comes is held up for 2 us."""
    with multicast_group(2) as g:
        fill(g, 8192, 0)
        out = f"sw0:{g.f.port_to('sw0', 'h1')}"
        lose(g, out, first=1)
        g.f.fabricd.request(
            "inject",
            fault="slow",
            primitive="frames",
            ports=[out],
            effect="delay",
            delay_ns=2000,
            jitter_ns=0,
            reorder=False,
        )
        _, part = g.run(8192, root=0)
        arrived = STARTED_PS + MODEL.pcie_ps(4096) + MODEL.pcie + 3 * FULL_PS + MODEL.passing + 2_000_000
        assert part.nbytes == 1
        assert part.time_ps == arrived + SLACK_PS + MODEL.pcie_ps(8) + MODEL.pcie


def test_duplicates_and_what_comes_too_late_change_nothing() -> None:
    with multicast_group(2) as g:
        vector = fill(g, 8192, 0)
        g.f.fabricd.request("inject", fault="twice", primitive="frames", ports=["h0:1"], effect="duplicate")
        _, record = g.run(8192, root=0)
        assert (record.nbytes, g.members[1].memory[:8192] == vector) == (0, True)
        assert g.f.nic(1)["duplicate_request"] == 2
        g.f.fabricd.request("heal", fault="twice")
        out = f"sw0:{g.f.port_to('sw0', 'h1')}"
        g.f.fabricd.request(
            "inject", fault="late", primitive="frames", ports=[out], effect="delay", delay_ns=50_000, jitter_ns=0,
            reorder=True, select={"first": 2},
        )  # fmt: skip
        fill(g, 8192, 0)
        _, record = g.run(8192, operation=2, root=0)
        assert record.nbytes == 2
        assert g.members[1].memory[:8192] == bytes(8192), "an operation that has ended takes nothing"
        assert g.f.nic(1)["duplicate_request"] == 4


def test_what_comes_before_it_is_armed_is_dropped_and_counted() -> None:
    with multicast_group(2) as g:
        fill(g, 4096, 0)
        early, late = g.members
        end = late.worker.time_ps + 60_000_000
        late.worker.begin_wait(1, late.worker.time_ps + 20_000_000)
        early.worker.begin_wait(2, end, g.arm(0, 4096, root=0), g.start(0))
        assert late.worker.end_wait() == []
        late.worker.begin_wait(2, end, g.arm(1, 4096, root=0), g.start(1))
        assert [r.nbytes for m in g.members for r in m.worker.end_wait()] == [0, 1]
        assert g.f.nic(1)["rx_out_of_buffer"] == 1
        assert {(d["node"], d["reason"]): d["count"] for d in g.f.counters()["drops"]} == {
            ("h1", "no_receive_buffer"): 1
        }


def test_turns_follow_each_other() -> None:
    """One chain of three: each starts when the last packet of the one before has come in."""
    with multicast_group(3) as g:
        vector = fill(g, 3 * 8192, None)
        records = g.run(3 * 8192, chains=1)
        assert all(m.memory[: 3 * 8192] == vector for m in g.members)
        part = 2 * FULL_PS + FULL_PS + MODEL.passing  # two packets, to the last bit at the others
        turn = MODEL.pcie_ps(4096) + MODEL.pcie + part
        assert [r.nbytes for r in records] == [0] * 3
        assert records[0].time_ps == STARTED_PS + 3 * turn + MODEL.pcie_ps(4096) + MODEL.pcie


def test_a_silent_sender_costs_its_slack_only() -> None:
    """Of the second of a chain nothing comes at all: the third starts by what it heard from the first."""
    with multicast_group(3) as g:
        fill(g, 3 * 8192, None)
        lose(g, "h1:1")
        lose(g, f"sw0:{g.f.port_to('sw0', 'h1')}")
        base = g.members[0].worker.time_ps
        with watched(g.f, "h2:1") as seen:
            records = g.run(3 * 8192, chains=1)
        assert [r.nbytes for r in records] == [2, 4, 2]
        # the third has heard the first's last packet, and adds the second's time and one slack
        heard = STARTED_PS + MODEL.pcie_ps(4096) + MODEL.pcie + 3 * FULL_PS + MODEL.passing
        sent = heard + 2 * FULL_PS + SLACK_PS + MODEL.pcie_ps(4096) + MODEL.pcie
        first = next(s for s in seen["frames"] if s.out)
        assert (first.opcode, first.psn, first.time_ns) == (0xC2, 4, (base + sent) // 1000)
        cut = STARTED_PS + 6 * FULL_PS + 3 * SLACK_PS
        assert records[0].time_ps == cut + MODEL.pcie_ps(8) + MODEL.pcie
        assert g.bitmap(0) == 0b110011


def test_a_group_without_a_way_is_given_up() -> None:
    """After 64 chunks of a sender none of which came, all members are told which switch has no rule."""
    with multicast_group(3, rules=False) as g:
        for operation in range(1, 5):
            records = g.run(16 * 4096, operation=operation, root=0)
            assert [r.nbytes for r in records] == [0, 16, 16]
            assert [r.kind for r in g.more] == [wire.GROUP_FAILED] * 3 * (operation == 4)
        said = {r.private.decode() for r in g.more}
        assert said == {"nothing that rank 0 multicasts comes to rank 1; no rule sends its frames on at sw0"}


def test_a_controller_that_refuses() -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        f.start(0, 1)
        workers = [f.worker(i) for i in range(2)]
        for w in workers:
            w.begin_wait(1, wire.FOREVER, group([0, 1]))
        assert {w.end_wait()[0].private for w in workers} == {b"there is no controller"}
        for w in workers:
            w.bye()


def test_an_answer_without_an_address_is_a_refusal() -> None:
    with pytest.raises(Refused, match="no multicast address"), multicast_group(2, answer={"group_ip": 1}):
        pass


HOSTILE = {
    "root": (lambda n, k: offload(n, ARM, k, 1, 2, 1, nbytes=8), "root: no such member"),
    "nothing": (lambda n, k: offload(n, ARM, k, 1, 0, 1, nbytes=0), "a vector of 1 byte to 1 TiB"),
    "split element": (lambda n, k: offload(n, ARM, k, 1, 0, 8, nbytes=12), "of whole elements"),
    "element": (lambda n, k: offload(n, ARM, k, 1, 0, 0, nbytes=12), "of whole elements"),
    "number": (lambda n, k: offload(n, ARM, k, 1 << 32, 0, 1, nbytes=12), "number of an operation"),
    "packets": (lambda n, k: offload(n, ARM, k, 1, 0, 1, nbytes=1 << 37), "more than 2^24 packets"),
    "vector": (lambda n, k: offload(n, ARM, k, 1, 0, 1, nbytes=BITMAP_AT + 4097), "outside its region"),
    "vector's place": (lambda n, k: offload(n, ARM, k, 1, 0, 1, nbytes=8, at=2**64 - 4), "outside its region"),
    "bitmap": (lambda n, k: offload(n, ARM, k, 1, 0, 1, nbytes=8, bitmap_at=BITMAP_AT + 4089), "outside its region"),
    "key": (lambda n, k: offload(n, ARM, k + 1, 1, 0, 1, nbytes=8), "unknown key"),
    "request": (lambda n, k: offload(n, 2, k), "0 (arm) or 1 (start)"),
    "no slack": (lambda n, k: offload(n, START, k, 1, 0, 1), "slack from 1 ns to 1 s"),
    "slack": (lambda n, k: offload(n, START, k, 1, 2**63, 1), "slack from 1 ns to 1 s"),
    "no chains": (lambda n, k: offload(n, START, k, 1, 5000, 0), "chains from 1"),
    "chains": (lambda n, k: offload(n, START, k, 1, 5000, 3), "chains from 1"),
    "group": (lambda n, k: offload(n + 1, ARM, k, 1, 0, 1, nbytes=8), "no such group"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_requests_end_their_session_alone(what: str) -> None:
    request, why = HOSTILE[what]
    with multicast_group(2) as g:
        bad, good = g.members
        bad.worker.send(request(g.number, bad.key))
        assert why in bad.worker.reason()
        failed, ended = good.worker.wait(2, wire.FOREVER, g.arm(1, 4096, root=1), g.start(1))
        assert (failed.kind, failed.private) == (wire.GROUP_FAILED, b"rank 0 has ended")
        assert (ended.kind, ended.nbytes) == (wire.OFFLOADED, 0)


@pytest.mark.parametrize("payload", [0, 9001])
def test_a_group_with_a_wrong_payload(payload: int) -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        w = f.worker(0)
        w.send(group([0, 1], payload=payload))
        assert "payload of a packet from 1 to 9000 bytes" in w.reason()


def test_payload_beyond_the_mtu_is_refused() -> None:
    with pytest.raises(Refused, match="longer than the MTU"), multicast_group(2, payload=4097):
        pass


def test_starts_without_arms_are_flushed() -> None:
    with multicast_group(2) as g:
        a, b = g.members
        b.worker.begin_wait(1, b.worker.time_ps + 50_000_000)
        (record,) = a.worker.wait(1, wire.FOREVER, g.start(0))
        assert (record.kind, record.status) == (wire.OFFLOADED, 5)
        a.worker.begin_wait(1, b.worker.time_ps + 60_000_000)
        b.worker.end_wait()


def test_a_member_that_dies_leaves_the_others_a_cutoff() -> None:
    with multicast_group(3) as g:
        fill(g, 3 * 4096, None)
        dead, *alive = g.members
        dead.worker.socket.close()
        for i, m in enumerate(alive, start=1):
            m.worker.begin_wait(2, wire.FOREVER, g.arm(i, 3 * 4096), g.start(i))
        records = [m.worker.end_wait() for m in alive]
        assert [[r.kind for r in both] for both in records] == [[wire.GROUP_FAILED, wire.OFFLOADED]] * 2
        assert [ended.nbytes for _, ended in records] == [1, 1]
        assert [g.bitmap(i) for i in (1, 2)] == [0b110, 0b110]


def test_a_session_that_is_over_is_over() -> None:
    with multicast_group(2) as g:
        a, b = g.members
        for m in g.members:
            m.worker.send(wire.command(wire.LEAVE, g.number, 0))
        b.worker.begin_wait(1, b.worker.time_ps + 10_000_000)
        a.worker.begin_wait(1, a.worker.time_ps + 1_000_000)
        answer_job(g.controller, "job_closed")
        assert a.worker.end_wait() == []
        with pytest.raises(SessionOver, match="no such group, or not open"):
            a.worker.wait(1, wire.FOREVER, g.arm(0, 8, root=0))
        b.worker.end_wait()
