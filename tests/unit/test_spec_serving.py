"""The step `serve` of an experiment file: what it means, and every mistake with its line and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import load, loads
from testbed.experiment.steps import serving_checks
from testbed.experiment.steps.serving import ping_pongs, requests_of
from testbed.plan.steps.plan import plan
from workloads.serving.ping_pong import PingPong, ping_pong_graph
from workloads.serving.requests import Request
from workloads.tasks.graph import Graph

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
    steps: Any = plan(loads(_text(more="micro_batches: [1, 3]"))).steps
    assert [step.name for step in steps] == ["serve m=1, m2n", "serve m=3, m2n"]
    assert [step.about_step["tokens"] for step in steps] == [3, 9]


WIDE = "{layers: 4, hidden: 1024, heads: 16, seq: 128, experts: 8, top_k: 2}"
FAST = {
    "model": WIDE,
    "gpu": "null",
    "attention": "{ranks: [0, 1], layer: 20us}",
    "experts": "{ranks: [2, 3], layer: 20us}",
}


def test_nobody_is_told_times_below_what_the_wire_allows() -> None:
    """An attention rank's NIC sends m L T k h elements, at 400 Gb/s."""
    (step,) = plan(loads(_text(**FAST, more="tokens: 512\n    micro_batches: 8"))).steps
    its = step.about_step["serving"]
    wire = 512 * 2 * 1024 * 2 * 8 / 400
    assert wire < its["wire_ns"] < 1.1 * wire, "headers"
    assert its["wire_ns"] < its["dispatch_ns"]
    assert its["needed"] is None
    assert min(its["form_ns"], its["expected_ns"]) > 8 * 4 * wire + 2 * 20e3
    assert its["form_between_ns"] == pytest.approx(4 * 8 * its["wire_ns"])
    (small,) = plan(loads(_text(**FAST, more="tokens: 8\n    micro_batches: 8"))).steps
    assert small.about_step["serving"]["needed"] < 8


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
        ("arrival,prompt,output\n1,00000000111234567890,3\n", "'00000000111234567890' is no number of prompt tokens"),
        (f"arrival,prompt,output\n1,2,{'0' * 5000 + '3'}\n", "is no number of output tokens"),
        ("arrival,prompt,output\n1e200,2,3\n", "r.csv:2: '1e200' is too late"),
        ("arrival,prompt,output\n0,2,3\n2.7e9,2,3\n", "the last request comes 2.7e+09 s after the first"),
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


def test_a_trace_may_begin_with_a_mark_of_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("arrival,prompt,output\n1,2,3\n", encoding="utf-8-sig")
    (tmp_path / "t.yaml").write_text(_text(**_asked("{trace: r.csv}")))
    assert requests_of(load(tmp_path / "t.yaml").workload[0].serve, 1) == [Request(0.0, 2, 3)]  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "what"), [("fifo", "is no ordinary file"), ('"a\\0b"', "cannot be read")])
def test_a_trace_that_is_no_file_is_said(tmp_path: Path, name: str, what: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "t.yaml").write_text(_text(**_asked(f"{{trace: {name}}}")))
    with pytest.raises(InputError) as raised:
        load(tmp_path / "t.yaml")
    assert what in raised.value.what and raised.value.where.endswith("t.yaml:11: workload[0].serve.requests.trace")


def test_requests_of_attention_and_experts_are_a_step_for_each_number_of_micro_batches() -> None:
    """With a pool that reads their prompts, and without."""
    asked = "micro_batches: [1, 2]\n    requests: {rate: 10000, count: 3, prompt: 8, output: 2}"
    for more, pools in ((asked, ["m0.", "m1."]), (f"{asked}\n    prefill: [6, 7]", ["prefill", "m0.", "m1."])):
        one, two = (step.about_step["serving"] for step in plan(loads(_text(more=more))).steps)
        assert [pool["name"] for pool in two["pools"]] == pools and len(one["pools"]) == len(pools) - 1
        assert (one["gpus"], one["kind"], two["micro_batches"]) == (5 + 2 * ("prefill" in pools), "requests", 2)
        given = [r for pool in two["pools"] for gives, _, _ in pool["iterations"] for r in gives]
        assert sorted(given) == [0, 0, 1, 1, 2, 2]


def test_a_long_step_is_looked_at_without_making_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def graph(p: PingPong) -> Graph:
        made.append(p.output * p.micro_batches * p.model.layers)
        return ping_pong_graph(p)

    monkeypatch.setattr(serving_checks, "ping_pong_graph", graph)
    loads(_text(more="output: 1000\n    micro_batches: 8"))
    assert made == [1]


def test_what_fits_is_not_refused() -> None:
    """A tied table once; of prompts only as many as an iteration reads."""
    gpt = "{layers: 1, hidden: 1024, heads: 8, seq: 8, vocab: 1000000, tied: true, experts: 2, ffn: 64}"  # 2.05 GB
    loads(_text(model=gpt, gpu="{flops: 1T, memory: 2200MB}"))
    with pytest.raises(InputError, match="a rank of attention needs 2.1GB"):
        loads(_text(model=gpt, gpu="{flops: 1T, memory: 2000MB}"))
    model = "{layers: 1, hidden: 1024, heads: 8, seq: 8}"  # a token's keys and values: 4 KiB; parameters: 25 MB
    pools = "prefill: {ranks: [0], gpu: {flops: 1T, memory: 100MB}}\n    decode: {ranks: [1], gpu: {flops: 1T}}"
    asked = _asked("{rate: 1000, count: 64, prompt: 8000, output: 100}", pools) | {"gpu": "null", "model": model}
    loads(_text(**asked))
    with pytest.raises(InputError, match="a rank of prefill needs"):
        loads(_text(**{**asked, "more": asked["more"] + "\n    prompt_tokens: 64000"}))


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
    "tokens of a ping-pong of requests": (
        {"more": "requests: {rate: 3}\n    tokens: 2"}, 11, ".tokens", "requests have no use for tokens", "leave",
    ),
    "a layer of attention that reads prompts": (
        {"more": "requests: {rate: 3}", "attention": "{ranks: [0], layer: 40us}"}, 8, ".attention.layer",
        "attention reads prompts", "gpu",
    ),
    "fewer sequences than micro-batches": (
        {"more": "requests: {rate: 3}\n    sequences: 2\n    micro_batches: [2, 3]"}, 11, ".sequences",
        "2 sequences cannot be shared out among 3 micro-batches", "at least 3",
    ),
    "a reader without requests": ({"more": "prefill: [6]"}, 10, ".prefill", "needs requests", "rate: 1000"),
    "heads of a reader": (
        {"more": "prefill: [5, 6, 7]\n    requests: {rate: 3}", "experts": "[4]"}, 10, ".prefill.ranks",
        "heads 8 cannot be divided among 3 ranks", "1, 2, 4, 8",
    ),
    "memory of a ping-pong of requests": (
        {"model": MIXTRAL, "more": "requests: {rate: 1, prompt: 900000, count: 9, output: 1}"}, 8, ".attention",
        "keys and values 353.9GB of it, and its GPU has 96.0GB", "shorter sequences",
    ),
    "too many tokens of a ping-pong of requests": (
        {"more": "requests: {rate: 1, output: 1000000}"}, 5, "", "a layer", "at most 524288",
    ),
    "micro-batches of decode": (
        {**SHARED, "more": "decode: [0]\n    micro_batches: 2"}, 11, ".micro_batches", "no use for", "leave",
    ),
    "tokens of requests": (
        _asked("{rate: 3}\n    tokens: 2"), 12, ".tokens", "requests have no use for tokens", "leave tokens out",
    ),
    "a rate that never comes": (
        _asked("{rate: 1.0e-300, count: 3}"), 11, ".requests.rate", "requests at 1e-300 a second take", "more a second",
    ),
    "a file and a number": (
        _asked("{trace: a.csv, count: 3}"), 11, ".requests.count", "requests of a file have no use for count", "leave",
    ),
    "a file and prompts": (
        _asked("{trace: a.csv, prompt: 3}"), 11, ".requests.prompt", "requests of a file have no use for", "leave",
    ),
    "a layer of prompts": (
        _asked("{rate: 3}", "decode: {ranks: [0, 1], layer: 40us}"), 10, ".decode.layer", "decode reads prompts", "gpu",
    ),
    "a layer of prompts apart": (
        _asked("{rate: 3}", "decode: [0]\n    prefill: {ranks: [1], layer: 40us}"), 11, ".prefill.layer",
        "prefill reads prompts", "gpu",
    ),
    "gating without experts": (
        {**SHARED, "more": "decode: [0]\n    gating: {draw: true}"}, 11, ".gating", "has no use for gating", "experts",
    ),
    "kv_heads": (
        {"model": SMALL[:-1] + ", kv_heads: 3}"}, 6, ".model.kv_heads", "heads 8 cannot be divided by kv_heads 3",
        "1, 2, 4, 8",
    ),
    "too many tokens": (
        {"more": "output: 100000"}, 5, "", "1000000 times a rank passes a layer", "at most 524288",
    ),
    "too many tokens of decode": (
        {**SHARED, "more": "decode: [0, 1]\n    output: 1000000"}, 5, "", "4000000 times a rank passes", "at most",
    ),
    "too many tokens of requests": (
        _asked("{rate: 1, output: 1000000}"), 5, "", "4000000 times a rank passes a layer", "at most",
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
