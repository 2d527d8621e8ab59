"""Graphs of tasks from file to timeline: figures that follow from others or from closed forms, data, failures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import results
from testbed.experiment import loads
from testbed.plan.ideal import costs_of
from testbed.run.outcome import RunFailed, RunResult
from testbed.run.run import run
from workloads.tasks.oracle import oracle, step_ns
from workloads.tasks.task import Collective, Task
from workloads.times.messages import Path as Way
from workloads.times.messages import received_ns

RAIL = "{rail: {servers: 4, gpus: 2, spines: 1}}"
RAILS = "dp: [[0, 2, 4, 6], [1, 3, 5, 7]]"
DOMAINS = "tp: [[0, 1], [2, 3], [4, 5], [6, 7]]"
SMALL = "{rail: {servers: 2, gpus: 2, spines: 1}}"
SMALL_RAILS, SMALL_DOMAINS = "dp: [[0, 2], [1, 3]]", "tp: [[0, 1], [2, 3]]"

Line = dict[str, Any]


def ran(folder: Path, topology: str, *steps: str, more: str = "") -> RunResult:
    """A run of such steps in which nothing was wrong."""
    workload = "\n".join(f"- {step}" for step in steps)
    text = f"name: tasks\nfabric: {{topology: {topology}}}\nworkers: {{memory: 1GiB}}\nworkload:\n{workload}\n{more}\n"
    result = run(loads(text), folder / "run")
    assert result.fidelity.verdict == "exact"
    assert {row["wrong"] for row in result.results} == {0}
    return result


def reduce(id: str, group: str = "dp", size: str = "1MiB", **more: str) -> str:
    keys = "".join(f", {key}: {value}" for key, value in more.items())
    return f"{{id: {id}, collective: all_reduce, algorithm: ring, group: {group}, size: {size}{keys}}}"


def tasks(groups: str, *listed: str, more: str = "") -> str:
    return f"tasks: {{groups: {{{groups}}}, list: [{', '.join(listed)}]{more}}}"


def test_what_overlaps_and_what_does_not(tmp_path: Path) -> None:
    compute = "{id: c, compute: 50us, stream: gpu}"
    result = ran(
        tmp_path,
        RAIL,
        "{collective: all_reduce, algorithm: ring, groups: [[0, 2, 4, 6], [1, 3, 5, 7]], sizes: [1MiB]}",
        tasks(RAILS, reduce("d")),
        tasks(f"{RAILS}, {DOMAINS}", reduce("d", stream="d"), reduce("t", "tp", stream="t"), more=", iterations: 2"),
        tasks(RAILS, reduce("d", stream="a"), reduce("e", stream="b")),
        tasks(RAILS, reduce("d"), reduce("e")),
        tasks(RAILS, compute, reduce("d", stream="d")),
        tasks(RAILS, compute, reduce("d", stream="d", after="[c]")),
        tasks(f"dp: {{ranks: [[0, 2, 4, 6], [1, 3, 5, 7]], traffic_class: 4}}, {DOMAINS}", reduce("d")),
    )
    by_step: dict[int, list[float]] = {}
    for row in result.results:
        by_step.setdefault(row["step"], []).append(row["time_ns"])
    (alone,) = {*by_step[0]}
    assert by_step[1] == [alone], "one collective as a task takes what it takes by itself"
    assert by_step[2] == pytest.approx([alone] * 2, rel=1e-3), "the domains' links are others"
    assert alone < by_step[3][0] < 1.3 * alone, "each fills what the other leaves free"
    assert by_step[4] == pytest.approx([2 * alone], rel=1e-3)
    assert by_step[5] == pytest.approx([alone], rel=1e-3), "the compute hides"
    assert by_step[6] == pytest.approx([50_000 + alone], rel=1e-3)
    assert by_step[7] == pytest.approx([alone], rel=1e-3)
    frames = results.load(result.folder).rows("priorities")
    of_class = {row["priority"]: 0 for row in frames}
    for row in frames:
        of_class[row["priority"]] += row["tx_packets"]
    assert of_class[4] > 0, "the last step's"
    assert of_class[3] > 5 * of_class[4]


@pytest.mark.parametrize(("stages", "count"), [(4, 8)])
def test_gpipe(stages: int, count: int, tmp_path: Path) -> None:
    """(m + p - 1)(tf + tb) + 2 (p - 1) Tc, to the digit: Tc is a message's closed form."""
    listed = []
    for way, time, source, target in (("f", "100us", -1, 1), ("b", "200us", 1, -1)):
        for j in range(count):
            for r in range(stages):
                where = f"ranks: [{r}]"
                got = f", after: [r{way}{j}]" if 0 <= r + source < stages else ""
                if got:
                    gets = f"{{id: r{way}{j}, recv: 128KiB, from: {r + source}, tag: {way}{j}"
                    listed.append(f"{gets}, stream: r{way}{j}, {where}}}")
                listed.append(f"{{id: {way}{j}, compute: {time}, {where}{got}}}")
                if 0 <= r + target < stages:
                    sends = f"{{id: s{way}{j}, send: 128KiB, to: {r + target}, tag: {way}{j}, stream: s{way}{j}"
                    listed.append(f"{sends}, after: [{way}{j}], {where}}}")
    topology = f"{{star: {{hosts: {stages}}}}}"
    result = ran(tmp_path, topology, tasks("", *listed))
    costs = costs_of(loads(f"name: x\nfabric: {{topology: {topology}}}\n"))
    message = costs.post_ns + received_ns(128 << 10, Way.uniform(1, rate_bps=4e11, delay_ns=500, latency_ns=500), costs)
    timeline = results.load(result.folder).rows("timeline")
    last = max(row["end_ns"] for row in timeline if row["operation"] == "compute")
    begin = min(row["start_ns"] for row in timeline)
    assert last - begin == pytest.approx((count + stages - 1) * 300_000 + 2 * (stages - 1) * message, rel=1e-6)


def drawn(dice: random.Random, *, shared: bool) -> list[str]:
    """Tasks that all ranks have alike, so that members begin together; `shared`: several streams use one link."""
    listed: list[str] = []
    for k in range(dice.randrange(3, 12)):
        ids = [f"t{j}" for j in range(k)]
        after = f"[{', '.join(dice.sample(ids, min(len(ids), dice.randrange(3))))}]"
        what = dice.choice(("compute", "dp", "tp"))
        if what == "compute":
            listed.append(f"{{id: t{k}, compute: {dice.randrange(1, 40)}us, stream: gpu, after: {after}}}")
        else:
            stream = f"{what}{dice.randrange(2)}" if shared else what
            listed.append(reduce(f"t{k}", what, dice.choice(("64KiB", "256KiB")), stream=stream, after=after))
    return listed


def test_drawn_graphs_take_what_the_longest_path_says(tmp_path: Path) -> None:
    """What a collective takes alone is measured in the same run."""
    dice = random.Random(7)
    groups = f"{SMALL_RAILS}, {SMALL_DOMAINS}"
    kinds = [("dp", "64KiB"), ("dp", "256KiB"), ("tp", "64KiB"), ("tp", "256KiB")]
    steps = [tasks(groups, reduce("t0", group, size)) for group, size in kinds]
    cases = [(shared, drawn(dice, shared=shared)) for shared in [False] * 8 + [True] * 8]
    steps += [tasks(groups, *listed) for _, listed in cases]
    result = ran(tmp_path, SMALL, *steps)
    took = {row["step"]: row["time_ns"] for row in result.results}
    alone = {kind: took[k] for k, kind in enumerate(kinds)}
    experiment = loads(
        "\n".join(["name: x", f"fabric: {{topology: {SMALL}}}", "workload:", *(f"- {s}" for s in steps)])
    )

    def duration(rank: int, task: Task) -> float:
        assert isinstance(task, Collective)
        return alone[task.group, f"{task.size_bytes >> 10}KiB"]

    for number, (shared, _) in enumerate(cases, len(kinds)):
        step = experiment.workload[number]
        assert step.kind == "tasks"
        expected = step_ns(oracle(step.tasks.graph(4), duration))
        if shared:
            assert took[number] >= expected * (1 - 1e-4)
        else:
            assert took[number] == pytest.approx(expected, rel=5e-3)


def test_every_offload_beside_the_others(tmp_path: Path) -> None:
    """Several parts of one rank at a time: one request in flight in each group, and a rank's own streams go on."""
    algorithms = "all_reduce: direct_reduce, all_gather: multicast, optimizer_step: optimus_nic"
    groups = (
        f"dp: {{ranks: [[0, 2], [1, 3]], algorithm: {{{algorithms}}}}}, "
        "net: {ranks: [[0, 2]], algorithm: {all_reduce: in_network, broadcast: multicast}}"
    )
    listed = [
        "{id: a, collective: all_reduce, group: dp, size: 64KiB, stream: a}",
        "{id: b, collective: all_reduce, group: dp, size: 128KiB, stream: a}",
        "{id: c, collective: all_gather, group: dp, size: 64KiB, stream: b}",
        "{id: d, collective: all_gather, group: dp, size: 128KiB, stream: b}",
        "{id: e, collective: optimizer_step, group: dp, size: 16KiB, stream: c}",
        "{id: f, collective: all_reduce, group: net, size: 64KiB, stream: d}",
        "{id: g, collective: all_reduce, group: net, size: 64KiB, stream: d}",
        "{id: h, collective: broadcast, group: net, size: 64KiB, stream: e}",
        "{id: i, compute: 5us, stream: gpu}",
    ]
    result = ran(tmp_path, SMALL, tasks(groups, *listed, more=", iterations: 2"))
    rows = results.load(result.folder).rows("timeline")
    assert len(rows) == 2 * (6 * 4 + 3 * 2)
    assert not any(row["fallback"] for row in result.results)
    for row in rows:
        if row["task"] == "i":
            assert row["end_ns"] - row["start_ns"] < 6000, "nothing holds up a computation"


def test_who_is_refused_an_offload_does_it_by_hosts(tmp_path: Path) -> None:
    groups = "dp: {ranks: [[0, 1, 2]], algorithm: {all_reduce: in_network}}, all: [[2, 1, 0]]"
    listed = ["{id: a, collective: all_reduce, group: dp, size: 64KiB, stream: a}"]
    listed += ["{id: b, collective: all_reduce, group: dp, size: 4KiB, stream: a}", reduce("c", "all", stream="b")]
    more = "inject:\n- {fault: accelerator_down, on: all, at: 0ns}\n"
    result = ran(tmp_path, "{star: {hosts: 3}}", tasks(groups, *listed, more=", iterations: 2"), more=more)
    assert all(row["fallback"] for row in result.results)


def test_a_group_that_fails_before_one_of_its_ranks_begins(tmp_path: Path) -> None:
    """Whoever waits longest gives up; the late one meets it where all agree, and the hosts do it from then on."""
    listed = ["{id: c, compute: 500us, ranks: [1]}"]
    listed += [f"{{id: {name}, collective: all_reduce, group: dp, size: 16KiB}}" for name in "ab"]
    for options, why in (("{}", "no accelerator answers rank"), ("{timeout: 1ms}", "")):
        groups = f"dp: {{ranks: [[0, 1, 2]], algorithm: {{all_reduce: in_network}}, options: {options}}}"
        result = ran(tmp_path / why[:2], "{star: {hosts: 3}}", tasks(groups, *listed, more=", iterations: 2"))
        assert [str(row["fallback"] or "").startswith(why) and bool(row["fallback"]) for row in result.results] == [
            bool(why)
        ] * 2


def test_multicasts_of_which_nothing_comes_follow_each_other(tmp_path: Path) -> None:
    """The root misses nothing, so the ranks do not agree on what they think of it, and need not."""
    groups = "dp: {ranks: [[0, 1, 2]], algorithm: {broadcast: multicast}}"
    listed = ["{id: c, compute: 200us, ranks: [0]}"]
    listed += [f"{{id: {name}, collective: broadcast, group: dp, size: 64KiB}}" for name in "ab"]
    more = "inject:\n- {fault: missing_group, on: 'switch:sw0', at: 100us}\n"
    result = ran(tmp_path, "{star: {hosts: 3}}", tasks(groups, *listed, more=", iterations: 2"), more=more)
    assert all(row["fallback"] for row in result.results)


def test_a_rank_that_dies_is_named_with_the_tasks_that_wait_for_it(tmp_path: Path) -> None:
    compute = "{id: c, compute: 50us, stream: gpu}"
    step = tasks(SMALL_RAILS, compute, reduce("d", stream="d", after="[c]"))
    with pytest.raises(RunFailed) as e:
        ran(tmp_path, SMALL, step, more='inject:\n- {fault: worker_killed, on: "nic:2", at: 70us}')
    assert "rank 2: the worker was ended by SIGKILL" in e.value.what
    assert "rank 0 waits for rank 2 in task 'd' (all_reduce of group 'dp')" in e.value.what


def test_runs_are_alike(tmp_path: Path) -> None:
    groups = "g: [[0, 1, 2]], p: [[2, 0]]"
    listed = [reduce("a", "g", stream="a"), reduce("b", "p", stream="b"), "{id: c, compute: 3us}"]
    listed.append(reduce("d", "g", stream="b"))
    hashes = set()
    for k in range(2):
        (folder := tmp_path / str(k)).mkdir()
        result = ran(folder, "{star: {hosts: 3}}", tasks(groups, *listed))
        hashes.add(result.metrics_sha256)
        assert json.loads((result.folder / "summary.json").read_text())["results"][0]["tasks"] == "tasks"
    assert len(hashes) == 1
