"""A step of tasks in the experiment file: what is wrong is named with its line; what is right becomes a plan."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.base.worker_output import OutputParser, UnexpectedLine
from testbed.experiment import loads
from testbed.experiment.blocks import known
from testbed.experiment.steps.graphs import algorithm_of
from testbed.plan.steps.plan import plan
from workloads.tasks.graph import Graph
from workloads.tasks.task import Collective

RAIL = "{rail: {servers: 4, gpus: 2, spines: 1}}"
GROUPS = "groups: {dp: [[0, 2], [1, 3]]}"
REDUCE = "{id: a, collective: all_reduce, group: dp, size: 1MiB}"


def experiment(tasks: str, more: str = "") -> str:
    return f"name: x\nfabric: {{topology: {RAIL}{more}}}\nworkload:\n- tasks: {{{tasks}}}\n"


@pytest.mark.parametrize(
    ("tasks", "where", "what", "hint"),
    [
        (f"{GROUPS}, list: []", "list", "", ""),
        ("list: [{id: a}]", "list[0]", "a task does one of compute, collective, send, recv", "compute: 100us"),
        ("list: [{id: a, compute: 1us, recv: 1KiB}]", "list[0]", "not compute and recv", "several tasks"),
        ("list: [{id: a, compute: 1us, size: 1KiB}]", "list[0].size", "a compute has no size", "leave size out"),
        ("list: [{id: a, send: 1KiB, ranks: [0]}]", "list[0]", "a send needs to", "to: .."),
        ("list: [{id: a, send: 1KiB, to: 1}]", "list[0]", "a send needs ranks", "ranks: .."),
        ("list: [{id: a, compute: 1us, ranks: [9]}]", "list[0].ranks", "there is no rank 9", "ranks 0 to 7"),
        ("list: [{id: a, send: 1KiB, ranks: [0], to: 8}]", "list[0].to", "there is no rank 8", "ranks 0 to 7"),
        ("groups: {g: [[0, 8]]}, list: [{id: a, compute: 1us}]", "groups.g[0]", "there is no rank 8", ""),
        ("groups: {g: [[0, 1], [1, 2]]}, list: [{id: a, compute: 1us}]", "tasks", "rank 1 stands in it twice", ""),
        ("list: [{id: a, compute: 1us, ranks: [0, 0]}]", "list[0].ranks", "a rank stands twice", ""),
        ("list: [{id: a, compute: 1us}, {id: a, compute: 1us}]", "list[0]", "the same id", "docs/tasks.md"),
        ("list: [{id: b, compute: 1us}, {id: a, compute: 1us, after: [x]}]", "list[1]", "waits for 'x'", ""),
        ("list: [{id: a, send: 1KiB, ranks: [0], to: 1}]", "list[0]", "does not receive it", ""),
        ("list: [{id: a, collective: all_reduce, group: tp, size: 1KiB}]", "list[0]", "there is no group 'tp'", ""),
        (f"{GROUPS}, list: [{{id: a, collective: all_reduce, group: dp, size: 1MiB, ranks: [0, 1]}}]", "list[0]",
         "rank 2 of that group has no 1st collective", ""),
        (f"{GROUPS}, list: [{{id: a, collective: all_reduse, group: dp, size: 1MiB}}]", "list[0].collective",
         "unknown collective 'all_reduse'", "did you mean 'all_reduce'"),
        (f"{GROUPS}, list: [{{id: a, collective: all_reduce, algorithm: rings, group: dp, size: 1MiB}}]",
         "list[0].algorithm", "unknown algorithm 'rings'", "ring"),
        (f"{GROUPS}, list: [{{id: a, collective: all_reduce, group: dp, size: 3B}}]", "list[0].size",
         "not a whole number of float32", "multiple of 4"),
        (f"{GROUPS}, list: [{{id: a, collective: all_reduce, group: dp}}]", "list[0]", "not a whole number", ""),
        (f"{GROUPS}, list: [{{id: a, collective: all_reduce, algorithm: omnireduce, group: dp, size: 1MiB}}]",
         "list[0].algorithm", "needs its ranks for itself", "a step of its own"),
        ("groups: {g: {ranks: [[0, 1]], traffic_class: 5}}, list: [{id: a, compute: 1us}]", "groups.g.traffic_class",
         "no DSCP is in class 5", "fabric.switch.dscp: {40: 5}"),
        ("groups: {g: {ranks: [[0, 2]], traffic_class: 4, algorithm: {all_gather: multicast}}}, list: [{id: a, "
         "collective: all_gather, group: g, size: 1MiB}]", "groups.g", "sent in the NIC's class", "traffic_class"),
        ("groups: {g: {ranks: [[0, 1]], algorithm: {all_reduse: ring}}}, list: [{id: a, compute: 1us}]",
         "groups.g.algorithm.all_reduse", "unknown collective 'all_reduse'", "did you mean 'all_reduce'"),
        ("groups: {g: {ranks: [[0, 1]], algorithm: {all_gather: rng}}}, list: [{id: a, collective: all_reduce, "
         "group: g, size: 1MiB}]", "groups.g.algorithm.all_gather", "unknown algorithm 'rng' of all_gather", "ring"),
        ("groups: {g: {ranks: [[0, 1]], options: {chains: 2}}}, list: [{id: a, collective: all_reduce, group: g, "
         "size: 1MiB}]", "groups.g.options.chains", "none of its collectives heeds chains", "chunk"),
        ("groups: {g: {ranks: [[0, 1]], options: {chunk: 1}}}, list: [{id: a, collective: all_reduce, "
         "algorithm: ring, group: g, size: 1MiB}]", "groups.g.options.chunk", "no unit", ""),
        ("groups: {g: {ranks: [[0, 1, 2]]}}, list: [{id: a, collective: all_reduce, algorithm: rails, group: g, "
         "size: 1MiB}]", "groups.g", "no grid", "whole rows"),
        ("groups: {g: {ranks: [[0, 1, 2]]}}, list: [{id: a, collective: send_recv, algorithm: pair, group: g, "
         "size: 1MiB}]", "groups.g", "send_recv takes 2 ranks, not 3", ""),
        ("groups: {g: {ranks: [[0, 1]]}}, list: [{id: a, collective: all_reduce, algorithm: ring, group: g, "
         "size: 1MiB, parts: [[1]]}]", "list[0].parts", "all_reduce by ring has no unequal parts", "m2n"),
        ("groups: {g: {ranks: [[0, 1, 2]], options: {senders: 2}}}, list: [{id: a, collective: m2n, group: g, "
         "size: 1MiB, parts: [[1], [2], [3]]}]", "list[0].parts", "the table is not for 2 x 1 ranks", "2 rows"),
        ("list: [{id: a, compute: 1us, parts: [[1]]}]", "list[0].parts", "a compute has no parts", "leave parts out"),
    ],
)  # fmt: skip
def test_mistakes(tasks: str, where: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as e:
        loads(experiment(tasks))
    said = str(e.value)
    assert what in said
    assert where in e.value.where
    assert ":4:" in e.value.where or ":5:" in e.value.where
    assert hint in e.value.hint


def test_the_plan_says_who_does_what_with_whom() -> None:
    text = experiment(
        "iterations: 3, groups: {dp: {ranks: [[0, 2], [1, 3]], traffic_class: 4, algorithm: {all_reduce: ring}}}, "
        f"list: [{{id: c, compute: 1us, ranks: [7]}}, {REDUCE}, {{id: s, send: 1KiB, ranks: [3], to: 2, tag: t}}, "
        "{id: r, recv: 1KiB, ranks: [2], from: 3, tag: t, stream: in, after: [a], kind: forward}]"
    )
    made = plan(loads(text))
    (step,) = made.told()["steps"]
    assert step["ranks"] == [0, 1, 2, 3, 7]
    assert made.measurements == 5 * 3
    assert [(c["group"], c["ranks"], c["dscp"], c["traffic_class"]) for c in step["communicators"]] == [
        ("dp", [0, 2], 28, 4),
        ("dp", [1, 3], 28, 4),
    ]
    assert step["ways"][0]["algorithm"] == "ring"
    assert step["about"]["2"][1] == {
        **{"task": "r", "stream": "in", "kind": "forward", "operation": "recv", "group": None},
        **{"peer": 3, "tag": "t", "size_bytes": 1024},
    }
    assert list(made.told([3])["steps"][0]["tasks"]) == ["3"]
    (told,) = made.described()
    assert told["ways"] == [{"group": "dp", "collective": "all_reduce", "algorithm": "ring", "count": 2}]


def test_parts_of_a_task_are_its_own() -> None:
    group = "groups: {g: {ranks: [[0, 1, 2]], options: {senders: 2, parts: [[1], [1]]}}}"
    one = "collective: m2n, group: g, size: 1MiB"
    text = f"{group}, list: [{{id: a, {one}}}, {{id: b, {one}, parts: [[3], [1]]}}]"
    (step,) = plan(loads(experiment(text))).told()["steps"]
    ways = [step["ways"][order["way"]] for order in step["tasks"]["2"]]
    assert [(way["parts"], way["senders"]) for way in ways] == [([[1], [1]], 2), ([[3], [1]], 2)]


def test_auto_takes_what_is_fastest() -> None:
    text = experiment(f"{GROUPS}, list: [{REDUCE}, {{id: b, collective: all_reduce, group: dp, size: 4B}}]")
    alone = "- {collective: all_reduce, algorithm: auto, ranks: [0, 2], sizes: [1MiB, 4B]}"
    step, by_itself = plan(loads(text + alone)).told()["steps"]
    fastest = {size: told["algorithm"] for size, told in by_itself["chosen"].items()}
    for order in step["tasks"]["3"]:
        way = step["ways"][order["way"]]
        assert way["algorithm"] == fastest[str(order["size_bytes"])]
        assert way["ranks"] == [1, 3]


def test_auto_takes_what_each_of_a_groups_lists_can_do() -> None:
    """Of the first list's ranks two share a server, twice; the second list's do not: no all-reduce by rails."""
    told = "{id: a, collective: all_reduce, group: g, size: 16MiB}"
    (step,) = plan(loads(experiment(f"groups: {{g: [[0, 1, 2, 3], [4, 7]]}}, list: [{told}]"))).told()["steps"]
    (alone,) = plan(loads(experiment(f"groups: {{g: [[0, 1, 2, 3]]}}, list: [{told}]"))).told()["steps"]
    assert {way["algorithm"] for way in alone["ways"]} == {"rails"}
    assert len({way["algorithm"] for way in step["ways"]} - {"rails"}) == 1


def test_offloads_of_a_group_that_would_wait_for_each_other_are_refused() -> None:
    """b has to wait for its turn behind a, and a waits for b."""
    group = "groups: {g: {ranks: [[0, 2]], algorithm: {all_reduce: in_network}}}"
    listed = ["{id: a, collective: all_reduce, group: g, size: 1MiB, after: [b]}",
              "{id: b, collective: all_reduce, group: g, size: 1MiB, stream: x}"]  # fmt: skip
    made = loads(experiment(f"{group}, list: [{', '.join(listed)}]"))
    with pytest.raises(InputError, match="circle") as e:
        plan(made)
    assert "in the order of the list" in e.value.hint
    by_hosts = group.replace("in_network", "ring")
    plan(loads(experiment(f"{by_hosts}, list: [{', '.join(listed)}]")))


@pytest.mark.parametrize("of_group", [True, False])
def test_switches_get_accelerators_where_tasks_ask_for_them(of_group: bool) -> None:
    group = ", algorithm: {all_reduce: in_network}" if of_group else ""
    task = REDUCE if of_group else REDUCE.replace("}", ", algorithm: in_network}")
    made = loads(experiment(f"groups: {{dp: {{ranks: [[0, 2, 4, 6]]{group}}}}}, list: [{task}]"))
    assert made.fabric.switch.accelerator is not None
    (step,) = plan(made).told()["steps"]
    assert step["ways"][0]["aggregation"]["slots"] > 0
    assert step["requests"][0]["most"] == 1 << 20


def test_lines_that_the_plan_does_not_have() -> None:
    made = plan(loads(experiment(f"{GROUPS}, list: [{REDUCE}]")))
    parser = OutputParser(made.told())
    said = b'{"kind": "timeline", "step": 0, "iteration": 0, "first": 0, "times": [[1, 2, 0]]}'
    line = parser.line(0, said)
    assert line is not None
    assert line["times"] == [[1, 2, 0]]
    for wrong in (b"[[2, 1, 0]]", b"[[1, 2, 0], [1, 2, 0]]", b"[[1, 2]]", b'[["1", 2, 0]]', b"[[1, 2, -1]]", b"7"):
        with pytest.raises(UnexpectedLine):
            parser.line(0, said.replace(b"[[1, 2, 0]]", wrong))
    with pytest.raises(UnexpectedLine):
        parser.line(5, said)  # has no tasks
    waits = parser.line(0, b'{"kind": "waiting", "step": 0, "tasks": [[0, [2]]]}')
    assert waits is not None
    assert [(t["task"]["task"], t["ranks"]) for t in waits["tasks"]] == [("a", [2])]
    with pytest.raises(UnexpectedLine):
        parser.line(0, b'{"kind": "waiting", "step": 0, "tasks": [[1, [2]]]}')


def test_the_fastest_is_taken_of_what_has_closed_forms_else_what_hosts_do() -> None:
    found = {}
    for name in known.collectives():
        task = Collective(id="c", collective=name, group="g", size_bytes=64)
        found[name] = algorithm_of(Graph({"g": ((0, 1),)}, {0: (task,), 1: (task,)}), task)
    assert found["all_reduce"] == found["barrier"] == found["m2n"] == "auto"
    assert {name: taken for name, taken in found.items() if taken != "auto"} == {
        "ping_pong": "write", **dict.fromkeys(("optimizer_step", "rpc", "block_write", "feed"), "host")
    }  # fmt: skip
