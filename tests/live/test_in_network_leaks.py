"""Slots never leak: a thousand collectives of groups that come and go, with ranks that die at any moment."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import pytest

from testbed.fabric.lab import Lab
from tests.parts.machine import wait_until
from tests.parts.offload_fabric import offload_fabric
from workloads.verbs import Device, Group, Region, wire

TOPOLOGY = "{clos: {leaves: 4, spines: 2, hosts_per_leaf: 6}}"
RANKS, JOBS, EACH = 24, 60, 8
ARGS = (16, 64, 20_000_000, 2, 0)  # slots, elements, timeout in ps, retry, no cost of conversion
MOMENTS = ("before it calls", "while the group opens", "before the collective", "in it", "before it leaves")


@dataclass(frozen=True)
class Job:
    number: int
    ranks: tuple[int, ...]
    dies: int | None = None  # a rank
    when: str = ""
    before: int = 0  # the collective before which, or in which


def jobs(seed: int) -> list[Job]:
    """Jobs of two to six ranks, in the order in which every rank takes them; every third kills one of its ranks.

    Every other one is of ranks behind one switch, as long as two live there.
    """
    draw = random.Random(seed)
    alive = list(range(RANKS))
    planned = []
    for number in range(JOBS):
        near = [rank for rank in alive if rank // 6 == number // 2 % 4]
        among = near if number % 2 and len(near) > 1 else alive
        ranks = tuple(sorted(draw.sample(among, draw.randint(2, min(6, len(among))))))
        dies = draw.choice(ranks) if number % 3 == 2 and len(alive) > 6 else None
        planned.append(Job(number, ranks, dies, draw.choice(MOMENTS), draw.randrange(EACH)))
        if dies is not None:
            alive.remove(dies)
    return planned


class Killed(Exception):
    pass


class Rank:
    def __init__(self, device: Device, kind: str) -> None:
        self.device, self.kind = device, kind
        self.region: Region = device.region(1 << 14)
        self.done = 0

    def take_part(self, job: Job) -> None:
        dies = job.dies == self.device.rank
        if dies and job.when == "before it calls":
            raise Killed
        if dies and job.when == "while the group opens":
            self.device.session.queue(wire.GROUP, self.kind.encode(), job.number, 1, len(job.ranks), 0, *ARGS, 0, 0, 0,
                               data=b"".join(r.to_bytes(4, "little") for r in job.ranks))  # fmt: skip
            self.device.session.flush()
            raise Killed
        group = self.device.group(self.kind, job.number, job.ranks, ARGS)
        if not group.refused:
            self._collectives(job, group, dies)
        if dies:
            raise Killed
        group.leave()

    def _collectives(self, job: Job, group: Group, dies: bool) -> None:
        for k in range(EACH):
            last = dies and k == job.before
            if last and job.when == "before the collective":
                raise Killed
            group.post(self.region, 0, self.region, 8192, 2000)
            if last and job.when == "in it":
                self.device.session.flush()
                raise Killed
            records = self.device.wait()
            if any(r.kind == wire.GROUP_FAILED for r in records):
                return
            self.done += 1


@pytest.mark.parametrize(("kind", "shared"), [("aggregate", 0), ("best_effort", 64)])
def test_slots_never_leak(kind: str, shared: int) -> None:
    planned = jobs(seed=len(TOPOLOGY))
    killed = [job.dies for job in planned if job.dies is not None]
    used = "shared_used_max" if shared else "slots_used_max"
    with offload_fabric(TOPOLOGY, f"{{slots: 64, shared_slots: {shared}}}") as lab:
        done = play(lab, planned, kind)
        assert done >= JOBS * EACH * 2, "collectives have been done, by two ranks at least"
        wait_until(lambda: pools_are_empty(lab), "all slots to be free")
        counted = lab.fabricd.request("counters")["accelerators"]
        assert all(pool[used] > 0 for pool in counted if pool["switch"].startswith("leaf"))
        assert len(killed) > 15


def pools_are_empty(lab: Lab) -> bool:
    pools = lab.fabricd.request("counters")["accelerators"]
    return all(p["slots_free"] == p["slots"] - p["shared_slots"] and not p["shared_used"] for p in pools)


def play(lab: Lab, planned: list[Job], kind: str) -> int:
    """Every rank takes its jobs in order. Returns how many collectives were done, counted by rank."""
    lab.fabricd.request("start", ranks=list(range(RANKS)))
    done: list[int] = []
    errors: list[BaseException] = []

    def live(number: int) -> None:
        device = Device(str(lab.worker_dir(number) / "sock"))
        try:
            rank = Rank(device, kind)
            try:
                for job in planned:
                    if number in job.ranks:
                        rank.take_part(job)
                device.close()
            except Killed:
                device.session.close()
            done.append(rank.done)
        except BaseException as error:
            errors.append(error)
            device.session.close()

    threads = [threading.Thread(target=live, args=(number,), daemon=True) for number in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive(), f"a rank hangs: {lab.fabricd.request('status')['workers']}"
    if errors:
        raise errors[0]
    return sum(done)
