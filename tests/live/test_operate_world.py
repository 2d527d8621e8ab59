"""An operator at a world: an action takes effect at the hold to the nanosecond, and the job says what it was worth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.base.errors import UserError
from testbed.experiment import loads
from testbed.faults import Injection
from testbed.operate.carry_out import ROLLBACK
from testbed.operate.registry import ACTIONS
from testbed.operate.steps.site import Site
from testbed.world.operator import config
from testbed.world.world import World

CLOS = """
name: operated
fabric:
  topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}
  nic: {timeout: 400us}
control: {reaction: 20us}
workload: [{collective: all_reduce, algorithm: ring, sizes: [64KiB]}]
"""
LIMIT_NS = 20_000_000


@pytest.fixture
def world() -> Iterator[World]:
    with World.up(loads(CLOS)) as world:
        yield world


def step_ns(world: World, steps: int = 3) -> float:
    """The time of the last of so many more steps."""
    assert world.advance_steps(steps, LIMIT_NS)
    return world.steps[-1].time_ns


def carrying(world: World) -> str:
    """The uplink of leaf0 that carries more of the job."""
    tx = {
        p["port"]: p["priorities"].get("tx_prio3_packets", 0) for p in world.counters()["ports"] if p["node"] == "leaf0"
    }
    return "spine0" if tx[3] >= tx[4] else "spine1"


def do(world: World, line: str) -> float:
    """Carries out an action at the hold; returns its emulated time."""
    at = world.time_ns
    (done,) = config(world, line.split())
    words = next(words for words in ACTIONS if line.startswith(words)) if not line.startswith(ROLLBACK) else ""
    assert done.time_ns == at
    assert world.time_ns == at + (ACTIONS[words].cost_ns if words else done.cost_ns)
    return done.time_ns


def test_a_cable_that_is_replaced_gives_the_step_of_before_and_a_good_one_hurts(world: World) -> None:
    healthy = step_ns(world)
    spine = carrying(world)
    world.put_in(Injection.of({"fault": "loss", "on": f"cable:leaf0-{spine}", "rate": 0.1}))
    faulty = step_ns(world, 4)
    assert max(step.time_ns for step in world.steps[-4:]) > 1.5 * healthy
    other = {"spine0": "spine1", "spine1": "spine0"}[spine]
    do(world, f"cable replace leaf0-{other}")
    assert max(step.time_ns for step in world.steps[-4:]) > 1.5 * healthy, faulty
    do(world, f"cable replace leaf0-{spine}")
    step_ns(world, 6)
    assert step_ns(world) == step_ns(world) == healthy
    assert {d["reason"] for d in world.counters()["drops"]} == {"fault", "cable"}


def test_a_good_uplink_shut_down_costs_a_step_and_a_drain_costs_nothing_but_its_share(world: World) -> None:
    step_ns(world)
    spine = carrying(world)
    part = "leaf0:3" if spine == "spine0" else "leaf0:4"
    do(world, f"route drain {part}")
    step_ns(world)
    assert not world.counters()["drops"]
    drained = step_ns(world)
    config(world, [ROLLBACK])
    healthy = step_ns(world)
    assert healthy == world.best_ns <= drained
    world.advance(int(healthy / 2))  # while frames are under way
    do(world, f"interface shutdown {part}")
    lost = step_ns(world, 2)
    worst = max(step.time_ns for step in world.steps[-3:])
    assert {d["reason"] for d in world.counters()["drops"]} == {"cable"}
    assert worst > 400_000 > lost, "a timeout, and then the other way"
    do(world, f"interface startup {part}")
    step_ns(world, 3)
    assert step_ns(world) == healthy


@pytest.mark.parametrize("fault", ["worker_frozen", "worker_killed"])
def test_a_job_that_begins_anew_has_all_its_ranks(fault: str, world: World) -> None:
    healthy = step_ns(world)
    world.put_in(Injection.of({"fault": fault, "on": "nic:1"}))
    assert not world.advance_steps(2, 300_000)
    done = len(world.steps)
    began = do(world, "job restart")
    assert len(world.steps) == done, "it is away for as long as that takes"
    step_ns(world, 4)
    assert world.steps[done].start_ns >= began + ACTIONS["job restart"].cost_ns
    assert step_ns(world) == pytest.approx(healthy, rel=1e-3)  # new connections: some frames meet others elsewhere


def test_a_job_without_a_slow_rank_and_by_another_algorithm(world: World) -> None:
    healthy = step_ns(world)
    world.put_in(Injection.of({"fault": "straggler", "on": "nic:1", "factor": 20}))
    slow = step_ns(world)
    assert slow > healthy
    do(world, "job exclude 1")
    without = step_ns(world)
    assert without < slow and set(world.steps[-1].ranks) == {0, 2, 3}
    for line, says in {"job exclude 1": "its ranks: 0, 2, 3", "job algorithm rong": "rong"}.items():
        with pytest.raises(UserError) as error:
            config(world, line.split())
        assert says in f"{error.value.what} {error.value.hint}", str(error.value)
    assert step_ns(world, 1) == without, "nothing has happened"
    do(world, "job algorithm double_binary_tree")
    assert step_ns(world) != without
    config(world, [ROLLBACK])
    assert step_ns(world) == pytest.approx(without, rel=1e-3)
    config(world, [ROLLBACK])
    assert step_ns(world) == pytest.approx(slow, rel=1e-3)


def test_a_rule_counts_from_its_beginning_to_its_end(world: World) -> None:
    """Whichever way its frames go: written over it goes on counting, deleted and put in again it begins at zero."""
    assert world.advance_steps(12, LIMIT_NS)
    site = Site.of(world.lab)
    usual = max((f for f in world.lab.flows() if f["switch"] == "leaf0"), key=lambda flow: int(flow["fast_packets"]))
    assert 0 < usual["fast_packets"] < usual["packets"], "frames went both ways"
    rule = f"table={usual['table']},priority={usual['priority']},{usual['match']}"

    def counted() -> tuple[int, int, int]:
        site.flows_changed()
        keys = ("switch", "table", "priority", "match")
        (row,) = (f for f in world.lab.flows() if [f[key] for key in keys] == [usual[key] for key in keys])
        return row["packets"], row["bytes"], row["fast_packets"]

    for cookie in (7, 8):
        site.ofctl("leaf0", "add-flow", f"cookie={cookie},{rule},actions={usual['actions']}")
        assert counted() == (usual["packets"], usual["bytes"], usual["fast_packets"])
    site.ofctl("leaf0", "--strict", "del-flows", rule)
    site.ofctl("leaf0", "add-flow", f"cookie=8,{rule},actions={usual['actions']}")
    assert counted() == (0, 0, 0)
    assert world.advance_steps(1, LIMIT_NS)
    assert 0 < counted()[0] < usual["packets"]


def test_the_same_actions_at_the_same_times_give_the_same_world() -> None:
    lines = ["ecn leaf0 --kmin 5KB --kmax 5KB", "interface shutdown leaf0:3", "interface startup leaf0:3",
             "route drain spine1", "flow resync leaf1",
             "flow add leaf1 priority=200,ip,nw_dst=10.9.9.9 actions=drop", "controller restart",
             "rollback all"]  # fmt: skip
    digests: list[list[str]] = []
    for looks in (0, 3):
        with World.up(loads(CLOS)) as world:
            world.advance(100_000)
            digests.append([])
            for line in lines:
                config(world, line.split())
                for _ in range(looks):
                    world.counters(), world.digest()
                digests[-1].append(world.digest())
                world.advance(30_000)
            digests[-1].append(world.digest())
    assert digests[0] == digests[1]
