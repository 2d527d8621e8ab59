"""The step `serve` of an experiment file: what it means, and every mistake with its line and what is allowed."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.serving import ping_pongs
from testbed.plan.plan import plan

FILE = """name: t
fabric:
  topology: {star: {hosts: 8}}
workload:
- serve:
    model: MODEL
    gpu: GPU
    attention: ATTENTION
    experts: EXPERTS
    MORE
"""
SMALL = "{layers: 2, hidden: 256, heads: 8, seq: 128, experts: 4}"
MIXTRAL = "{preset: mixtral-8x7b}"


def _text(
    *,
    model: str = SMALL,
    gpu: str = "{preset: h20}",
    attention: str = "[0, 1, 2]",
    experts: str = "[4, 5]",
    more: str = "",
) -> str:
    text = FILE
    values = {"MODEL": model, "GPU": gpu, "ATTENTION": attention, "EXPERTS": experts, "MORE": more}
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def test_a_step_means_what_it_says() -> None:
    text = _text(
        model="{preset: mixtral-8x7b, layers: 2, vocab: 0}",
        experts="{ranks: [7, 5], gpu: {preset: l40s, efficiency: 0.4}, cost: 1.5}",
        more="tokens: 32\n    context: 100\n    micro_batches: [2, 3]\n    gating: uniform",
    )
    two, three = ping_pongs(loads(text).workload[0].serve, 1)  # type: ignore[union-attr]
    assert (two.micro_batches, three.micro_batches) == (2, 3)
    assert two.attention.ranks == (0, 1, 2) and two.experts.ranks == (7, 5)
    assert two.attention.gpu is not None and two.attention.gpu.flops == 148e12
    assert two.experts.gpu is not None and two.experts.gpu.efficiency == 0.4
    assert (two.experts.cost, two.attention.cost, two.context, two.tokens) == (1.5, None, 100, 32)
    assert two.parts == ((32, 32),) * 3


def test_a_context_is_the_models_sequence_if_nothing_is_said() -> None:
    (only,) = ping_pongs(loads(_text()).workload[0].serve, 1)  # type: ignore[union-attr]
    assert (only.context, only.micro_batches, only.exchange) == (128, 1, "m2n")


def test_each_number_of_micro_batches_is_a_step() -> None:
    steps = plan(loads(_text(more="micro_batches: [1, 3]")))["steps"]
    assert [step["name"] for step in steps] == ["serve m=1, m2n", "serve m=3, m2n"]
    assert [step["about_step"]["tokens"] for step in steps] == [3, 9]


MISTAKES = {
    "no pool": ({"experts": "null"}, 5, "", "there is no pool experts", "experts: [2, 3]"),
    "an empty pool": ({"experts": "[]"}, 9, ".experts.ranks", "the list is empty", ""),
    "no such rank": ({"experts": "[4, 8]"}, 9, ".experts.ranks[1]", "no rank 8", "0 to 7"),
    "pools that overlap": (
        {"experts": "[4, 2]"}, 9, ".experts.ranks[1]", "rank 2 stands in attention, too", "share no rank",
    ),
    "a rank twice": ({"attention": "[1, 1]"}, 8, ".attention.ranks[1]", "stands twice in attention", "no rank"),
    "GPU": ({"gpu": "{efficiency: 0.4}"}, 7, ".gpu", "a GPU without FLOP/s", "preset: v100"),
    "no GPU": ({"gpu": "null"}, 8, ".attention", "the pool attention has GPUs without FLOP/s", "layer: 40us"),
    "GPU of a pool": (
        {"experts": "{ranks: [4], gpu: {preset: l40}}"}, 9, ".experts.gpu.preset", "unknown GPU 'l40'", "l40s",
    ),
    "gating": ({"more": "gating: zip"}, 10, ".gating", "a mapping", ""),
    "gating's key": ({"more": "gating: {zip: 1}"}, 10, ".gating.zip", "unknown key", "zipf"),
    "two gatings": (
        {"more": "gating: {zipf: 1.0, hot: 0.5}"}, 10, ".gating.hot", "by zipf, or to a hot expert", "one of them",
    ),
    "micro-batches": ({"more": "micro_batches: 0"}, 10, ".micro_batches[0]", "out of bounds", "at least 1"),
    "micro-batches twice": ({"more": "micro_batches: [2, 2]"}, 10, ".micro_batches[1]", "stand twice", "once"),
    "exchange": ({"more": "exchange: m2m"}, 10, ".exchange", "m2m", "m2n"),
    "algorithm": (
        {"more": "exchange: all_to_all\n    algorithm: {all_to_all: ring}"},
        11, ".algorithm.all_to_all", "unknown algorithm 'ring'", "pairwise",
    ),
    "an algorithm of nothing": (
        {"more": "algorithm: {all_to_all: spread}"}, 10, ".algorithm.all_to_all", "does no all_to_all", "m2n, n2m",
    ),
    "no experts": ({"model": "{preset: llama-7b}"}, 6, ".model", "a model without experts", "experts: 8"),
    "experts": ({"experts": "[4, 5, 6]"}, 9, ".experts.ranks", "4 experts cannot be divided among 3", "1, 2, 4"),
    "top_k": (
        {"model": SMALL[:-1] + ", top_k: 5}"}, 6, ".model.top_k", "cannot take 5 of 4 experts", "1 to 4",
    ),
    "model": ({"model": "{layers: 4, experts: 2}"}, 6, ".model", "a model needs hidden, heads, seq", "preset"),
    "memory": (
        {"model": MIXTRAL, "more": "tokens: 256"}, 8, ".attention",
        "a rank of attention needs 140.7GB, keys and values 137.5GB of it, and its GPU has 96.0GB", "fewer tokens",
    ),
    "memory of experts": (
        {"model": MIXTRAL, "experts": "{ranks: [4], gpu: {preset: l40s}}"}, 9, ".experts",
        "a rank of experts needs 90.2GB, and its GPU has 48.0GB", "more ranks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_with_its_line(name: str) -> None:
    changed, line, key, what, hint = MISTAKES[name]
    with pytest.raises(InputError) as raised:
        loads(_text(**changed), "t.yaml")
    error = raised.value
    assert what in error.what, error.what
    assert error.where == f"t.yaml:{line}: workload[0].serve{key}"
    assert hint in error.hint, error.hint
