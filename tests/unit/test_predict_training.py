"""Training steps on large fabrics: a few ranks that stand for all, against the longest path of all ranks' tasks."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.experiment.steps.training import layout_of, training_of
from testbed.predict import predict
from testbed.predict.large import large_figures, of_any_size
from workloads.registry import find
from workloads.steps.build import group_sizes, step_groups
from workloads.times.messages import Costs, Link
from workloads.times.wide.fabric import Wide
from workloads.times.wide.groups import Together
from workloads.times.wide.places import Rails, Tiers

MODEL = "{layers: 4, hidden: 512, heads: 16, seq: 256}"


def experiment(topology: str, parallel: str, more: str = "", model: str = MODEL) -> Experiment:
    return loads(
        f"name: t\nfabric: {{topology: {{{topology}}}}}\nworkload:\n- train:\n    model: {model}\n"
        f"    gpu: {{flops: 100T}}\n    batch: {{micro: 1, count: 4}}\n    parallel: {{{parallel}}}\n{more}",
        "t.yaml",
    )


@pytest.mark.parametrize(
    ("topology", "parallel", "more"),
    [
        ("star: {hosts: 8}", "data: 8", "    shard: fsdp\n"),
        ("star: {hosts: 16}", "tensor: 2, data: 2, pipeline: 2, context: 2", ""),
        ("torus: {dims: [4, 4]}", "tensor: 4, data: 4", ""),
        ("rail: {servers: 4, gpus: 4}", "tensor: 4, data: 2, pipeline: 2, sequence: true", "    shard: zero1\n"),
        ("star: {hosts: 16}", "tensor: 2, data: 4, pipeline: 2", "    schedule: {interleaved: 2}\n"),
        ("star: {hosts: 16}", "tensor: 2, data: 4, pipeline: 2, scatter_gather: true", "    schedule: dualpipe\n"),
    ],
)
def test_where_groups_share_no_link_it_is_the_longest_path(topology: str, parallel: str, more: str) -> None:
    one = experiment(topology, parallel, more)
    (all_ranks,), (some,) = predict(one).figures, large_figures(one)
    off = 1e-6
    assert some.time_ns == pytest.approx(all_ranks.time_ns, rel=off) and some.name == all_ranks.name


def test_interleaving_gains_what_is_published_where_messages_are_split() -> None:
    """Narayanan et al. (SC'21), sections 5.3.2 and 5.7: interleaving is faster, the gap closes with the batch, and
    splitting messages over the ranks of tensor is worth more to it than to 1F1B (up to 11 %)."""

    def took(count: int, schedule: str, split: str) -> float:
        text = f"""name: t
fabric: {{topology: {{rail: {{servers: 4, gpus: 4}}}}, cable: {{rate: 200Gbps}}, scale_up: {{rate: 2400Gbps}}}}
costs: {{reduce: 8Tbps}}
workload:
- train:
    model: {{preset: gpt3-175b, layers: 8, vocab: 0, dtype: float16}}
    gpu: {{flops: 312T, hbm: 2039GBps}}
    batch: {{count: {count}}}
    parallel: {{tensor: 4, pipeline: 4, scatter_gather: {split}}}
    schedule: {schedule}
"""
        (figure,) = predict(loads(text)).figures
        return figure.time_ns

    plain, interleaved = "1f1b", "{interleaved: 2}"
    few, many = (took(m, plain, "true") / took(m, interleaved, "true") - 1 for m in (4, 16))
    assert few > 0.1 and 0 < many < few / 2
    gains = [took(4, schedule, "false") / took(4, schedule, "true") - 1 for schedule in (plain, interleaved)]
    assert 0 < gains[0] < gains[1] < 0.11


def test_experts_that_get_more_than_others_are_followed_each() -> None:
    model = "{layers: 2, hidden: 512, heads: 16, seq: 256, experts: 4, top_k: 2}"
    one = experiment("star: {hosts: 4}", "data: 4, expert: 4", "    gating: {zipf: 1.2}\n", model)
    (all_ranks,), (some,) = predict(one).figures, large_figures(one)
    assert some.time_ns == pytest.approx(all_ranks.time_ns, rel=0.02)


def test_groups_that_share_uplinks_wait_for_each_other() -> None:
    """Four hosts of each leaf send 16 MiB at a time to the next leaf over one cable: 6 hops, 3 of which reduce."""
    ways = Wide(Tiers(4, 4, 1), Link(400e9, 500), 500)
    together = Together(ways, ways, Costs(reduce_bps=800e9))
    groups = np.arange(16).reshape(4, 4).T  # a host of each leaf
    chunk = 16 << 20
    line = chunk / 4096 * 4178 * 8 / 400
    found = together.collective_ns(find("all_reduce", "ring"), groups, 4 * chunk, 4)
    assert found == pytest.approx(6 * 4 * line + 3 * chunk * 8 / 800, rel=0.01)
    inside = together.collective_ns(find("all_reduce", "ring"), np.arange(16).reshape(4, 4), 4 * chunk, 4)
    assert inside == pytest.approx(6 * line + 3 * chunk * 8 / 800, rel=0.01)


def test_an_all_to_all_beside_domains_takes_its_busiest_cable() -> None:
    """Rank 0 begins with its own domain, nine times as fast; a rail's uplink has 8 x (64 - 8 - 7) chunks of 1 MiB."""
    ways = Wide(Rails(8, 8, 1, True), Link(400e9, 500), 500, Link(3600e9, 500))
    found = Together(ways, ways, Costs()).collective_ns(find("all_to_all", "spread"), np.arange(64)[None], 64 << 20, 4)
    assert found == pytest.approx(8 * (64 - 8 - 7) * 256 * 4178 * 8 / 400, rel=0.01)


def test_experts_on_rails_wait_for_uplinks() -> None:
    model = "{layers: 2, hidden: 512, heads: 16, seq: 256, experts: 32, top_k: 2}"
    more = "    groups: {expert: {algorithm: spread}}\n"
    one = experiment("rail: {servers: 4, gpus: 8}", "data: 32, expert: 32", more, model)
    (all_ranks,), (some,) = predict(one).figures, large_figures(one)
    assert some.time_ns == pytest.approx(all_ranks.time_ns, rel=0.1)


@pytest.mark.parametrize(
    ("parallel", "model"),
    [
        ("tensor: 2, data: 2, pipeline: 2, context: 2", MODEL),
        ("data: 8, expert: 4, pipeline: 2", "{layers: 2, hidden: 512, heads: 16, seq: 256, experts: 4, top_k: 2}"),
        ("data: 8, pipeline: 2", "{layers: 2, hidden: 512, heads: 16, seq: 256, vocab: 512, tied: true}"),
    ],
)
def test_groups_have_their_sizes_without_places_too(parallel: str, model: str) -> None:
    one = experiment("star: {hosts: 16}", parallel, model=model)
    train = one.workload[0].train
    t = training_of(train)
    there = step_groups(t, layout_of(train, one.build_fabric()))
    assert group_sizes(t) == {name: len(its[0]) for name, its in there.items()}


def test_what_groups_without_an_algorithm_may_take_besides_is_said() -> None:
    with of_any_size():
        one = experiment("star: {hosts: 8192}", "data: 8192")
    found = predict(one)
    assert "all_reduce by double_binary_tree" in found.figures[0].no_model
    assert "all_reduce by double_binary_tree" in found.left_out[0]


def test_a_hundred_thousand_ranks_are_a_pipeline_and_what_its_groups_take() -> None:
    parallel = "tensor: 8, data: 4096, pipeline: 4"
    with of_any_size():
        more = "    place: {tensor: scale_up}\n    groups: {data: {algorithm: ring}}\n"
        one = experiment("rail: {servers: 16384, gpus: 8}", parallel, more)
    found = predict(one)
    (figure,) = found.figures
    assert figure.ranks == 131_072 and figure.name == "train tp8 pp4 dp4096, 1f1b"
    assert figure.how == "one pipeline" and any("different groups of a rank" in text for text in found.left_out)
    # one layer a stage: 12 x 512^2 parameters of 2 bytes over 8 tensor ranks, round a ring of 4,096: 192 bytes a hop
    hop = 100 + 3 * 500 + 2 * 500 + 500 + 2 * (192 + 102) * 8 / 400 + 2 * 192 * 8 / 512  # two cables and a switch
    assert 2 * 4095 * hop < figure.time_ns < 1.05 * 2 * 4095 * hop


@pytest.mark.parametrize(
    ("parallel", "more", "where", "what"),
    [
        ("tensor: 8, data: 4096", "", "parallel", "are 32768 ranks, and there are 131072"),
        ("tensor: 8, data: 16384", "    place: {tensor: rails}\n", "place.tensor", "no axis 'rails'"),
        ("tensor: 8, data: 16384", "    scale: {by: 2}\n", "scale", "small enough to be run"),
        (
            "tensor: 8, data: 16384",
            "    place: {tensor: scale_up}\n    groups: {data: {algorithm: double_binary_tree}}\n",
            "groups.data.algorithm",
            "no model of all_reduce by double_binary_tree in groups of 16384",
        ),
        (
            "tensor: 8, data: 16384",
            "    groups: {nonsense: {algorithm: ring}}\n",
            "groups.nonsense",
            "no group 'nonsense'",
        ),
        ("tensor: 8, data: 16384", "    groups: {data: {algorithm: nonsense}}\n", "groups.data.algorithm", "nonsense"),
        ("tensor: 8, data: 16384", "    groups: {data: {algorithm: pairwise}}\n", "groups.data.algorithm", "pairwise"),
        ("tensor: 8, data: 16384", "    groups: {expert: {algorithm: spread}}\n", "groups.expert", "no group 'expert'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(parallel: str, more: str, where: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught, of_any_size():
        predict(experiment("rail: {servers: 16384, gpus: 8}", parallel, more))
    assert caught.value.where.endswith(f"workload[0].train.{where}")
