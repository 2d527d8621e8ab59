"""Steps of tasks followed message by message: closed forms where cables are shared, the longest path where none is."""

from __future__ import annotations

from itertools import count

import pytest

from testbed.experiment import Experiment, loads
from testbed.plan.choose import Chooser
from testbed.plan.steps.plan import plan
from testbed.predict import predict
from testbed.predict.connected import Connected
from testbed.predict.figure import LONGEST_PATH, MESSAGES
from tests.parts.task_graphs import followed_ns
from workloads.registry import find
from workloads.tasks.replay import Tasks
from workloads.times.queue_pairs import FIRST

TWO_LEAVES = "clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}"
WIRE = 4096 + 82  # of a full packet of a message: Ethernet, IPv4, UDP, BTH, ICRC, FCS, preamble and gap


def experiment(topology: str, tasks: str, more: str = "", before: str = "") -> Experiment:
    return loads(
        f"name: t\nfabric: {{topology: {{{topology}}}}}\n{more}\nworkload:\n{before}- tasks:\n{tasks}", "t.yaml"
    )


def message(source: int, target: int, size: str, *, tag: int = 0, after: str = "") -> str:
    more = f", after: [{after}]" if after else ""
    return (
        f"    - {{id: s{source}{tag}, send: {size}, ranks: [{source}], to: {target}, stream: out, tag: t{tag}{more}}}\n"
        f"    - {{id: r{target}{tag}, recv: {size}, ranks: [{target}], from: {source}, stream: in, tag: t{tag}}}\n"
    )


LINE = (16 << 20) / 4096 * WIRE * 8 / 400 + (16 + 4) * 8 / 400
"""ns that 16 MiB keep a cable busy: the first packet has a RETH, the last one immediate data."""


def test_two_messages_over_one_uplink_take_one_s_line_longer() -> None:
    """Packet by packet in turns, so the last one of either is behind all others."""
    one = experiment(TWO_LEAVES, "    list:\n" + message(0, 2, "16MiB"))
    both = experiment(TWO_LEAVES, "    list:\n" + message(0, 2, "16MiB") + message(1, 3, "16MiB"))
    (alone,), (figure,) = predict(one).figures, predict(both).figures
    assert (alone.how, figure.how) == (LONGEST_PATH, MESSAGES)
    assert figure.time_ns == pytest.approx(alone.time_ns + LINE, abs=2)
    assert followed_ns(one) == pytest.approx(alone.time_ns, abs=1)
    assert figure.time_ns == pytest.approx(693446.6, abs=1)  # a run of it


def test_who_comes_later_shares_only_what_is_left() -> None:
    """The second begins when half of the first is through: the uplink is busy from the first's begin to the end."""
    wait = f"    - {{id: c, compute: {LINE / 2:.0f}ns, ranks: [1]}}\n"
    late = experiment(TWO_LEAVES, "    list:\n" + message(0, 2, "16MiB") + wait + message(1, 3, "16MiB", after="c"))
    (alone,) = predict(experiment(TWO_LEAVES, "    list:\n" + message(0, 2, "16MiB"))).figures
    (figure,) = predict(late).figures
    assert figure.time_ns == pytest.approx(alone.time_ns + LINE, abs=2)


def test_groups_over_one_uplink_wait_for_each_other() -> None:
    """Two rings of two ranks, a host of each leaf: two hops of half the vector each, both groups' on the cable."""
    tasks = (
        "    groups: {g: {ranks: [[0, 2], [1, 3]], algorithm: {all_reduce: ring}}}\n"
        "    list:\n    - {id: a, collective: all_reduce, group: g, size: 16MiB}\n"
    )
    line, reduce_ns = (8 << 20) / 4096 * WIRE * 8 / 400, (8 << 20) * 8 / 800
    (figure,) = predict(experiment(TWO_LEAVES, tasks, "costs: {reduce: 800Gbps}")).figures
    assert figure.how == MESSAGES
    assert figure.time_ns == pytest.approx(2 * 2 * line + reduce_ns, rel=0.02)


@pytest.mark.parametrize("topology", ["star: {hosts: 4}", "rail: {servers: 2, gpus: 2}"])
@pytest.mark.parametrize(
    "tasks",
    [
        "    list:\n    - {id: a, compute: 7us}\n    - {id: b, compute: 3us, not_before: 20us}\n",
        "    groups: {g: [[0, 1], [2, 3]]}\n    list:\n    - {id: a, collective: all_reduce, group: g, size: 1MiB}\n"
        "    - {id: b, compute: 5us}\n    - {id: c, collective: all_gather, group: g, size: 64KiB}\n",
        "    list:\n" + message(0, 1, "64KiB") + message(1, 2, "1MiB", after="r10") + message(2, 3, "4B", after="r20"),
    ],
)
def test_alone_it_is_the_longest_path(topology: str, tasks: str) -> None:
    one = experiment(topology, tasks)
    (figure,) = predict(one).figures
    assert figure.how == LONGEST_PATH
    assert followed_ns(one) == pytest.approx(figure.time_ns, rel=1e-3)


def test_a_reduction_keeps_its_own_stream_busy_only() -> None:
    """A computation on another stream is through in its own time, however long the reductions are."""
    tasks = (
        "    groups: {g: {ranks: [[0, 1]], algorithm: {all_reduce: ring}}}\n"
        "    list:\n    - {id: a, collective: all_reduce, group: g, size: 1MiB, stream: net}\n"
        "    - {id: b, compute: 1ms, ranks: [0, 1]}\n"
    )
    assert followed_ns(experiment("star: {hosts: 2}", tasks)) == pytest.approx(1e6)


def test_queue_pairs_are_numbered_group_by_group_and_then_for_messages() -> None:
    tasks = (
        "    groups: {b: [[0, 1]], a: {ranks: [[0, 1, 2, 3]], algorithm: {all_reduce: ring}}}\n    list:\n"
        "    - {id: x, collective: all_gather, group: b, size: 4KiB}\n"
        "    - {id: y, collective: all_reduce, group: a, size: 4KiB}\n"
    ) + message(0, 3, "4KiB")
    one = experiment("clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}", tasks)
    made = Connected(Chooser(one))
    numbers = made.tasks(Tasks(plan(one).told()["steps"][0], find, one.seed))
    new = count(FIRST)
    assert [numbers[0, peer, tag][0] for peer, tag in ((1, 0), (3, 0), (1, 16), (3, 32))] == [
        next(new) for _ in range(4)
    ]
    assert numbers[3, 0, 32] == (FIRST + 2, FIRST + 3)  # behind the ring's two


def test_where_nics_do_some_of_it_spines_are_drawn_from_there_on() -> None:
    tasks = (
        "    groups: {g: {ranks: [[0, 1, 2, 3]], algorithm: {all_reduce: direct_reduce}}}\n"
        "    list:\n    - {id: a, collective: all_reduce, group: g, size: 64KiB}\n"
    )
    one = experiment("clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}", tasks)
    tasks_of = Tasks(plan(one).told()["steps"][0], find, one.seed)
    made = Connected(Chooser(one))
    assert not tasks_of.followable and made.tasks(tasks_of) == {}
    (figure,) = predict(one).figures
    assert figure.how == LONGEST_PATH
