"""Raw workers in a multicast group on a star; the test itself plays the controller."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hardware.client import Fabricd
from hardware.config import Hardware
from tests.parts.fabricd_fixture import DEADLINE_S, BareFabric, RawWorker, bare_fabric
from workloads.verbs import wire
from workloads.verbs.wire import Record

GROUP_IP = 0xEF000001  # 239.0.0.1
GROUP_MAC = "01:00:5e:00:00:01"
NO_ROOT = 2**64 - 1
ARM, START = 0, 1
SLACK_PS = 5_000_000
LATER_PS = 10**10
BITMAP_AT = 1 << 20  # in every member's region: the vector lies before it


def group(ranks: Sequence[int], *, payload: int = 4096, kind: bytes = b"multicast", tag: int = 1) -> bytes:
    members = b"".join(rank.to_bytes(4, "little") for rank in ranks)
    return wire.command(wire.GROUP, kind, tag, 9, len(ranks), 0, payload, *[0] * 7, data=members)


def offload(
    number: int,
    what: int,
    key: int,
    *args: int,
    nbytes: int = 0,
    wr_id: int = 7,
    at: int = 0,
    bitmap_at: int = BITMAP_AT,
) -> bytes:
    given = (*args, 0, 0, 0, 0)[:4]
    return wire.command(wire.POST_OFFLOAD, number, what, 0, 0, 0, wr_id, key, key, bitmap_at, at, nbytes, *given)


class Refused(Exception):
    """The group was, and why."""


@dataclass
class Member:
    worker: RawWorker
    key: int
    memory: mmap.mmap


class Members:
    """All members, waiting for nothing."""

    def __init__(self, f: BareFabric, controller: Fabricd, members: list[Member], number: int) -> None:
        self.f, self.controller, self.members, self.number = f, controller, members, number
        self.more: list[Record] = []  # that came besides

    def arm(self, i: int, nbytes: int, *, operation: int = 1, root: int = NO_ROOT, element: int = 1) -> bytes:
        return offload(self.number, ARM, self.members[i].key, operation, root, element, nbytes=nbytes)

    def start(self, i: int, *, operation: int = 1, slack_ps: int = SLACK_PS, chains: int | None = None) -> bytes:
        given = operation, slack_ps, len(self.members) if chains is None else chains
        return offload(self.number, START, self.members[i].key, *given)

    def run(
        self, nbytes: int, *, operation: int = 1, root: int = NO_ROOT, element: int = 1, **how: Any
    ) -> list[Record]:
        """All arm and start at one time, and stand at one time again much later.

        Returns the records in which the operation ended, with times from its beginning on.
        """
        begin = {m.worker.time_ps for m in self.members}
        assert len(begin) == 1, "all stand at one time"
        (base,) = begin
        for i, m in enumerate(self.members):
            arm = self.arm(i, nbytes, operation=operation, root=root, element=element)
            m.worker.begin_wait(10_000, base + LATER_PS, arm, self.start(i, operation=operation, **how))
        records = []
        for m in self.members:
            came = m.worker.end_wait()
            (ended,) = (r for r in came if r.kind == wire.OFFLOADED)
            records.append(ended._replace(time_ps=ended.time_ps - base))
            self.more += [r for r in came if r is not ended]
        return records

    def bitmap(self, i: int, words: int = 1) -> int:
        return int.from_bytes(self.members[i].memory[BITMAP_AT : BITMAP_AT + 8 * words], "little")


def answer_job(controller: Fabricd, what: str = "job", **answer: Any) -> dict[str, Any]:
    """What a controller does when ranks want a collective offloaded, or are done with it (`job_closed`)."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for event in controller.events(0.1):
            if event["event"] == what:
                controller.request("settled", event=event["id"], **answer)
                return event
    raise AssertionError(f"no {what} event")


@contextlib.contextmanager
def multicast_group(
    hosts: int, hardware: Hardware | None = None, *, payload: int = 4096, rules: bool = True, answer: Any = None
) -> Iterator[Members]:
    with bare_fabric("star", {"hosts": hosts}, hardware or Hardware()) as f:
        if rules:
            ports = ",".join(f"output:{f.port_to('sw0', f'h{i}')}" for i in range(hosts))
            f.ofctl("add-flow", f.bridge("sw0"), f"dl_dst={GROUP_MAC},actions={ports}")
        controller = Fabricd(f.directory / "control.sock")
        controller.subscribe(acts="controller")
        ranks = range(hosts)
        f.start(*ranks)
        members = [Member(w, *w.region(BITMAP_AT + 4096)) for w in map(f.worker, ranks)]
        for m in members:
            m.worker.begin_wait(1, wire.FOREVER, group(ranks, payload=payload))
        job = answer_job(controller, job=answer or {"group_ip": GROUP_IP})
        assert (job["kind"], job["ranks"], job["args"][0]) == ("multicast", list(ranks), payload)
        told = [m.worker.end_wait()[0] for m in members]
        assert {r.kind for r in told} == {wire.GROUPED}
        if told[0].private:
            assert len({r.private for r in told}) == 1
            raise Refused(told[0].private.decode())
        yield Members(f, controller, members, told[0].qp)
        for m in members:
            with contextlib.suppress(OSError):  # its session has ended
                m.worker.bye()
        controller.close()
