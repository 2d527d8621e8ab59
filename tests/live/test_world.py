"""A world: what is read at a hold follows from what was asked of it, and from nothing else."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.base.errors import UserError
from testbed.experiment import loads
from testbed.faults import Injection
from testbed.world.world import World

RING = """
name: ring
fabric: {topology: {star: {hosts: 3}}, nic: {timeout: 20us, retry: 3}}
transport: {cc: dcqcn}
workload: [{collective: all_reduce, algorithm: ring, sizes: [32KiB], iterations: 9, warmup: 2}]
"""
LOSS: dict[str, Any] = {"fault": "loss", "on": "cable:h0-sw0", "rate": 0.05}


def up(text: str = RING, **how: Any) -> World:
    return World.up(loads(text), **how)


@pytest.fixture(scope="module")
def ring() -> Iterator[World]:
    with up() as world:
        yield world


def play(world: World, dither: bool) -> list[str]:
    """A log of actions; with `dither` somebody sleeps and reads between them."""
    seen = []

    def look() -> None:
        for _ in range(random.randrange(100) if dither else 0):
            random.choice([world.counters, lambda: world.request("status")])()
        if dither:
            time.sleep(random.random() / 10)
        seen.append(world.digest())

    look()
    world.advance(23_001)
    look()
    name = world.put_in(Injection.of(LOSS))
    look()
    world.until("drops > 0", 500_000)
    look()
    world.request("cable", cable="h1-sw0", up=False)
    world.advance(1)
    look()
    world.request("cable", cable="h1-sw0", up=True)
    world.take_out(name)
    look()
    world.advance_steps(2, 1_000_000)
    look()
    return seen


def test_two_worlds_of_which_the_same_is_asked_are_equal_at_every_hold() -> None:
    with up() as one, up() as other:
        assert play(one, dither=False) == play(other, dither=True)
        assert one.steps == other.steps
        assert list(one.history()) != []


def test_steps_are_there_when_they_have_ended_and_not_before(ring: World) -> None:
    ring.advance_steps(3, 1_000_000)
    last = ring.steps[-1]
    assert last.end_ns <= ring.time_ns < last.end_ns + last.time_ns / 8
    ring.advance(int(last.time_ns) + 5_000 - (ring.time_ns - int(last.end_ns)))
    following = ring.steps[-1]
    assert following.number == last.number + 1
    assert following.time_ns == last.time_ns == ring.best_ns  # healthy: always the same
    assert sorted(following.ranks) == [0, 1, 2]
    for told in following.ranks.values():
        assert (told.wrong, told.compute_ns, told.fallback) == (0, 0.0, "")
        assert told.host_ns > 0
        assert told.host_ns + told.wait_ns == pytest.approx(told.end_ns - told.start_ns)


def test_a_fault_put_in_at_a_hold_acts_from_there_on_and_healed_leaves_nothing(ring: World) -> None:
    healthy = ring.best_ns
    at = ring.time_ns
    name = ring.put_in(Injection.of({**LOSS, "rate": 0.2}))
    (fault,) = ring.request("faults")["faults"]
    assert (fault["since_ns"], ring.time_ns) == (at, at)
    assert ring.until("step > 1.2x", 2_000_000)
    assert ring.take_out(name) == [name]
    ring.advance_steps(3, 2_000_000)
    assert ring.steps[-1].time_ns == healthy


def test_history_has_counters_at_a_fixed_period(ring: World) -> None:
    ring.advance(120_000)
    times = [time_ns for time_ns, _ in ring.history()]
    assert times == list(range(0, ring.time_ns + 1, 50_000))
    when, counters = ring.history()[-1]
    assert counters["time_ns"] == when


def test_until_gives_up_at_its_limit(ring: World) -> None:
    at = ring.time_ns
    assert not ring.until("step > 50x", 100_000)
    assert ring.time_ns == at + 100_000


def test_steps_of_tasks_mix_computing_and_communication() -> None:
    """A rank computes for 20 us, and then all reduce. A straggler is seen by what keeps it busy."""
    text = """
name: train
fabric: {topology: {star: {hosts: 3}}}
workload:
  - tasks:
      groups: {all: [[0, 1, 2]]}
      list:
        - {id: forward, compute: 20us}
        - {id: sum, collective: all_reduce, algorithm: ring, group: all, size: 16KiB, after: [forward]}
  - {collective: barrier}
"""
    with up(text) as world:
        world.advance_steps(2, 1_000_000)
        step = world.steps[-1]
        assert [told.compute_ns for told in step.ranks.values()] == [20_000.0] * 3
        world.put_in(Injection.of({"fault": "straggler", "on": "nic:1", "factor": 2}))
        world.advance_steps(2, 1_000_000)
        slow = world.steps[-1]
        assert (slow.busiest, slow.ranks[1].compute_ns) == (1, 40_000.0)
        assert slow.time_ns > step.time_ns + 20_000
        assert slow.ranks[0].wait_ns > step.ranks[0].wait_ns + 15_000


def test_a_job_starts_anew_while_others_send(ring: World) -> None:
    """With another workload, and after one that cannot be; the traffic of others goes on."""
    noise = ring.put_in(Injection.of({"fault": "noisy_neighbour", "on": "all", "load": 0.1, "size": "8KB"}))
    ring.advance_steps(1, 1_000_000)
    at, before = ring.time_ns, len(ring.steps)
    with pytest.raises(UserError):
        ring.restart([{"collective": "all_reduce", "algorithm": "by_magic", "sizes": ["1KiB"]}])
    ring.restart([{"collective": "all_gather", "sizes": ["8KiB"], "ranks": [0, 1]}])
    assert ring.time_ns == at
    assert ring.advance_steps(2, 1_000_000)
    assert [step.number for step in ring.steps] == list(range(len(ring.steps)))
    assert len(ring.steps) >= before + 2
    assert sorted(ring.steps[-1].ranks) == [0, 1]
    ring.take_out(noise)
    ring.restart([{"collective": "all_reduce", "algorithm": "ring", "sizes": ["32KiB"]}])
    assert ring.advance_steps(1, 1_000_000)


def test_a_job_that_has_died_lets_time_go_on(ring: World) -> None:
    """A worker is killed while the world stands still: it is lost then; the others wait, and the clock goes on."""
    at, before = ring.time_ns, len(ring.steps)
    (pid,) = [p.worker.pid for p in ring.job._processes if p.ranks == [2]]
    os.kill(pid, signal.SIGKILL)
    ring.advance(700_001)
    assert ring.time_ns == at + 700_001
    (lost,) = [e for e in ring.events if e["event"] == "worker_lost" and e["rank"] == 2]
    assert len(ring.steps) <= before + 1
    assert lost["time_ns"] <= ring.time_ns
    assert not ring.advance_steps(1, 10_000_000)
