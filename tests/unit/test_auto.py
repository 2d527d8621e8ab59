"""What `auto` takes: algorithms, pieces, offloads; that it says why; and how little of large schedules it makes."""

from __future__ import annotations

import json
from collections import Counter
from math import inf
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.experiment.overrides import override
from testbed.plan.auto import PIECES
from testbed.plan.steps.plan import plan
from testbed.predict import predict
from testbed.predict.figure import Figure
from testbed.predict.large import of_any_size
from testbed.predict.table import of_prediction
from testbed.tables.results import lines
from workloads.collectives import ring
from workloads.times import expected, followed

STAR = "topology: {star: {hosts: 8}}"
ADDERS = f"{STAR}, switch: {{accelerator: {{}}}}, nic: {{kind: on_path}}"


def experiment(fabric: str = STAR, **step: Any) -> Experiment:
    told = {"algorithm": "auto", "sizes": ["1MiB"], **step}
    return loads(f"name: t\nfabric: {{{fabric}}}\nworkload: {json.dumps([told])}\n")


def chosen(one: Experiment) -> dict[str, Any]:
    (step,) = plan(one).steps
    return dict(step.chosen[str(one.workload[0].sizes[-1])])


def predicted(one: Experiment) -> Figure:
    (figure,) = predict(one).figures
    return figure


# Pieces


def test_pieces_are_chosen_where_they_are_faster_and_told_to_the_ranks() -> None:
    """A ring adds up one piece while the next comes in, so that of a long message only the first has to wait."""
    found = chosen(experiment(collective="all_reduce", sizes=["1MiB"]))
    assert found["chunk"] in PIECES
    kib = f"{found['chunk'] >> 10}KiB"
    whole, cut = (found["expected_ns"][f"{found['algorithm']}{more}"] for more in ("", f"[chunk={kib}]"))
    assert cut < 0.8 * whole and cut == min(found["expected_ns"].values())
    named = experiment(collective="all_reduce", algorithm=found["algorithm"], chunk=kib)
    assert predicted(named).time_ns == pytest.approx(cut, abs=1)


def test_pieces_are_not_chosen_where_they_are_none_or_the_step_says_which() -> None:
    assert "chunk" not in chosen(experiment(collective="all_reduce", sizes=["4KiB"]))
    said = chosen(experiment(collective="all_reduce", chunk="128KiB"))
    assert "chunk" not in said and not any("[" in name for name in said["expected_ns"])


def test_each_size_has_pieces_of_its_own_and_the_table_names_them() -> None:
    one = experiment(collective="all_reduce", sizes=["4KiB", "256KiB", "4MiB"])
    small, middle, large = predict(one).figures
    assert "chunk" not in small.chosen and small.algorithm == f"{small.chosen['algorithm']} (auto)"
    assert "[chunk=" in middle.algorithm and "[chunk=" in large.algorithm != middle.algorithm
    text = "\n".join(lines(of_prediction(predict(one), "t")))
    assert f"auto, {4 << 20} B: {large.algorithm.removesuffix(' (auto)')}, {large.time_ns / 1e3:.2f} us" in text
    assert f" {large.algorithm} " in text


# Offloads


def test_a_broadcast_is_a_multicast_if_offloads_may_be_taken() -> None:
    step = {"collective": "broadcast", "sizes": ["16MiB"]}
    hosts, all_of_them = (predicted(experiment(**step, **more)) for more in ({}, {"offloads": True}))
    named = predicted(experiment(**step, algorithm="multicast"))
    assert all_of_them.algorithm == "multicast (auto)" and "multicast" not in hosts.chosen["expected_ns"]
    assert all_of_them.time_ns == named.time_ns < hosts.time_ns


def test_what_the_fabric_lacks_is_left_out_and_said() -> None:
    found = chosen(experiment(collective="all_reduce", offloads=True))
    assert {"in_network", "direct_reduce", "in_network_best_effort"} == found["left_out"].keys()
    assert "no accelerator" in found["left_out"]["in_network"] and "on_path" in found["left_out"]["direct_reduce"]
    assert not found["left_out"].keys() & found["expected_ns"].keys()
    text = "\n".join(lines(of_prediction(predict(experiment(collective="all_reduce", offloads=True)), "t")))
    assert "auto, without in_network: switches have no accelerator" in text
    torus = override(
        experiment(collective="all_reduce", offloads=True), ["fabric.topology={torus: {dims: [4], direct: true}}"]
    )
    assert "there are no switches" in chosen(torus)["left_out"]["in_network"]


@pytest.mark.parametrize(
    ("step", "name", "why"),
    [
        ({"dtype": "float64"}, "in_network", "none of float64"),
        ({"op": "prod"}, "in_network", "no reduction prod"),
        ({"collective": "all_gather", "dtype": "float64"}, "direct_reduce", "none of float64"),
    ],
)
def test_what_an_offload_cannot_do_leaves_it_out(step: dict[str, Any], name: str, why: str) -> None:
    assert why in chosen(experiment(ADDERS, **{"collective": "all_reduce", "offloads": True, **step}))["left_out"][name]


def test_ranks_are_told_what_they_need_for_an_offload() -> None:
    found = chosen(experiment(ADDERS, collective="all_reduce", offloads=True))
    (named,) = plan(experiment(ADDERS, collective="all_reduce", algorithm="in_network")).told()["steps"]
    assert found["algorithm"] == "in_network" and found["aggregation"] == named["aggregation"]
    assert "direct_reduce" in found["expected_ns"]
    (planned,) = plan(experiment(ADDERS, collective="all_reduce", offloads=True)).steps
    assert planned.jobs == 1


def test_a_multicast_that_would_give_up_is_left_out() -> None:
    """Its first datagrams come later than the time for which ranks wait."""
    far = f"{STAR}, cable: {{delay: 100us}}"
    found = chosen(experiment(far, collective="broadcast", offloads=True, sizes=["4KiB"]))
    assert "cutoff" in found["left_out"]["multicast"] and found["algorithm"] != "multicast"


def test_on_a_fabric_that_is_too_large_to_emulate_hosts_alone_are_compared() -> None:
    with of_any_size():
        one = experiment("topology: {star: {hosts: 5000}}", collective="all_reduce", offloads=True)
        with pytest.raises(InputError, match="what hosts do alone") as refused:
            predict(one)
    assert refused.value.where.endswith("workload[0].offloads")


def test_only_auto_chooses() -> None:
    with pytest.raises(InputError, match="ring chooses nothing"):
        experiment(collective="all_reduce", algorithm="ring", offloads=True)


# At scale


def test_of_schedules_that_are_not_followed_few_programs_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of 64 ranks as of 16: who a rank's neighbours are is known without its steps."""
    monkeypatch.setattr(expected, "MOST_MESSAGES", 100)
    made: Counter[int] = Counter()
    around = ring.around

    def counted(hops: Any, *more: Any) -> Any:
        made[len(hops)] += 1
        return around(hops, *more)

    monkeypatch.setattr(ring, "around", counted)
    for leaves in (4, 16):
        clos = f"topology: {{clos: {{leaves: {leaves}, spines: 2, hosts_per_leaf: 4}}}}"
        plan(experiment(clos, collective="all_reduce", sizes=["64KiB", "1MiB"]))
    rings = {n: made[2 * (n - 1)] for n in (16, 64)}
    assert 0 < rings[64] <= rings[16] < 4 * 16


# How closely it looks


def test_it_takes_what_is_fastest_with_the_pauses_that_there_will_be() -> None:
    """What waits behind a hot receiver's is held up where all is sent at once; one after the other it is not."""
    fabric = "topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}, switch: {buffer: 1500KB, alpha: 0.5%s}"
    step = {"collective": "all_to_all_v", "sizes": ["8MiB"]}
    paused, free = (experiment(fabric % more, **step) for more in ("", ", pfc: false"))
    assert (chosen(paused)["algorithm"], chosen(free)["algorithm"]) == ("pairwise", "spread")
    named = predicted(experiment(fabric % "", algorithm="spread", **step))
    assert chosen(paused)["expected_ns"]["spread"] == pytest.approx(named.time_ns, abs=1)
    assert chosen(free)["expected_ns"]["spread"] < chosen(paused)["expected_ns"]["pairwise"] < named.time_ns


def test_where_pauses_would_stop_all_for_ever_it_takes_what_is_fastest_without() -> None:
    """So that a run can show the deadlock; predicted it is not."""
    text = "name: t\nfabric: {topology: {ring: {nodes: 6}}, switch: {buffer: 2MB}}\ncontrol: {dateline: false}\n"
    one = loads(f"{text}workload: [{{collective: all_to_all, algorithm: auto, sizes: [4MiB]}}]\n")
    assert chosen(one)["algorithm"] == "spread" and "left_out" not in chosen(one)
    with pytest.raises(InputError, match="circle"):
        predict(one)


def test_what_cannot_be_the_fastest_is_not_followed_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of it is no more than it takes, more than what is taken, and which that is stays the same."""
    one = experiment("topology: {ring: {nodes: 6}}", collective="all_reduce", sizes=["1MiB"])
    monkeypatch.setattr(followed, "_LITTLE", inf)
    to_the_end = chosen(one)
    monkeypatch.setattr(followed, "_LITTLE", 0)
    monkeypatch.setattr(followed, "_OF_A_MESSAGE", 0)
    roughly = chosen(one)
    assert "at_least_ns" not in to_the_end and "recursive_doubling" in roughly["at_least_ns"]
    assert [roughly.get(key) for key in ("algorithm", "chunk")] == [to_the_end[key] for key in ("algorithm", "chunk")]
    best = min(roughly["expected_ns"].values())
    for name in roughly["at_least_ns"].keys() & to_the_end["expected_ns"].keys():
        assert best <= roughly["at_least_ns"][name] <= 1.001 * to_the_end["expected_ns"][name]
    text = "\n".join(lines(of_prediction(predict(one), "t")))
    assert f"recursive_doubling over {roughly['at_least_ns']['recursive_doubling'] / 1e3:.2f}" in text
