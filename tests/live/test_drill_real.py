"""A drill on the real clock, played: programs between hosts, a repair, a score; and a machine that cannot keep up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from drills import measured
from drills.game import Game
from drills.sheet import file
from drills.sheet.case import Case
from drills.solve.solver import solve
from drills.stage import Stage
from testbed.experiment import loads
from testbed.faults import Injection
from testbed.world.real import RealWorld
from tests.parts.rdma_programs import require

# A step takes 9 us, and 150 us more if a frame of it is lost, as in every other one: with one such in 16 it is slow
TEXT = """
title: Steps take longer
level: easy
clock: {real: {dilation: 20000, fifo: true}}
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}, nic: {timeout: 150us}}
control: {reaction: 20us}
job: {collective: all_to_all, size: 16KiB}
draw: {bad: {any: cable, between: [leaf, spine], carries: job}}
faults: [{fault: loss, on: $bad, rate: 0.1, classes: [3]}]
warmup: 200us
begins: 700us
question: [healthy, where, what, fix]
budget: {emulated: 100ms}
slo: {step: 2}
"""
HOGS = 4


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage.up(Case.of(file.loads(TEXT, "d.yaml"), "7Q4", False))
    yield stage
    stage.close()


def said(game: Game, line: str) -> Any:
    answer = game.command(line)
    assert answer.ok, (line, answer.text)
    return answer.data


def errors(game: Game) -> dict[str, int]:
    """Of each port that has had some."""
    tables = said(game, "show interfaces errors")
    return {str(row["IFACE"]): int(row["RX_CRC"]) for rows in tables.values() for row in rows if row["RX_CRC"]}


def test_played_with_the_programs_of_the_hosts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    # whether this machine keeps time is the other test's matter
    monkeypatch.setattr(measured, "fit", lambda fidelity: True)
    game = Game(stage)
    before = game.time_ns
    (ping,) = said(game, "probe ping 0 3")["ping"]
    assert (ping["sent"], ping["received"], ping["lost"]) == (3, 3, 0)  # class 0 passes
    assert ping["min_us"] >= 7.0  # eight times a cable's 500 ns, six times a switch's
    assert game.time_ns > before
    (tcp,) = said(game, "probe iperf3 0 3 --for 1")["iperf3"]
    assert tcp["bytes"] > 0 and tcp["Gbps"] > 0
    (cause,) = stage.drawn.truth
    cable = cause.place.removeprefix("cable:")

    assert stage.world.until(lambda _: len(errors(game)) > 1, 10_000_000)  # 200 s at most
    ports = set(errors(game))
    assert ports == {f"{e.node}:{e.port}" for c in game.fabric.cables if c.name == cable for e in (c.a, c.b)}
    assert all(row["nr_throttled"] == 0 for row in said(game, "show cpu")["cpu"])
    refused = game.command("config job restart")
    assert not refused.ok and "with the real clock the job is not begun anew" in refused.text
    leaf = next(port for port in ports if port.startswith("leaf"))
    said(game, f"config route drain {leaf}")
    said(game, "advance 400us")
    lost, steps = errors(game), len(stage.world.steps)
    assert stage.world.until(lambda world: len(world.steps) >= steps + measured.STEPS, 10_000_000)
    assert errors(game) == lost  # no frame passes there any more
    said(game, f"submit {cause}")
    assert isinstance(game.ending, measured.RealEnding) and game.ending.score is not None
    # how long a step takes is this machine's matter, too: the decision is in tests/unit/test_drill_real.py
    taken = game.ending.steps_ns
    assert set(taken) == {"healthy", "before", "now"} and taken["healthy"] and taken["before"]
    assert (game.ending.score.where, game.ending.score.what) == (1.0, 1.0)


VERBS = """
title: New jobs do not start
level: easy
clock: {real: {dilation: 20000, fifo: true}}
fabric: {topology: {star: {hosts: 4}}}
job: {collective: all_reduce, algorithm: ring, size: 64KiB, compute: 50us}
draw: {bad: {any: nic, carries: job}}
faults: [{fault: wrong_gid_index, on: $bad}]
warmup: 200us
begins: 700us
question: [healthy, where, what]
budget: {emulated: 100ms}
"""


def test_rdmas_own_programs_tell_on_the_real_clock_too() -> None:
    """As on the virtual one (tests/live/test_drill_programs.py); the operator finds it by them."""
    require("ibv_rc_pingpong", "ibv_devinfo")
    stage = Stage.up(Case.of(file.loads(VERBS, "d.yaml"), "7Q4", False))
    try:
        game = Game(stage)
        (cause,) = stage.drawn.truth
        bad = int(cause.place.removeprefix("nic:"))
        for other, exits in ((bad, [1, 1]), ((bad + 2) % 4, [0, 0])):
            ended = said(game, f"exec {other} {(bad + 1) % 4} -- ibv_rc_pingpong -g 0 -n 5")
            assert [row["exit"] for row in ended["ended"]] == exits, ended
        assert solve(game) == str(cause)
    finally:
        stage.close()


@contextmanager
def load(pid: int) -> Iterator[None]:
    """A host with too much to do: the process has to share one CPU, as the last of several."""
    cpu = {min(os.sched_getaffinity(0))}
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    os.sched_setaffinity(pid, cpu)
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
    try:
        for hog in hogs:
            os.sched_setaffinity(hog.pid, cpu)
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_on_a_host_with_too_much_to_do_the_environment_is_invalid(stage: Stage) -> None:
    game = Game(stage)
    world: Any = stage.world

    def late(_: object) -> bool:
        return float(world.counters()["fidelity"]["lateness_ns"]["p99"]) > 1e6  # 5 % of a hop, 0.58 ms, are enough

    with load(world.lab.hardware.pid):
        assert world.until(late, 10_000_000), world.fidelity()  # 200 s at most
    (cause,) = stage.drawn.truth
    text = game.command(f"submit {cause}").text
    # a hop is 583.6 ns, which are 11.7 ms here: good up to 0.117 ms
    assert text.startswith("environment_invalid") and "of the smallest hop (11.7 ms of wall time)" in text
    assert game.ending is not None and game.ending.score is None and "SCORE" not in text
    assert game.ending.to_dict()["fidelity"]["verdict"] == "invalid"


def test_every_rank_has_a_container_before_a_fault_strikes_one() -> None:
    head = "name: some\nclock: {real: {dilation: 20000}}\nfabric: {topology: {star: {hosts: 4}}}\n"
    text = f"{head}workload: [{{collective: barrier, ranks: [0, 2]}}]\n"
    with RealWorld.up(loads(text)) as world:
        containers = world.lab.containers
        assert world.job.ranks == [0, 2]
        assert [rank for rank in containers.names if rank not in world.job.ranks and not containers.running(rank)] == []
        assert world.until("step > 0us", 10_000_000)
        before = {rank: containers.running(rank) for rank in containers.names}
        assert all(before.values())
        world.put_in(Injection.of({"fault": "cpu_quota", "on": "nic:3", "cpus": 0.5}))
        world.heed()
        assert {rank: containers.running(rank) for rank in containers.names} == before
