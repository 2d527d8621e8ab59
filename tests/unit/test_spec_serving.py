"""The step `serve` of an experiment file: what it means, and every mistake with its line and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.base.errors import InputError
from testbed.experiment import load, loads
from testbed.experiment.serving import ping_pongs, requests_of
from testbed.plan.plan import plan
from workloads.serving.requests import Request

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


SHARED: dict[str, str] = {"attention": "null", "experts": "null", "model": "{preset: llama3-8b, layers: 2}"}


def _asked(requests: str, pools: str = "decode: [0, 1]") -> dict[str, str]:
    return {**SHARED, "more": f"{pools}\n    requests: {requests}"}


def test_a_trace_is_seen_from_the_files_folder(tmp_path: Path) -> None:
    """Arrivals in seconds or with a unit, counted from the first."""
    (tmp_path / "r.csv").write_text("arrival,prompt,output\n0.001, 10 ,3\n500us,20,1\n\n2e-3,30,2\n")
    (tmp_path / "t.yaml").write_text(_text(**_asked("{trace: r.csv}")))
    step = load(tmp_path / "t.yaml").workload[0]
    found = requests_of(step.serve, 1)  # type: ignore[union-attr]
    assert found == [Request(0.0, 20, 1), Request(500e3, 10, 3), Request(1.5e6, 30, 2)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "r.csv:1: the first line does not name the columns"),
        ("arrival,prompt\n", "r.csv:1: the first line does not name the columns"),
        ("arrival,prompt,output\n", "there are no requests"),
        ("arrival,prompt,output\n1,2\n", "r.csv:2: 2 columns"),
        ("arrival,prompt,output\n1,2,3\nsoon,2,3\n", "r.csv:3: 'soon' is no time"),
        ("arrival,prompt,output\n-1,2,3\n", "r.csv:2: '-1' is no time"),
        ("arrival,prompt,output\nnan,2,3\n", "r.csv:2: 'nan' is no time"),
        ("arrival,prompt,output\n1,0,3\n", "r.csv:2: '0' is no number of prompt tokens"),
        ("arrival,prompt,output\n1,2,1e3\n", "r.csv:2: '1e3' is no number of output tokens"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_trace_is_said_with_its_line(tmp_path: Path, text: str | None, what: str) -> None:
    if text is not None:
        (tmp_path / "r.csv").write_text(text)
    (tmp_path / "t.yaml").write_text(_text(**_asked("{trace: r.csv}")))
    with pytest.raises(InputError) as raised:
        load(tmp_path / "t.yaml")
    assert what in raised.value.what and raised.value.where.endswith("t.yaml:11: workload[0].serve.requests.trace")


MISTAKES = {
    "no pools": (SHARED, 5, "", "there is no pool of GPUs", "prefill and decode"),
    "pools of two kinds": (
        {"more": "decode: [6]"}, 10, ".decode", "pools attention and experts and decode do not go together", "prefill",
    ),
    "prefill alone": ({**SHARED, "more": "prefill: [0]"}, 5, "", "there is no pool decode", "decode: [2, 3]"),
    "prefill without requests": (
        {**SHARED, "more": "prefill: [0]\n    decode: [1]"}, 10, ".prefill", "needs requests", "rate: 1000",
    ),
    "requests without a rate": (_asked("{count: 3}"), 11, ".requests", "requests have no rate", "trace: FILE"),
    "requests of two kinds": (
        _asked("{rate: 3, trace: a.csv}"), 11, ".requests", "are drawn, or from a file", "either rate",
    ),
    "requests of ping-pong": (
        {"more": "requests: {rate: 3}"}, 10, ".requests", "attention and experts have no use for requests", "leave",
    ),
    "micro-batches of decode": (
        {**SHARED, "more": "decode: [0]\n    micro_batches: 2"}, 11, ".micro_batches", "no use for", "leave",
    ),
    "tokens of requests": (
        _asked("{rate: 3}\n    tokens: 2"), 12, ".tokens", "requests have no use for tokens", "leave tokens out",
    ),
    "a rate of nothing": (_asked("{rate: 0}"), 11, ".requests.rate", "out of bounds", "more than 0"),
    "tokens the wrong way round": (
        _asked("{rate: 1, prompt: [9, 3]}"), 11, ".requests.prompt", "9 to 3 tokens", "smaller number first",
    ),
    "heads": (
        {**SHARED, "more": "decode: [0, 1, 2]"}, 10, ".decode.ranks", "heads 32 cannot be divided", "1, 2",
    ),
    "memory of sequences": (
        {**_asked("{rate: 1, prompt: 100000, count: 99}"), "model": "{preset: llama3-8b}"}, 10, ".decode",
        "a rank of decode needs 427.6GB, keys and values 419.6GB of it, and its GPU has 96.0GB", "shorter sequences",
    ),
    "an algorithm of decode": (
        {**SHARED, "more": "decode: [0, 1]\n    algorithm: {all_to_all: spread}"}, 11, ".algorithm.all_to_all",
        "does no all_to_all", "all_reduce, all_gather",
    ),
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
        "a rank of attention needs 140.7GB, keys and values 137.5GB of it, and its GPU has 96.0GB", "shorter",
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
