"""A library among the ranks of a large fabric, whose model knows no cable: as on small ones with their graphs."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.predict import predict
from testbed.predict.large import large_figures, of_any_size


def step(topology: str, collective: str, size: str, more: str = "") -> Experiment:
    library = "library: {env: {NCCL_ALGO: 'ring,tree,nvlstree'}}"
    text = f"name: t\nfabric: {{topology: {{{topology}}}{more}}}\n{library}\n"
    return any_size(f"{text}workload: [{{collective: {collective}, sizes: [{size}]}}]\n")


def any_size(text: str) -> Experiment:
    with of_any_size():
        return loads(text, "t.yaml")


@pytest.mark.parametrize(
    ("topology", "collective", "size", "within"),
    [
        ("rail: {servers: 4, gpus: 4}", "all_reduce", "16KiB", 0.1),
        ("rail: {servers: 4, gpus: 4}", "all_gather", "256MiB", 0.05),
        ("star: {hosts: 8}", "all_reduce", "64MiB", 0.05),
    ],
)
def test_without_its_graph_it_is_the_same(topology: str, collective: str, size: str, within: float) -> None:
    one = step(topology, collective, size)
    (with_graph,), (without,) = predict(one).figures, list(large_figures(one))
    assert without.algorithm.removesuffix(" (library)") in with_graph.algorithm
    assert without.time_ns == pytest.approx(with_graph.time_ns, rel=within)


def test_tens_of_thousands_of_ranks() -> None:
    """A ring all-gather among 16,384 cannot be faster than its NICs let what others have into a server."""
    (figure,) = predict(step("rail: {servers: 2048, gpus: 8, spines: 1}", "all_gather", "16GiB")).figures
    assert figure.ranks == 16384
    least = (16 << 30) * 2047 / 2048 / 8 * 8 / 400
    assert least < figure.time_ns < 2 * least


def test_what_it_does_not_know_is_refused() -> None:
    slow = ", cables: {'cable:h0.0-rail0': {rate: 100Gbps}}"
    with pytest.raises(InputError, match="whose cables differ"):
        predict(step("rail: {servers: 2048, gpus: 8, spines: 1}", "all_gather", "1GiB", slow))
    model = "model: {layers: 2, hidden: 512, heads: 8, vocab: 0, seq: 256}, gpu: {preset: h100}"
    train = f"- train: {{{model}, parallel: {{data: 16384}}}}"
    text = f"name: t\nfabric: {{topology: {{rail: {{servers: 2048, gpus: 8}}}}}}\nlibrary: {{}}\nworkload:\n{train}\n"
    with pytest.raises(InputError, match="by a library on so large a fabric"):
        predict(any_size(text))
