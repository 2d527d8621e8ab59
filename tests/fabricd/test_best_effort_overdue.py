"""Which contributions a rank takes for lost: by three later sums, or by silence, and then the oldest alone.

Contributions go straight to the parameter server, rank 0: there is no accelerator. What must come of it is counted by
hand, from ATP's rules (Lao et al., NSDI 2021, section 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.client import Fabricd
from hardware.config import Hardware
from tests.parts.fabricd_fixture import DEFAULTS, BareFabric, bare_fabric
from tests.parts.multicast_group import GROUP_IP, GROUP_MAC, answer_job
from tests.parts.traffic_fabric import switch
from workloads.verbs import Device, wire
from workloads.verbs.wire import Record

BLOCKS, ELEMENTS, TIMEOUT_NS, RETRY = 16, 256, 20_000, 6


WIRE_BYTES = 14 + 20 + 8 + 12 + 24 + 4 * ELEMENTS + 4 + 4


def marks_above(frames: int) -> dict[str, Any]:
    return {"3": {"kmin_bytes": frames * WIRE_BYTES, "kmax_bytes": frames * WIRE_BYTES, "pmax": 1.0}}


class Job:
    """All blocks of one vector, by ranks of which the last begins `late_ns` after the others."""

    def __init__(self, f: BareFabric, ranks: int, late_ns: float, blocks: int) -> None:
        self.f, self.ranks, self.late_ns, self.count = f, ranks, late_ns, blocks * ELEMENTS

    def one(self, rank: int) -> tuple[float, Record, bool]:
        with Device(str(self.f.worker_socket(rank))) as device:
            args = (BLOCKS, ELEMENTS, TIMEOUT_NS * 1000, RETRY, 0, 0)
            group = device.group("best_effort", 1, range(self.ranks), args)
            region, result = device.region(1 << 17), device.region(1 << 17)
            region.view("int32")[:] = rank + 1
            begin = device.sync(1, self.ranks)
            device.spend(self.late_ns if rank == self.ranks - 1 else 0)
            group.post(region, 0, result, 0, self.count)
            (record,) = device.wait()
            total = self.ranks * (self.ranks + 1) // 2
            right = bool((result.view("int32", 0, self.count) == total).all())
            device.sync(2, self.ranks)
            return record.time_ps / 1000 - begin, record, right


@contextmanager
def jobs(ranks: int, hardware: Hardware = DEFAULTS) -> Iterator[BareFabric]:
    with bare_fabric("star", {"hosts": ranks}, hardware) as f:
        ports = ",".join(f"output:{f.port_to('sw0', f'h{i}')}" for i in range(ranks))
        f.ofctl("add-flow", f.bridge("sw0"), f"dl_dst={GROUP_MAC},actions={ports}")
        yield f


def of_sums(
    f: BareFabric, fault: str, effect: str, first: int, match: dict[str, Any] | None = None, **how: Any
) -> None:
    """What becomes of the first sums on the cable to rank 1."""
    port = f"sw0:{f.port_to('sw0', 'h1')}"
    said: dict[str, Any] = {"fault": fault, "primitive": "frames", "effect": effect, "ports": [port], **how}
    f.fabricd.request("inject", **said, select={"first": first}, match={"opcodes": ["RESULT"], **(match or {})})


def done(f: BareFabric, ranks: int, late_ns: float = 0, blocks: int = BLOCKS) -> list[tuple[float, Record, bool]]:
    controller = Fabricd(f.directory / "control.sock")
    controller.subscribe(acts="controller")
    f.start(*range(ranks))
    server = int(f.fabric.nics[0].ip)
    answer = {"group_ip": GROUP_IP, "hops": [server] * ranks, "shared_slots": 64, "tree": [], "slots": BLOCKS}
    with ThreadPoolExecutor(ranks) as pool:
        told = [pool.submit(Job(f, ranks, late_ns, blocks).one, rank) for rank in range(ranks)]
        answer_job(controller, job=answer)
        came = [one.result(60) for one in told]
    controller.close()
    return came


def sent_again(f: BareFabric, rank: int) -> tuple[int, int]:
    nic = f.nic(rank)
    return nic["retransmitted"], nic["local_ack_timeout_err"]


def test_three_later_sums_bring_a_block_back_as_often_as_it_is_lost() -> None:
    """Sums 0 to 3 are lost: 4, 5 and 6 bring all four back. The first answer is lost, too: the three others do it."""
    with jobs(2) as f:
        of_sums(f, "sums", "drop", 4)
        of_sums(f, "answer", "drop", 1, {"dst_rank": 1})
        came = done(f, 2)
        assert all(record.kind == wire.OFFLOADED and right for _, record, right in came)
        assert sent_again(f, 1) == (4 + 1, 0), "nobody waits for a timer"
        assert sent_again(f, 0) == (4 + 1, 0), "the server answers each question, and this rank alone"


@pytest.mark.parametrize("overtaken_by", [2, 3])
def test_two_later_sums_are_disorder_and_three_a_loss(overtaken_by: int) -> None:
    """The first sum comes late, by so many frames on its cable; there is more to send than the lanes take."""
    frame_ns = (WIRE_BYTES + 20) * 8 / 400
    with jobs(2) as f:
        of_sums(f, "late", "delay", 1, delay_ns=(overtaken_by + 0.5) * frame_ns, jitter_ns=0, reorder=True)
        came = done(f, 2, blocks=2 * BLOCKS)
        assert all(record.kind == wire.OFFLOADED and right for _, record, right in came)
        assert sent_again(f, 1) == (overtaken_by == 3, 0)


def test_after_a_mark_the_window_is_half_and_grows_by_a_block_for_each_window() -> None:
    """ATP's AIMD (section 3.6). Two ranks' first 16 contributions meet on the server's cable.

    Its queue is longest when all have come. Half of them have left then, and the next one, of block 8, is marked. Sums
    pace what follows, so nothing else queues. Of 80 blocks 0 to 15 go at once, and 16 to 23 by sums 0 to 7. Sum 8
    halves the window; when sum 16 comes 7 are under way, and the window is 9. From then on rounds are of 9, 10, 11, 12
    and 13, and the last block is alone: 8 rounds instead of 5 of 16. If each sum brought a block, it would be 6.
    """

    def took(blocks: int, marks: dict[str, Any]) -> float:
        with jobs(3, Hardware(switch=switch(ecn=marks))) as f:
            came = done(f, 3, blocks=blocks)
            assert all(record.kind == wire.OFFLOADED and right for _, record, right in came)
            assert sent_again(f, 1) == (0, 0)
            return came[1][0]

    whole = took(5 * BLOCKS, {})
    round_ns = (whole - took(BLOCKS, {})) / 4
    assert 2.7 < (took(5 * BLOCKS, marks_above(14)) - whole) / round_ns < 3


def test_in_silence_the_oldest_block_goes_again_and_no_other() -> None:
    """No sum ever comes: each silence brings one block. From the third on they double, up to eight times the first."""
    with jobs(2) as f:
        of_sums(f, "sums", "drop", 10**6)
        came = done(f, 2)
        took, record, _ = came[1]
        assert record.kind == wire.GROUP_FAILED and b"no parameter server answers rank 1" in record.private
        assert sent_again(f, 1) == (RETRY, RETRY + 1)
        silences = 1 + 1 + 2 + 4 + 8 + 8 + 8
        assert silences * TIMEOUT_NS < took < silences * TIMEOUT_NS + 2_000


def test_when_a_silence_ends_all_that_was_lost_before_it_goes_again_at_once() -> None:
    """No sum of 8 blocks comes. After 20 us the oldest goes again; it is answered, and the other 7 follow."""
    with jobs(2) as f:
        of_sums(f, "sums", "drop", 8)
        came = done(f, 2, blocks=8)
        assert all(record.kind == wire.OFFLOADED and right for _, record, right in came)
        assert sent_again(f, 1) == (8, 1)
        assert TIMEOUT_NS < came[1][0] < TIMEOUT_NS + 15_000, "three round trips"


def test_a_rank_that_is_late_costs_the_others_one_block_for_each_silence() -> None:
    """It comes after the second silence (at 20 and 40 us), and has lost nothing: of 16 blocks two go again, not 32."""
    with jobs(3) as f:
        came = done(f, 3, late_ns=70_000)
        assert all(record.kind == wire.OFFLOADED and right for _, record, right in came)
        assert [sent_again(f, rank) for rank in (1, 2)] == [(2, 2), (0, 0)]
        assert came[1][0] < 70_000 + 8_000
