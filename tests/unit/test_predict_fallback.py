"""Fabrics that can be emulated and have more messages than are followed: the model of large fabrics, without a jump."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.experiment.overrides import override
from testbed.predict import collectives, predict
from testbed.predict.figure import FLOWS, FORMULA, LONGEST_PATH, MESSAGES, ONE_PIPELINE
from testbed.predict.large import large_figures, of_any_size
from workloads.registry import find

CUSTOM = """custom:
      nodes: {a: host, b: host, c: host, d: host, left: switch, right: switch}
      cables: [a-left, b-left, c-right, d-right, left-right]"""


def experiment(topology: str, *steps: str, more: str = "") -> Experiment:
    workload = "\n".join(f"- {{{step}}}" for step in steps)
    with of_any_size():  # as the command reads it
        return loads(f"name: t\nfabric:\n  topology:\n    {topology}\n{more}workload:\n{workload}\n", "t.yaml")


def ring(ranks: int, chunk: int) -> tuple[float, str]:
    step = f"collective: all_reduce, algorithm: ring, sizes: [{ranks * chunk}B]"
    (figure,) = predict(experiment(f"star: {{hosts: {ranks}}}", step)).figures
    return figure.time_ns, figure.how


@pytest.mark.parametrize("chunk", [1024, 65536])
def test_a_ring_of_any_size_has_2_p_minus_1_steps(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Chunks of the same size on a star: each further rank is two steps more, followed or not."""
    monkeypatch.setattr(collectives, "MOST_FOLLOWED", 5000)  # of 50 ranks there are 4,900 messages
    (small, how), (middle, also) = ring(10, chunk), ring(50, chunk)
    large, otherwise = ring(240, chunk)
    assert (how, also, otherwise) == (MESSAGES, MESSAGES, FLOWS)
    step = (middle - small) / (2 * (50 - 10))
    assert large - middle == pytest.approx(2 * (240 - 50) * step, rel=5e-4)
    # a step: two cables with 500 ns and one switch with 500 ns; what the message and its acknowledgement hold up
    lower = 2 * 500 + 500 + chunk * 8 / 400
    assert lower < step < 3 * lower + 2000


@pytest.mark.parametrize(
    ("topology", "step", "within"),
    [
        ("torus: {dims: [4, 4]}", "collective: all_reduce, algorithm: ring", 5e-4),
        ("rail: {servers: 4, gpus: 4, spines: 2}", "collective: all_reduce, algorithm: ring", 5e-4),
        ("clos: {leaves: 4, hosts_per_leaf: 4, spines: 4}", "collective: reduce_scatter, algorithm: ring", 0.03),
        ("star: {hosts: 16}", "collective: all_to_all", 0.01),
        ("star: {hosts: 16}", "collective: all_reduce, algorithm: halving_doubling", 0.03),
        ("rail: {servers: 4, gpus: 4, spines: 2}", "collective: broadcast, algorithm: binomial_tree", 0.03),
    ],
)
def test_nothing_jumps_where_messages_are_no_longer_followed(
    monkeypatch: pytest.MonkeyPatch, topology: str, step: str, within: float
) -> None:
    its = experiment(topology, f"{step}, sizes: [64KiB, 1MiB]")
    followed = predict(its).figures
    monkeypatch.setattr(collectives, "MOST_FOLLOWED", 1)
    large = predict(its).figures
    assert {figure.how for figure in followed} == {MESSAGES} and {figure.how for figure in large} == {FLOWS}
    for one, other in zip(followed, large, strict=True):
        assert other.time_ns == pytest.approx(one.time_ns, rel=within)


@pytest.mark.parametrize("many", [100, 1 << 20])
def test_what_comes_behind_so_many_queue_pairs_takes_the_spines_of_a_run(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """An all-to-all makes 15 a NIC, and which spines what is behind it takes follows from that."""
    behind = "collective: all_reduce, algorithm: halving_doubling, sizes: [1MiB]"
    its = experiment(
        "clos: {leaves: 4, hosts_per_leaf: 4, spines: 4}", "collective: all_to_all, sizes: [64KiB]", behind
    )
    first, *_ = predict(experiment("clos: {leaves: 4, hosts_per_leaf: 4, spines: 4}", behind)).figures
    usual = predict(its).figures[1]
    monkeypatch.setattr("testbed.predict.connected.MOST", many)  # queue pairs that are numbered one by one
    monkeypatch.setattr(collectives, "MOST_FOLLOWED", 239)  # the 240 of the all-to-all are more
    found = predict(its).figures
    assert found[0].how == FLOWS
    assert found[1].time_ns == pytest.approx(usual.time_ns, rel=0.03) and usual.time_ns != first.time_ns


def test_what_no_model_has_is_refused_with_all_that_helps() -> None:
    step = "collective: all_reduce, algorithm: ring, sizes: [1MiB], chunk: 2KiB"
    with pytest.raises(InputError) as wrong:
        predict(experiment("star: {hosts: 240}", step))
    assert "all_reduce by ring has more than 60,000 messages among 240 ranks" in wrong.value.what
    assert wrong.value.hint.startswith("fewer ranks, or another algorithm: there is one of")
    assert wrong.value.hint.endswith(", or a larger `chunk`")


def test_multicasts_of_many_ranks_do_not_look_at_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Way by way a torus of 16 x 16 takes nine seconds, one of 32 x 32 minutes."""
    step = "collective: all_gather, algorithm: multicast, sizes: [64KiB, 16MiB]"
    pair_by_pair = predict(experiment("torus: {dims: [6, 6]}", step)).figures
    monkeypatch.setattr(collectives, "MOST_MULTICAST", 35)
    for one, other in zip(pair_by_pair, predict(experiment("torus: {dims: [6, 6]}", step)).figures, strict=True):
        assert other.how == FLOWS and other.time_ns == pytest.approx(one.time_ns, rel=0.01)
    some = experiment("torus: {dims: [8, 8]}", f"{step}, ranks: {list(range(40))}")
    assert predict(some).figures[0].how == FORMULA  # of some ranks large fabrics have no model


def test_a_network_named_node_by_node_is_predicted() -> None:
    step = "collective: all_reduce, algorithm: ring, sizes: [1MiB]"
    (figure,) = predict(experiment(CUSTOM, step)).figures
    (star,) = predict(experiment("star: {hosts: 4}", step)).figures
    assert figure.how == MESSAGES and figure.time_ns > star.time_ns  # two hops are longer
    with pytest.raises(InputError, match="tensor x context x data x pipeline|8 ranks"):
        experiment(CUSTOM, f"train: {{{MODEL}, parallel: {{data: 8}}}}")  # such checks were left out, too


MODEL = "model: {layers: 4, hidden: 512, heads: 16, seq: 256}, gpu: {flops: 100T}, batch: {count: 4}"


def test_training_with_many_messages_goes_by_the_model_of_large_fabrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor groups inside leaves, data groups over one spine, which four hosts of a leaf share (docs/predict.md)."""
    its = experiment(
        "clos: {leaves: 4, hosts_per_leaf: 4, spines: 1}",
        f"train: {{{MODEL}, parallel: {{tensor: 4, data: 4}}, groups: {{data: {{algorithm: ring}}}}}}",
    )
    (followed,) = predict(its).figures
    monkeypatch.setattr("testbed.predict.large.MOST_MESSAGES", 100)
    (before,) = predict(its).figures  # known before anything is planned
    monkeypatch.undo()
    monkeypatch.setattr("workloads.tasks.replay.MOST_MESSAGES", 100)
    (after,) = predict(its).figures  # known when they are counted
    assert (followed.how, before.how, after.how) == (MESSAGES, ONE_PIPELINE, ONE_PIPELINE)
    assert before.time_ns == after.time_ns == pytest.approx(followed.time_ns, rel=0.01)


def test_a_thousand_gpus_are_neither_planned_nor_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError("its tasks were planned")

    monkeypatch.setattr("testbed.plan.steps.plan.plan", never)
    text = (
        "train: {model: {layers: 8, hidden: 512, heads: 16, seq: 64}, gpu: {preset: a100}, batch: {count: 32}, "
        "parallel: {tensor: 8, pipeline: 4, data: 32}, place: {tensor: scale_up}}"
    )
    (figure,) = predict(experiment("rail: {servers: 128, gpus: 8, spines: 8}", text)).figures
    assert figure.how == ONE_PIPELINE and figure.ranks == 1024


@pytest.mark.parametrize(("count", "how"), [(1, MESSAGES), (8, ONE_PIPELINE)])
def test_the_whole_of_a_scaled_step_is_what_the_step_is_by_itself(
    monkeypatch: pytest.MonkeyPatch, count: int, how: str
) -> None:
    monkeypatch.setattr("testbed.predict.large.MOST_MESSAGES", 2000)
    text = f"train: {{{MODEL.replace('count: 4', f'count: {count}')}, parallel: {{tensor: 4, data: 4}}"
    topology = "clos: {leaves: 4, hosts_per_leaf: 4, spines: 1}"
    (alone,) = predict(experiment(topology, text + "}")).figures
    *small, whole = predict(experiment(topology, text + ", scale: {layers: [1, 2]}}")).figures
    assert {figure.how for figure in small} == {LONGEST_PATH}
    assert whole.how == alone.how == how and whole.time_ns == alone.time_ns


@pytest.mark.parametrize("topology", ["clos: {leaves: 8, hosts_per_leaf: 8, spines: 4}", "torus: {dims: [4, 4]}"])
def test_what_large_fabrics_have_no_model_of_is_followed_there_just_so(topology: str) -> None:
    its = experiment(topology, "collective: all_reduce, algorithm: double_binary_tree, sizes: [4KiB, 1MiB]")
    for one, other in zip(predict(its).figures, large_figures(its), strict=True):
        assert (other.how, other.time_ns) == (MESSAGES, pytest.approx(one.time_ns, rel=1e-9))


def test_a_double_tree_of_a_large_fabric_is_one_level_deeper_for_twice_the_ranks() -> None:
    """Two hosts a leaf of a tree more: a message up, one down, and what its parent adds up."""

    def took(ranks: int) -> float:
        step = "collective: all_reduce, algorithm: double_binary_tree, sizes: [4KiB]"
        (figure,) = predict(experiment(f"star: {{hosts: {ranks}}}", step)).figures
        return figure.time_ns

    small, middle, large = took(128), took(256), took(512)
    assert large - middle == pytest.approx(middle - small, rel=0.01)


def test_messages_of_a_large_fabric_are_bounded() -> None:
    step = "collective: all_reduce, algorithm: double_binary_tree, sizes: [64MiB]"
    with pytest.raises(InputError) as wrong:
        predict(experiment("star: {hosts: 4096}", step))
    assert "more than 240,000 messages" in wrong.value.what and wrong.value.hint.endswith("or a larger `chunk`")


def test_a_fabric_that_can_be_emulated_has_what_large_ones_have(monkeypatch: pytest.MonkeyPatch) -> None:
    its = experiment(
        "rail: {servers: 4, gpus: 4, spines: 2}",
        "collective: all_reduce, algorithm: double_binary_tree, sizes: [4KiB, 4MiB]",
    )
    followed = [(one.how, one.time_ns) for one in predict(its).figures]
    monkeypatch.setattr("testbed.predict.collectives.MOST_FOLLOWED", 100)
    assert [(one.how, one.time_ns) for one in predict(its).figures] == followed
    monkeypatch.setattr("workloads.times.wide.model.MOST_FOLLOWED", 100)
    with pytest.raises(InputError, match=": all_reduce by double_binary_tree has more than 100 messages"):
        predict(its)


def test_of_what_auto_takes_a_size_with_too_many_messages_goes_by_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sizes are followed; only what is asked for by its name is refused."""
    step = "collective: all_reduce, algorithm: {}, sizes: [1KiB, 64MiB]"
    lossy = ["fabric.switch.lossless=[]"]  # a formula knows no pauses
    its = override(experiment("star: {hosts: 36}", step.format("auto")), lossy)
    monkeypatch.setattr("workloads.times.expected.MOST_MESSAGES", 10**6)  # so that `auto` takes it for both
    monkeypatch.setattr("workloads.registry.choices", lambda name, **_: [find(name, "double_binary_tree")])
    monkeypatch.setattr("testbed.plan.choose.choices", lambda name, **_: [find(name, "double_binary_tree")])
    monkeypatch.setattr("testbed.plan.auto.PIECES", ())
    followed = predict(its).figures
    for where in ("testbed.predict.collectives", "workloads.times.wide.model"):
        monkeypatch.setattr(f"{where}.MOST_FOLLOWED", 1000)
    small, large = predict(its).figures
    assert {one.algorithm for one in (*followed, small, large)} == {"double_binary_tree (auto)"}
    assert (small.how, small.time_ns) == (MESSAGES, followed[0].time_ns)
    assert large.how == FORMULA and large.time_ns == pytest.approx(followed[1].time_ns, rel=0.03)
    with pytest.raises(InputError, match=": all_reduce by double_binary_tree has more than 1,000"):
        predict(experiment("star: {hosts: 36}", step.format("double_binary_tree")))
