"""Best-effort aggregation: right sums whatever the slots do, jobs that share them, and no slot that stays behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.faults import Injection
from testbed.run.outcome import RunResult
from tests.parts import offload_runs
from tests.parts.machine import cli
from tests.parts.offload_fabric import offload_fabric, on_ranks
from tests.parts.offload_runs import CLOS, FAULTS, STAR, counters, run
from workloads.times import messages as cf
from workloads.times.switches.in_network import best_effort_all_reduce_ns
from workloads.verbs import Device, FabricError, wire

RANKS = 4
ARGS = (16, 64, 100_000_000, 7, 0, 0)  # slots, elements, timeout in ps, retry, conversion and addition cost nothing


def step(**more: Any) -> str:
    said = {"collective": "all_reduce", "algorithm": "in_network_best_effort", "sizes": ["64KiB"]}
    return json.dumps(said | more)


def pools(result: RunResult) -> list[dict[str, Any]]:
    return counters(result)["accelerators"]


def total(result: RunResult, key: str) -> int:
    return sum(pool[key] for pool in pools(result))


def by_the_network(result: RunResult) -> bool:
    """And no slot is left taken."""
    return offload_runs.by_the_network(result) and total(result, "shared_used") == 0


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_sums_are_right(ranks: int, tmp_path: Path) -> None:
    types = ("float32", "float16", "int32")
    steps = [step(sizes=["4B", "1028B", "64KiB"], dtype=dtype, op=op) for dtype in types for op in ("sum", "avg")]
    result = run(tmp_path, STAR % ranks, *steps, switch="{accelerator: {slots: 64}}")
    assert by_the_network(result) and len(result.results) == 18
    assert (total(result, "collisions") > 0) == (ranks > 2), "a single contribution needs no slot"


@pytest.mark.parametrize("topology", [CLOS, "{torus: {dims: [2, 2, 2]}}", "{ring: {nodes: 5}}"])
def test_every_topology(topology: str, tmp_path: Path) -> None:
    result = run(tmp_path, topology, step(sizes=["4B", "1MiB"]), step(ranks=[3, 0, 1]), step(ranks=[2, 3]))
    assert by_the_network(result) and result.fidelity.verdict == "exact"


@pytest.mark.parametrize("topology", [STAR % 4, CLOS])
def test_loss_duplicates_and_disorder_change_no_sum(topology: str, tmp_path: Path) -> None:
    steps = [step(sizes=["4B", "256KiB"], iterations=2), step(sizes=["256KiB"], dtype="int32")]
    result = run(tmp_path, topology, *steps, more=FAULTS, switch="{accelerator: {slots: 128}}")
    assert by_the_network(result)
    assert total(result, "evicted") > 0 and total(result, "collisions") > 0 and total(result, "duplicates") > 0
    again = run(tmp_path / "again", topology, *steps, more=FAULTS, switch="{accelerator: {slots: 128}}")
    assert again.metrics_sha256 == result.metrics_sha256


def test_a_job_never_meets_itself(tmp_path: Path) -> None:
    """No two lanes of a job have one slot, as long as there are enough."""
    met = []
    for slots in (16, 64, 1024):
        switch = f"{{accelerator: {{slots: {slots}}}}}"
        result = run(tmp_path / str(slots), STAR % 4, step(sizes=["256KiB"], dtype="int32", slots=64), switch=switch)
        assert by_the_network(result)
        met.append(total(result, "collisions"))
    assert met[0] > 0 and met[1:] == [0, 0]


def took(result: RunResult) -> dict[tuple[str, int], list[float]]:
    times: dict[tuple[str, int], list[float]] = {}
    for row in result.results:
        times.setdefault((row["algorithm"], row["size_bytes"]), []).append(row["time_ns"])
    return times


def test_several_switches_cost_little_more_than_reserved_slots(tmp_path: Path) -> None:
    """Half of the slots for each: neither what a lane has left somewhere nor the timer holds anybody up."""
    sizes = {"sizes": ["128KiB", "1MiB"], "dtype": "int32"}
    result = run(tmp_path, CLOS, step(**sizes), step(**sizes, algorithm="in_network"), step(**sizes, algorithm="ring"))
    assert by_the_network(result)
    assert sum(nic["retransmitted"] for nic in counters(result)["nics"]) == 0
    times = took(result)
    for size in (128 << 10, 1 << 20):
        (shared,), (reserved,), (ring,) = (times[a, size] for a in ("in_network_best_effort", "in_network", "ring"))
        assert reserved < shared < reserved + 6_000 and shared < ring, f"{size} bytes"


def test_losses_cost_less_than_twice_what_they_cost_reserved_slots(tmp_path: Path) -> None:
    """One of a hundred frames, on every cable."""
    steps = [step(sizes=["1MiB"], iterations=3, algorithm=f"in_network{kind}") for kind in ("", "_best_effort")]
    more = "inject: [{fault: loss, on: all, rate: 0.01}]"
    result = run(tmp_path, STAR % 8, *steps, more=more, switch="{accelerator: {slots: 1024}}")
    assert by_the_network(result)
    reserved, shared = (sum(took(result)[f"in_network{kind}", 1 << 20]) / 3 for kind in ("", "_best_effort"))
    assert reserved < shared < 2 * reserved


def test_jobs_that_share_a_pool_come_apart(tmp_path: Path) -> None:
    """A lane that has met another job's block goes elsewhere: after a few rounds nobody meets anybody."""
    groups = {"groups": [[0, 1, 4, 5], [2, 3, 6, 7]], "sizes": ["1MiB"], "dtype": "int32", "slots": 64}
    switch = "{accelerator: {slots: 256}}"
    once = run(tmp_path / "once", CLOS, step(**groups), switch=switch)
    often = run(tmp_path / "often", CLOS, step(**groups, iterations=4), switch=switch)
    assert by_the_network(once) and by_the_network(often)
    assert 0 < total(often, "collisions") < 1.2 * total(once, "collisions")


def test_what_later_blocks_have_overtaken_goes_again_before_the_timer(tmp_path: Path) -> None:
    """Two jobs want every slot each: parts get stuck all the time, and only the last blocks wait for the timer."""
    groups = {"groups": [[0, 1, 4, 5], [2, 3, 6, 7]], "sizes": ["1MiB"], "dtype": "int32", "slots": 128}
    result = run(tmp_path, CLOS, step(**groups, timeout="500us"), switch="{accelerator: {slots: 128}}")
    assert by_the_network(result)
    nics = counters(result)["nics"]
    assert sum(n["retransmitted"] for n in nics) > 20 * sum(n["local_ack_timeout_err"] for n in nics)
    assert max(row["time_ns"] for row in result.results) < 1_000_000


def test_at_low_rates_nobody_sends_again_without_a_loss(tmp_path: Path) -> None:
    """256 packets take 230 us at 10 Gb/s: the timeout follows from that."""
    steps = [step(sizes=["512KiB"], slots=256, algorithm=f"in_network{kind}") for kind in ("", "_best_effort")]
    result = run(tmp_path, STAR % 4, *steps, fabric=", cable: {rate: 10Gbps}")
    assert by_the_network(result)
    for nic in counters(result)["nics"]:
        assert nic["retransmitted"] == nic["local_ack_timeout_err"] == 0


def test_beside_other_steps_each_has_the_slots_that_it_has_alone(tmp_path: Path) -> None:
    both = [step(dtype="int32", algorithm=f"in_network{kind}") for kind in ("_best_effort", "", "_best_effort")]
    result = run(tmp_path, STAR % 4, *both, switch="{accelerator: {slots: 64}}")
    assert by_the_network(result)
    (pool,) = pools(result)
    used = [pool[key] for key in ("slots", "slots_free", "slots_used_max", "shared_slots", "shared_used_max")]
    assert used == [64] * 5


def test_what_is_shared_is_what_is_free_when_the_first_job_comes() -> None:
    """And until none is left that shares it."""
    steps = "".join(f"  - {step(algorithm=f'in_network{kind}')}\n" for kind in ("", "_best_effort"))
    got: list[Any] = []
    with offload_fabric(STAR % 3, "{slots: 64}", f"workload:\n{steps}") as lab:

        def work(device: Device) -> None:
            def joins(kind: str, tag: int, slots: int) -> Any:
                group = device.group(kind, tag, range(3), (slots, *ARGS[1:4], 0, *[0] * (kind == "best_effort")))
                device.sync(1, 3)
                if not device.rank:
                    (pool,) = lab.fabricd.request("counters")["accelerators"]
                    got.append((group.refused, pool["slots_free"], pool["shared_slots"]))
                device.sync(1, 3)
                return group

            reserved = joins("aggregate", 1, 16)
            shared = [joins("best_effort", 2, 8), joins("best_effort", 3, 8)]
            assert joins("aggregate", 4, 16).refused
            for group in (*shared, reserved):
                group.leave()
            device.sync(1, 3)
            device.wait(until_ns=device.time_ns + 1000)  # a LEAVE acts when a post would
            joins("aggregate", 5, 64)

        on_ranks(lab, range(3), work)
    full = "sw0's accelerator has no slot free of 64"
    assert got == [("", 48, 48), ("", 0, 48), ("", 0, 48), (full, 0, 48), ("", 0, 0)]


def test_two_jobs_share_a_switch(tmp_path: Path) -> None:
    """With slots of their own the second gets none; by best effort both run, and the first has what it leaves."""
    groups = {"groups": [[0, 1, 2, 3], [4, 5, 6, 7]], "sizes": ["256KiB"], "dtype": "int32"}
    switch = "{accelerator: {slots: 256}}"
    reserved = run(tmp_path, STAR % 8, step(**groups, slots=256, algorithm="in_network"), switch=switch)
    assert [bool(row["fallback"]) for row in reserved.results] == [False, True]
    shared = run(tmp_path / "b", STAR % 8, step(**groups), switch=switch)
    assert by_the_network(shared) and [row["group"] for row in shared.results] == [0, 1]
    alone = run(tmp_path / "c", STAR % 8, step(**groups | {"groups": groups["groups"][:1]}), switch=switch)
    assert alone.results[0]["time_ns"] < shared.results[0]["time_ns"]
    assert total(alone, "collisions") * 2 < total(shared, "collisions")


@pytest.mark.parametrize("slots", [1, 64])
def test_nobody_starves_however_few_slots_there_are(slots: int, tmp_path: Path) -> None:
    """At worst all blocks of the three contributors pass the server's cable; a job has that for itself."""
    groups = {"groups": [[0, 1, 2, 3], [4, 5, 6, 7]], "sizes": ["256KiB"], "dtype": "int32", "iterations": 2}
    result = run(tmp_path, STAR % 8, step(**groups), switch=f"{{accelerator: {{slots: {slots}}}}}")
    assert by_the_network(result) and len(result.results) == 4
    times = [row["time_ns"] for row in result.results]
    assert max(times) < 1.1 * min(times)
    assert max(times) < 3 * 256 * (256 * 4 + 106) * 8 / 400 + 7_000


def test_congestion_halves_windows(tmp_path: Path) -> None:
    """Collisions send seven contributions of a block to the server's cable: marks keep its queue short."""
    longest = {}
    for name, ecn in (("marked", "{kmin: 20KB, kmax: 20KB}"), ("unmarked", "null")):
        switch = f"{{accelerator: {{slots: 64}}, ecn: {ecn}}}"
        result = run(tmp_path / name, STAR % 8, step(sizes=["1MiB"], dtype="int32"), switch=switch)
        assert by_the_network(result)
        ports = json.loads((result.folder / "counters.json").read_text())["ports"]
        longest[name] = max(p["queue_max_bytes"] for p in ports if p["node"] == "sw0" and p["port"] == 1)
        assert (sum(p["ecn_marked"] for p in ports) > 0) == (name == "marked")
        late = json.loads((result.folder / "counters.json").read_text())["nics"]
        assert sum(n["retransmitted"] for n in late) == 0
    assert longest["marked"] < longest["unmarked"]


@pytest.mark.parametrize("switch", ["leaf0", "leaf1"])
def test_a_dead_accelerator_is_gone_past_and_named_until_it_is_back(switch: str, tmp_path: Path) -> None:
    """Six blocks in silence, then the server adds up alone; that takes as long as seven ranks' blocks on its cable.

    Marks there halve the window. Two iterations after the accelerator it is back, and times are as before, exactly.
    """
    inject = f"inject: [{{fault: accelerator_down, on: 'switch:{switch}', at: 1080us, for: 300us}}]"
    sizes = {"sizes": ["256KiB"], "dtype": "int32", "slots": 256, "iterations": 14}
    result = run(tmp_path, CLOS, step(**sizes), more=inject)
    assert all(row["wrong"] == 0 for row in result.results) and total(result, "shared_used") == 0
    why = f"the parameter server, rank 0, adds up alone: {switch}'s accelerator is down"
    told = [row["fallback"] for row in result.results]
    dead = [n for n, said in enumerate(told) if said]
    assert {told[n] for n in dead} == {why} and dead == list(range(dead[0], dead[-1] + 1)) and len(dead) > 2
    times = [row["time_ns"] for row in result.results]
    block_ns = 7 * (256 * 4 + 106) * 8 / 400
    assert all(256 * block_ns < times[n] < 256 * block_ns + 10_000 for n in dead[1:-2])
    assert {*times[: dead[0]], *times[dead[-1] + 2 :]} == {times[0]}


def test_in_the_request_that_met_a_dead_accelerator_its_cable_is_full_again_when_it_is_back(tmp_path: Path) -> None:
    """Then 2 MiB more take as long as the blocks do on a rank's cable, one after the other: the window is whole."""
    inject = "inject: [{fault: accelerator_down, on: 'switch:leaf1', at: 1020us, for: 400us}]"
    took = []
    for mib in (4, 6):
        result = run(tmp_path / str(mib), CLOS, step(sizes=[f"{mib}MiB"], dtype="int32"), more=inject)
        (row,) = result.results
        assert row["wrong"] == 0 and "leaf1's accelerator is down" in row["fallback"]
        took.append(row["time_ns"])
    assert took[1] - took[0] == pytest.approx(2048 * (256 * 4 + 106) * 8 / 400, abs=10)


@pytest.mark.parametrize("switch", ["leaf0", "leaf1"])
def test_without_its_group_a_switch_is_named(switch: str, tmp_path: Path) -> None:
    inject = f"inject: [{{fault: missing_group, on: 'switch:{switch}', at: 1015us}}]"
    result = run(tmp_path, CLOS, step(sizes=["1MiB"], iterations=2), more=inject)
    assert [row["wrong"] for row in result.results] == [0, 0]
    assert all(f"no rule sends its frames on at {switch}" in row["fallback"] for row in result.results)
    assert total(result, "shared_used") == 0


def test_who_cannot_be_placed_falls_back_and_says_why(tmp_path: Path) -> None:
    why = {
        "{accelerator: null}": "no switch has an accelerator",
        "{accelerator: {shared_slots: 0}}": "no accelerator shares slots",
        "{accelerator: {fan_in: 2}}": "sw0's accelerator has a bitmap of 2 bits, not of 3",
    }
    for number, (switch, expected) in enumerate(why.items()):
        result = run(tmp_path / str(number), STAR % 3, step(), switch=switch)
        assert [(row["wrong"], row["fallback"]) for row in result.results] == [(0, expected)]


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"groups": [[0, 1], [1, 2]]}, "rank 1 is in another group already"),
        ({"groups": [[0, 1], [9, 2]]}, "there is no rank 9"),
        ({"groups": [[0, 1], [2]]}, "takes 2 to 64 ranks, not 1"),
        ({"groups": [[0, 1]], "ranks": [2, 3]}, "either ranks or groups"),
        ({"groups": [[0, 1]], "algorithm": "auto"}, "auto does not work in groups"),
    ],
)
def test_groups_that_cannot_be(said: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        loads(f"name: g\nfabric: {{topology: {STAR % 4}}}\nworkload:\n  - {step(**said)}\n")


def test_no_more_slots_are_shared_than_there_are() -> None:
    with pytest.raises(InputError, match="9 of 8 slots cannot be shared"):
        switch = "{accelerator: {slots: 8, shared_slots: 9}}"
        loads(f"name: g\nfabric: {{topology: {STAR % 4}, switch: {switch}}}\nworkload: []\n")


class Died(Exception):
    """A rank has."""


@pytest.mark.parametrize("dies", [0, 2], ids=["server", "contributor"])
def test_a_lost_rank_is_named_and_leaves_no_slot_behind(dies: int) -> None:
    with offload_fabric(STAR % 3, "{slots: 32, shared_slots: 32}") as lab:
        said: dict[int, str] = {}

        def work(device: Device) -> None:
            group = device.group("best_effort", 1, range(3), (4, 64, 20_000_000, 2, 0, 0))
            region = device.region(1 << 14)
            if device.rank == dies:
                raise Died
            group.post(region, 0, region, 0, 4096)
            said[device.rank] = device.wait()[-1].private.decode()
            group.leave()

        with pytest.raises(Died):
            on_ranks(lab, range(3), work)
        assert set(said.values()) == {f"rank {dies} has ended"} and len(said) == 2
        assert lab.fabricd.request("counters")["accelerators"][0]["shared_used"] == 0


def test_slots_that_nobody_finishes() -> None:
    """A rank contributes and leaves: another job takes what it needs of the slots, the job's end frees the rest."""
    with offload_fabric(STAR % 3, "{slots: 16, shared_slots: 16}") as lab:
        used: dict[str, int] = {}

        def count(device: Device, when: str) -> None:
            if device.rank == 1:
                pool = lab.fabricd.request("counters")["accelerators"][0]
                used[when], used["reclaimed"] = pool["shared_used"], pool["reclaimed"]
            device.sync(1, 3)

        def work(device: Device) -> None:
            abandoned = device.group("best_effort", 1, range(3), (4, 64, 50_000_000, 2, 0, 0))
            region, result = device.region(1 << 14), device.region(1 << 14)
            if device.rank == 1:
                abandoned.post(region, 0, result, 0, 4096)
                device.wait(until_ns=device.time_ns + 10_000)
                abandoned.leave()
            device.sync(1, 3)
            count(device, "abandoned")
            device.wait(until_ns=device.time_ns + 50_000)
            group = device.group("best_effort", 2, range(3), (4, 64, 50_000_000, 2, 0, 0))
            region.view("int32")[:] = device.rank + 1
            group.post(region, 0, result, 0, 768)
            (record,) = device.wait()
            assert record.kind == wire.OFFLOADED and (result.view("int32", 0, 768) == 6).all()
            device.sync(1, 3)
            count(device, "another")
            if device.rank != 1:
                abandoned.leave()
            group.leave()
            device.sync(1, 3)
            device.wait(until_ns=device.time_ns + 1000)  # a LEAVE acts when a post would

        on_ranks(lab, range(3), work)
        (pool,) = lab.fabricd.request("counters")["accelerators"]
        assert used["abandoned"] > used["reclaimed"] > 0 and pool["shared_used"] == 0
        assert used["another"] == used["abandoned"] - used["reclaimed"]


class Sums:
    """Ranks that live as long as their fabric: inputs by rank -> what each gets."""

    def __init__(self, lab: Lab, *faults: dict[str, Any]) -> None:
        for number, written in enumerate(faults):
            injection = Injection.of(written)
            for request in injection.requests(injection.place(lab.fabric), f"f{number}", now_ns=0):
                lab.fabricd.request("inject", **request)
        lab.fabricd.request("start", ranks=list(range(RANKS)))
        self.lab = lab
        self.made: dict[int, Any] = {}
        self.threads = ThreadPoolExecutor(RANKS)
        list(self.threads.map(self._open, range(RANKS)))

    def _open(self, rank: int) -> None:
        device = Device(str(self.lab.worker_dir(rank) / "sock"))
        group = device.group("best_effort", 1, range(RANKS), ARGS)
        assert not group.refused
        self.made[rank] = (device, group, device.region(1 << 16), device.region(1 << 16))

    def __call__(self, inputs: list[NDArray[Any]], op: str, dtype: str) -> list[NDArray[Any]]:
        def one(rank: int) -> NDArray[Any]:
            (device, group, source, target), mine = self.made[rank], inputs[rank]
            source.view(mine.dtype.str, 0, len(mine))[:] = mine
            group.post(source, 0, target, 0, len(mine), reduction=op, dtype=dtype)
            (record,) = device.wait()
            device.sync(1, RANKS)  # a rank that has its sums waits for the others, as a collective does
            if record.kind != wire.OFFLOADED:
                raise FabricError(record.private.decode())
            result: NDArray[Any] = target.view(mine.dtype.str, 0, len(mine)).copy()
            return result

        return list(self.threads.map(one, range(RANKS)))


@pytest.fixture(scope="module")
def sums() -> Iterator[Sums]:
    """Eight slots for sixteen blocks under way, and cables that lose, double and reorder."""
    kinds = ("loss", "duplication", "reordering")
    with offload_fabric(STAR % RANKS, "{slots: 8, shared_slots: 8}") as lab:
        yield Sums(lab, *({"fault": kind, "on": "all", "rate": 0.01} for kind in kinds))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(count=st.integers(1, 4096), op=st.sampled_from(["sum", "min", "max", "avg"]), seed=st.integers(0, 2**32 - 1))
def test_integers_are_exact(sums: Sums, count: int, op: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    inputs = [draw.integers(-(2**29), 2**29, count, dtype=np.int32) for _ in range(RANKS)]
    exact = np.array(inputs, np.int64)
    expected = {"sum": exact.sum(0), "min": exact.min(0), "max": exact.max(0)}.get(op)
    if expected is None:
        expected = np.trunc(exact.sum(0) / RANKS)
    for result in sums(inputs, op, "int32"):
        assert (result == expected).all()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(count=st.integers(1, 4096), seed=st.integers(0, 2**32 - 1), spread=st.integers(0, 30))
def test_floats_keep_the_bound_of_fixed_point(sums: Sums, count: int, seed: int, spread: int) -> None:
    draw = np.random.default_rng(seed)
    inputs = [
        (draw.standard_normal(count) * 2.0 ** draw.integers(-spread, spread + 1, count)).astype(np.float32)
        for _ in range(RANKS)
    ]
    exact = np.sum(inputs, axis=0, dtype=np.float64)
    largest = np.max(np.abs(inputs), axis=0)
    blocks = [largest[at : at + 64] for at in range(0, count, 64)]
    exponents = np.concatenate([np.full(len(b), np.frexp(b.max())[1] if b.max() else -99) for b in blocks])
    bound = RANKS * 2.0 ** (exponents + 2.0 - 31) + np.spacing(np.abs(exact).astype(np.float32))
    results = sums(inputs, "sum", "float32")
    assert all((r == results[0]).all() for r in results)
    assert (np.abs(results[0] - exact) <= bound).all()


def test_faults_have_hit_the_pool(sums: Sums) -> None:
    """What the two tests before went through: every way out of a slot."""
    sums([np.ones(4096, np.int32)] * RANKS, "sum", "int32")
    (pool,) = sums.lab.fabricd.request("counters")["accelerators"]
    unseen = [key for key in ("collisions", "evicted", "completed", "duplicates") if not pool[key]]
    assert not unseen, pool


@pytest.mark.parametrize(
    ("topology", "switches"), [(STAR % 2, 1), ("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 1}}", 3)]
)
@pytest.mark.parametrize(("dtype", "slots"), [("float32", 512), ("int32", 512), ("int32", 32)])
def test_time_is_what_the_formula_says(topology: str, switches: int, dtype: str, slots: int, tmp_path: Path) -> None:
    """Two ranks: no collision can be. Larger groups take a little more, by as many blocks as collide."""
    result = run(tmp_path, topology, step(sizes=["4B", "100KB", "2MiB"], dtype=dtype, slots=slots))
    path = cf.Path.uniform(switches, rate_bps=400e9, delay_ns=500, latency_ns=500)
    for row in result.results:
        expected = best_effort_all_reduce_ns(
            2, row["size_bytes"], path, cf.Costs(reduce_bps=800e9), slots=slots, fixed_point=dtype != "int32",
            convert_bps=1600e9,
        )  # fmt: skip
        assert row["time_ns"] == pytest.approx(expected, rel=0.01), f"{row['size_bytes']} bytes"


def test_a_sum_that_the_server_adds_up_alone_is_not_sent_again(tmp_path: Path) -> None:
    """It is here, also when it is the first that shows how blocks go now, and a late rank holds up others."""
    faults = "{fault: accelerator_down, on: 'switch:leaf2', at: 150us}, {fault: straggler, on: 'nic:4', factor: 300}"
    (tmp_path / "x.yaml").write_text(
        "name: x\nfabric:\n  topology: {clos: {leaves: 3, spines: 2, hosts_per_leaf: 4}}\n"
        "  switch: {accelerator: {slots: 1024}}\n  nic: {timeout: 20us}\ncontrol: {reaction: 200us}\n"
        "workload: [{collective: all_reduce, algorithm: in_network_best_effort, sizes: [1MiB], iterations: 6, "
        f"ranks: [0, 4, 8, 9]}}]\ninject: [{faults}]\n"
    )
    rows = json.loads(cli("run", str(tmp_path / "x.yaml"), "--out", str(tmp_path / "run"), "--json"))["results"]
    why = "the parameter server, rank 0, adds up alone: leaf2's accelerator is down"
    assert [(row["fallback"], row["wrong"]) for row in rows] == [(why, 0)] * 6
