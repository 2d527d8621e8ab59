"""Serving from the file to the figures: MegaScale-Infer's ping-pong, hot experts, exchanges; requests that come."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from results.figures.serving import tokens_of
from tests.parts.serving_runs import Served, run_of

STAR = "{star: {hosts: 8}}"
MODEL = "{layers: 4, hidden: 256, heads: 8, seq: 256, experts: 8, top_k: 2}"


def pools(ta: int = 40, te: int = 40) -> str:
    return f"attention: {{ranks: [0, 1, 2, 3], layer: {ta}us}}, experts: {{ranks: [4, 5, 6, 7], layer: {te}us}}"


def ping_pong(more: str, model: str = MODEL, **times: int) -> str:
    return f"{{model: {model}, {pools(**times)}, tokens: 32, {more}}}"


def test_ping_pong_takes_what_the_paper_says(tmp_path: Path) -> None:
    found = run_of(
        tmp_path / "run",
        STAR,
        [
            ping_pong("micro_batches: [1, 2, 3, 4]"),
            ping_pong("micro_batches: [2, 3]", te=25),
            ping_pong("micro_batches: [2, 3]", ta=25),
            ping_pong("micro_batches: 3, output: 2"),
        ],
    )
    alone = found[0].whole_ns
    tc = (alone / 4 - 80e3) / 2  # of one micro-batch each layer is Ta + Te + 2 Tc
    assert tc == pytest.approx(found[0].serving["dispatch_ns"], rel=0.005)
    assert 2 < 2 * (1 + tc / 40e3) < 3
    layers, each = 4, 40e3
    assert found[1].whole_ns == pytest.approx(layers * (2 * each + 2 * tc) + each, rel=0.005)
    for m in (3, 4):
        form = (2 * each + 2 * tc) + each * (m * layers - 1)
        assert found[m - 1].whole_ns == pytest.approx(form, rel=0.005)
    gain = 2 * alone / found[1].whole_ns
    assert gain == pytest.approx(2 / (1 + each / (layers * (2 * each + 2 * tc))), rel=0.005)
    for one in found[4:]:
        assert one.whole_ns == pytest.approx(one.serving["form_ns"], rel=0.005)
    assert found[8].whole_ns == pytest.approx((2 * each + 2 * tc) + each * (3 * 8 - 1), rel=0.005)
    assert found[8].between_ns == pytest.approx(layers * 3 * each, rel=0.005), "no filling of the pipeline"
    assert found[8].figures["batch_ns"] == pytest.approx((2 * each + 2 * tc) + each * (3 * layers - 1), rel=0.005)
    assert [round(one.off, 5) for one in found if abs(one.off) > 0.005] == []


def test_no_run_is_faster_than_the_wire(tmp_path: Path) -> None:
    """Exchanges that take longer than a layer's computations follow each other without a gap."""
    wide = "{layers: 1, hidden: 1024, heads: 8, seq: 256, experts: 8, top_k: 2}"
    some = ping_pong("micro_batches: 4, output: 2", wide, ta=5, te=5).replace("tokens: 32", "tokens: 128")
    (several,) = run_of(tmp_path / "run", STAR, [some])
    assert several.serving["needed"] is None
    for of in (several.off, several.whole_ns / several.serving["form_ns"] - 1):
        assert -1e-9 <= of < 0.03
    assert several.between_ns == pytest.approx(several.serving["form_between_ns"], rel=0.03)


def test_a_hot_expert_sets_the_pace_and_is_named(tmp_path: Path) -> None:
    hot, zipf = run_of(
        tmp_path / "run",
        STAR,
        [ping_pong(f"micro_batches: 3, gating: {gating}", ta=20, te=20) for gating in ("{hot: 0.4}", "{zipf: 1.0}")],
    )
    for one in (hot, zipf):
        ranks = {r.rank: r.compute_ps for r in one.one.ranks}
        busiest = max(ranks, key=lambda rank: ranks[rank])
        assert one.serving["busiest"] == busiest
        assert one.one.straggler is not None and one.one.straggler[0] == busiest
        te, rounds = ranks[busiest] / 12 / 1000, 20e3 + one.serving["dispatch_ns"] + one.serving["combine_ns"]
        assert one.whole_ns == pytest.approx(rounds + te + te * (3 * 4 - 1), rel=0.01)
    share = 0.4 + 0.6 / 7  # of 8 experts on 4 ranks: the hot one and a neighbour
    assert max(r.compute_ps for r in hot.one.ranks) / 12 / 1000 == pytest.approx(20e3 * 4 * share, rel=0.01)


def test_pools_that_are_drawn_take_the_longest_path(tmp_path: Path) -> None:
    rng = random.Random(11)
    drawn = []
    for _ in range(6):
        ranks = rng.sample(range(8), 8)
        experts = rng.choice([1, 2, 4])
        attention = rng.randint(1, 8 - experts)
        gating = rng.choice(["uniform", "{zipf: 1.0}", "{hot: 0.3}", "{zipf: 0.5, draw: true}"])
        drawn.append(
            f"{{model: {{layers: {rng.randint(1, 3)}, hidden: {rng.choice([128, 256])}, heads: 8, seq: 512, "
            f"experts: 8, "
            f"top_k: {rng.randint(1, 2)}, vocab: {rng.choice([0, 1000])}}}, tokens: {rng.randint(8, 48)}, "
            f"attention: {{ranks: {ranks[:attention]}, gpu: {{preset: h20}}}}, gating: {gating}, "
            f"experts: {{ranks: {ranks[attention : attention + experts]}, gpu: {{preset: l40s}}}}, "
            f"output: {rng.randint(1, 2)}, micro_batches: {rng.randint(1, 3)}, "
            f"exchange: {rng.choice(['m2n', 'm2n', 'all_to_all_v'])}}}"
        )
    found = run_of(tmp_path / "run", STAR, drawn)
    assert [(k, round(one.off, 4)) for k, one in enumerate(found) if abs(one.off) > 0.005] == []


def _dispatch_ns(one: Served) -> float:
    """From the begin of the senders' last exchange to its last receiver's end, where all begin at a time."""
    rows = [row for row in one.one.rows if row["kind"] == "expert_dispatch" and row["task"] == "dispatch0.0.0"]
    senders = set(one.serving["answers"])
    begun = max(row["start_ns"] for row in rows if row["rank"] in senders)
    return float(max(row["end_ns"] for row in rows if row["rank"] not in senders) - begun)


def test_m2n_is_faster_than_all_to_all(tmp_path: Path) -> None:
    """M = N = 8, 256 KiB from each: an all-to-all of both pools moves more, and everybody waits for everybody."""
    sixteen = "attention: [0, 1, 2, 3, 4, 5, 6, 7], experts: [8, 9, 10, 11, 12, 13, 14, 15], gpu: {preset: h20}"
    model = "{layers: 1, hidden: 1024, heads: 8, seq: 64, experts: 8, top_k: 2}"
    ways = ["exchange: m2n", "exchange: all_to_all_v", "exchange: all_to_all",
            "exchange: all_to_all_v, algorithm: {all_to_all_v: pairwise}"]  # fmt: skip
    found = run_of(
        tmp_path / "run", "{star: {hosts: 16}}", [f"{{model: {model}, {sixteen}, tokens: 64, {way}}}" for way in ways]
    )
    m2n, spread, padded, pairwise = (_dispatch_ns(one) for one in found)
    assert m2n < spread < padded < pairwise
    assert [one.whole_ns for one in found] == sorted(one.whole_ns for one in found)


RAIL = "{rail: {servers: 2, gpus: 2}}"
DENSE = "{layers: 2, hidden: 256, heads: 8, seq: 512, vocab: 512}"


def shared(more: str, model: str = DENSE) -> str:
    return f"{{model: {model}, gpu: {{preset: h100}}, {more}}}"


def test_ranks_that_share_matrices_take_the_longest_path_and_answer_requests(tmp_path: Path) -> None:
    """Decoding alone; prompts and tokens on the same ranks; and on ranks of their own."""
    requests = "requests: {rate: 30000, count: 6, prompt: [32, 128], output: [1, 4]}"
    found = run_of(
        tmp_path / "run",
        RAIL,
        [
            shared("decode: [0, 1], tokens: 4, output: 3"),
            shared("decode: [0, 1, 2, 3], tokens: 4", DENSE[:-1] + ", experts: 4}"),
            shared(f"decode: [0, 1], {requests}, sequences: 4"),
            shared(f"prefill: [0, 1], decode: [2, 3], {requests}"),
            shared(f"prefill: [0, 2], decode: [1], {requests}"),
        ],
    )
    assert [round(one.off, 5) for one in found[:2] if abs(one.off) > 0.005] == []
    offs = [one.one.time_ns / one.serving["expected_ns"] - 1 for one in found[2:]]
    assert max(map(abs, offs[:2])) < 0.005, offs
    assert 0 <= offs[2] < 0.05, "caches share cables with sums"
    for one in found[2:]:
        assert one.figures["otherwise"] == 0
        tokens = tokens_of(one.one, one.serving)
        for (arrival, _, output), its in zip(one.serving["requests"], tokens, strict=True):
            assert len(its) == output and arrival < its[0] and its == sorted(its)
        begun = {row["task"]: row["start_ns"] for row in one.one.rows if row["rank"] == 0}
        pool = one.serving["pools"][0]
        for k, (_, joined, _) in enumerate(pool["iterations"]):
            came = max((one.serving["requests"][r][0] for r in joined), default=0.0)
            assert begun[f"{pool['name']}{k}.begin"] - one.one.span[0] / 1000 >= came - 1e-3
        latencies = [its[-1] - arrival for (arrival, _, _), its in zip(one.serving["requests"], tokens, strict=True)]
        assert one.figures["latency_p50_ns"] == pytest.approx(median(latencies))
        assert one.figures["first_token_p99_ns"] <= max(latencies)


def test_requests_at_once_take_what_the_ping_pong_of_their_tokens_takes(tmp_path: Path) -> None:
    """Prompts of one token and sequences without a context are the same work, by way of other code."""
    (tmp_path / "r.csv").write_text("arrival,prompt,output\n" + "0,1,3\n" * 24)
    gpus = f"model: {MODEL}, gpu: {{preset: h20}}, attention: [0, 1, 2, 3], experts: [4, 5, 6, 7], micro_batches: 2"
    steady, asked = run_of(
        tmp_path / "run",
        STAR,
        [
            f"{{{gpus}, tokens: 3, context: 0, output: 3}}",
            f"{{{gpus}, requests: {{trace: {tmp_path}/r.csv}}}}",
        ],
    )
    assert asked.one.time_ns == pytest.approx(steady.one.time_ns, rel=1e-9)
    assert asked.figures["first_token_p99_ns"] <= steady.figures["batch_ns"] <= asked.figures["latency_p50_ns"]
    between = [b - a for its in tokens_of(asked.one, asked.serving) for a, b in pairwise(its)]
    assert len(between) == 48
    assert sum(between) / 48 == pytest.approx(steady.between_ns, rel=0.01)
    assert asked.figures["otherwise"] == 0


def test_requests_on_attention_and_experts_take_the_longest_path(tmp_path: Path) -> None:
    """With and without a pool that reads prompts; nobody has a token before it could."""
    asked = "requests: {rate: 30000, count: 8, prompt: [32, 128], output: [1, 4]}, sequences: 6"
    both = f"model: {MODEL[:-1]}, vocab: 512}}, gpu: {{preset: h100}}, {asked}, micro_batches: 2"
    alone, apart, one_rank = run_of(
        tmp_path / "run",
        STAR,
        [
            f"{{{both}, attention: [0, 1, 2], experts: [3, 4], gating: {{zipf: 1.0}}}}",
            f"{{{both}, prefill: [5, 7], attention: [0, 1, 2], experts: [3, 4]}}",
            f"{{{both}, prefill: [2], attention: [0], experts: [1], exchange: all_to_all_v}}",
        ],
    )
    assert abs(alone.off) < 0.005, alone.off
    for one in (apart, one_rank):
        assert -0.005 < one.off < 0.05, "caches share cables with exchanges"
    for one in (alone, apart, one_rank):
        tokens = tokens_of(one.one, one.serving)
        starts = {(row["rank"], row["task"]): row["start_ns"] - one.one.span[0] / 1000 for row in one.one.rows}
        for (arrival, _, output), its in zip(one.serving["requests"], tokens, strict=True):
            assert len(its) == output and arrival < its[0] and its == sorted(its)
        for pool in one.serving["pools"]:
            for k, (_, joined, _) in enumerate(pool["iterations"]):
                begins = [at for (rank, task), at in starts.items() if task == f"{pool['name']}{k}.begin"]
                came = max((one.serving["requests"][r][0] for r in joined), default=0.0)
                assert begins and min(begins) >= came * pool["reads"] - 1e-3


def test_the_rate_of_requests_makes_them_wait(tmp_path: Path) -> None:
    slow, fast = run_of(
        tmp_path / "run",
        RAIL,
        [
            shared(f"decode: [0, 1], requests: {{rate: {rate}, count: 8, prompt: 256, output: 3}}, sequences: 2")
            for rate in (100, 1_000_000)
        ],
    )
    alone = slow.figures["latency_p50_ns"]
    assert slow.figures["latency_p99_ns"] == pytest.approx(alone, rel=0.35), "hardly anybody meets another"
    assert fast.figures["first_token_p50_ns"] > 3 * slow.figures["first_token_p50_ns"]
    assert fast.figures["tokens_per_s_gpu"] > 3 * slow.figures["tokens_per_s_gpu"]
