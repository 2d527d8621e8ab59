"""The step `train` of an experiment file: what it means, and every mistake with its line and what is allowed."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.steps.training import layout_of, training_of
from testbed.plan.steps.training import name_of
from workloads.steps.plan.gpu import PRESETS as GPUS
from workloads.steps.plan.model import PRESETS as MODELS

FILE = """name: t
fabric:
  topology: {rail: {servers: 4, gpus: 2}}
workload:
- train:
    model: MODEL
    gpu: GPU
    batch: {micro: 1, count: COUNT}
    parallel: PARALLEL
    MORE
"""
SMALL = "{layers: 8, hidden: 256, heads: 8, seq: 128}"


def _text(
    *, model: str = SMALL, gpu: str = "{flops: 100T}", count: int = 4, parallel: str = "{data: 8}", more: str = ""
) -> str:
    values = {"MODEL": model, "GPU": gpu, "COUNT": str(count), "PARALLEL": parallel, "MORE": more}
    text = FILE
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def test_a_step_means_what_it_says() -> None:
    text = _text(
        model="{preset: llama-7b, layers: 4, seq: 1024}",
        gpu="{preset: h100, efficiency: 0.4}",
        parallel="{tensor: 2, pipeline: 2, data: 2}",
        more="schedule: {interleaved: 2}\n    place: {tensor: scale_up, pipeline: rail}\n    shard: zero1",
    )
    train = loads(text).workload[0].train  # type: ignore[union-attr]
    t = training_of(train)
    assert (t.model.layers, t.model.seq, t.model.hidden) == (4, 1024, MODELS["llama-7b"].hidden)
    assert (t.gpu.flops, t.gpu.hbm, t.gpu.efficiency) == (989.4e12, GPUS["h100"]["bfloat16"].hbm, 0.4)
    assert (t.schedule, t.chunks, t.shard, t.layers) == ("interleaved", 2, "zero1", 1)
    assert name_of(t) == "train tp2 pp2 dp2, interleaved, zero1"
    assert name_of(training_of(loads(_text()).workload[0].train), 4) == "train dp8, 1/4 of it"  # type: ignore[union-attr]
    groups = layout_of(train, loads(text).build_fabric()).groups()
    assert groups["tensor"][0] == (0, 1) and groups["pipeline"][0] == (0, 2) and groups["data"][0] == (0, 4)


def test_quantities_come_back_as_written() -> None:
    resolved = loads(_text(gpu="{flops: 989T, hbm: 3.35TBps, memory: 80GB}")).resolved()
    gpu = resolved["workload"][0]["train"]["gpu"]
    assert gpu["flops"] == "989TFLOPS" and gpu["hbm"] == "3350GBps"
    assert loads(_text()).resolved()["workload"][0]["train"]["model"]["dtype"] is None


MISTAKES = {
    "product": ({"parallel": "{data: 4}"}, 9, "parallel", "are 4 ranks, and there are 8", "product"),
    "layers": (
        {"parallel": "{pipeline: 8}", "count": 8, "model": "{layers: 6, hidden: 256, heads: 8, seq: 128}"},
        9, "parallel.pipeline", "layers of the model, 6, cannot be divided by pipeline 8", "1, 2, 3, 6",
    ),
    "root unit": (
        {"parallel": "{data: 8}", "more": "root_unit: true"},
        10, "root_unit", "a root unit is FSDP's", "shard: fsdp",
    ),
    "first bucket": (
        {"parallel": "{data: 8}", "more": "shard: zero1\n    first_bucket: 1MiB"},
        11, "first_bucket", "gathers parameters by the buckets", "shard: none",
    ),
    "chunks": (
        {"parallel": "{pipeline: 4, data: 2}", "more": "schedule: {interleaved: 3}"},
        10, "schedule", "cannot be divided into 4 stages of 3 chunks", "1, 2",
    ),
    "heads": (
        {"parallel": "{tensor: 8}", "model": "{layers: 8, hidden: 256, heads: 4, seq: 128}"},
        9, "parallel.tensor", "heads of the model, 4, cannot be divided by tensor 8", "1, 2, 4",
    ),
    "interleaved": (
        {"parallel": "{pipeline: 4, data: 2}", "count": 6, "more": "schedule: {interleaved: 2}"},
        8, "batch.count", "no multiple", "a multiple of 4",
    ),
    "scatter": (
        {"parallel": "{data: 8, scatter_gather: true}"},
        9, "parallel.scatter_gather", "over the ranks of tensor", "leave scatter_gather out",
    ),
    "scatter twice": (
        {"parallel": "{tensor: 2, pipeline: 4, sequence: true, scatter_gather: true}"},
        9, "parallel.scatter_gather", "is split already", "leave scatter_gather out",
    ),
    "one stage": ({"more": "schedule: zb_v"}, 10, "schedule", "one stage is no pipeline", "pipeline: 2 or more"),
    "stages of two parts": (
        {"parallel": "{pipeline: 8}", "more": "schedule: zb_v"},
        10, "schedule", "cannot be divided into 8 stages of 2 chunks", "another schedule",
    ),
    "two ends": (
        {"parallel": "{pipeline: 4, data: 2}", "more": "schedule: dualpipe"},
        8, "batch.count", "two micro-batches at a time, 8 or more, and there are 4", "an even number, 8 or more",
    ),
    "two micro-batches by turns": (
        {"parallel": "{pipeline: 4, data: 2}", "count": 8, "more": "schedule: dualpipe\n    shard: fsdp"},
        11, "shard", "fsdp gathers a layer for one of them", "zero1",
    ),
    "activations that are needed": (
        {"parallel": "{pipeline: 4, data: 2}", "more": "schedule: zb_v\n    recompute: full"},
        11, "recompute", "zb_v keeps activations", "selective",
    ),
    "GPU": ({"gpu": "{efficiency: 0.4}"}, 7, "gpu", "a GPU without FLOP/s", "preset: v100"),
    "GPU's name": ({"gpu": "{preset: h10}"}, 7, "gpu.preset", "unknown GPU 'h10'", "h100"),
    "GPU's type": (
        {"gpu": "{preset: v100}"}, 7, "gpu.preset", "how many FLOP/s v100 has in bfloat16", "float16",
    ),
    "model's name": ({"model": "{preset: llama}"}, 6, "model.preset", "unknown model 'llama'", "llama-7b"),
    "model": ({"model": "{layers: 4, hidden: 64}"}, 6, "model", "a model needs heads, seq", "preset"),
    "size": (
        {"model": "{preset: llama-7b}", "gpu": "{preset: a100}", "parallel": "{data: 8}"},
        7, "gpu", "more than the GPU's 80.0GB (parameters 13.5GB, gradients 13.5GB, optimizer 80.9GB", "it needs",
    ),
    "place": (
        {"more": "place: {data: leaf}"}, 10, "place.data", "this fabric has no axis 'leaf'", "rail (4), scale_up (2)",
    ),
    "place's size": (
        {"parallel": "{tensor: 4, data: 2}", "more": "place: {tensor: scale_up}"},
        10, "place.tensor", "tensor 4 does not divide scale_up, which has 2 places", "a divisor of 2",
    ),
    "experts": ({"parallel": "{data: 8, expert: 2}"}, 9, "parallel.expert", "the model has no experts", "experts: 8"),
    "experts' ranks": (
        {"parallel": "{data: 2, tensor: 4, expert: 4, sequence: true}", "model": SMALL[:-1] + ", experts: 8}"},
        9, "parallel.expert", "expert 4 does not divide data x context, 2", "1, 2",
    ),
    "sequence": ({"parallel": "{data: 8, sequence: true}"}, 9, "parallel.sequence", "of which there is one", "tensor"),
    "schedule": ({"more": "schedule: 1f1"}, 10, "schedule", "unknown schedule '1f1'", "did you mean '1f1b'"),
    "chunks' number": ({"more": "schedule: interleaved"}, 10, "schedule", "how many chunks", "{interleaved: 2}"),
    "group": ({"more": "groups: {tensor: {algorithm: ring}}"}, 10, "groups.tensor", "no group 'tensor'", "data"),
    "group's algorithm": (
        {"more": "groups: {data: {algorithm: in_networ}}"},
        10, "groups.data.algorithm", "unknown algorithm", "in_network",
    ),
    "group's compression": (
        {"more": "groups: {data: {algorithm: direct_reduce, compression: bfp}}"},
        10, "groups.data.compression", "compression is of float32, not of bfloat16", "float32",
    ),
    "group's shape": (
        {"more": "groups: {data: {algorithm: rails}}", "parallel": "{tensor: 2, data: 4}"},
        10, "groups.data.algorithm", "no two of these ranks share a scale-up domain", "two GPUs",
    ),
    "optimizer's sequence": (
        {"more": "groups: {data: {algorithm: optimus_nic}}", "parallel": "{tensor: 2, data: 4, sequence: true}"},
        9, "parallel.sequence", "gradients of norms are summed over tensor after that", "another algorithm",
    ),
    "optimizer's table": (
        {"more": "groups: {data: {algorithm: optimus_nic}}", "parallel": "{pipeline: 2, data: 4}",
         "model": SMALL[:-1] + ", vocab: 64, tied: true}"},
        6, "model.tied", "both ends of the pipeline sum a tied table after that", "tied: false",
    ),
    "optimizer's experts": (
        {"more": "groups: {data: {algorithm: optimus_nic}}", "parallel": "{data: 8, expert: 8}",
         "model": SMALL[:-1] + ", experts: 8}"},
        9, "parallel.expert", "experts that one rank alone has are summed by nobody", "a divisor of 8 below it",
    ),
    "group's class": (
        {"more": "groups: {data: {traffic_class: 5}}"},
        10, "groups.data.traffic_class", "no DSCP is in class 5", "fabric.switch.dscp: {40: 5}",
    ),
    "gating": (
        {"more": "gating: {zipf: 1.0, hot: 0.5}", "model": SMALL[:-1] + ", experts: 8}"},
        10, "gating.hot", "by zipf, or to a hot expert", "leave one of them out",
    ),
    "scale": (
        {"more": "scale: {layers: [4, 8]}"},
        10, "scale.layers", "from 4 and 8 layers the time of 8 does not follow", "below 8",
    ),
    "scale's stages": (
        {"more": "scale: {layers: [3, 4]}", "parallel": "{pipeline: 2, data: 4}"},
        10, "scale.layers[0]", "3 layers cannot be divided into 2 stages", "a multiple of 2",
    ),
    "a group that waits": (
        {"more": "groups: {data: {algorithm: omnireduce}}"},
        10, "groups.data.algorithm", "cannot run beside other work", "direct_reduce",
    ),
    "optimizer": (
        {"more": "groups: {data: {algorithm: optimus_nic}}\n    shard: zero1"},
        11, "shard", "nothing to shard", "shard: none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_with_its_line(name: str) -> None:
    changed, line, key, what, hint = MISTAKES[name]
    with pytest.raises(InputError) as raised:
        loads(_text(**changed), "t.yaml")  # type: ignore[arg-type]
    error = raised.value
    assert what in error.what, error.what
    assert error.where == f"t.yaml:{line}: workload[0].train.{key}"
    assert hint in error.hint, error.hint


def test_what_would_fit_is_said() -> None:
    text = _text(model="{preset: llama-7b}", gpu="{preset: h100}", parallel="{data: 8}", more="recompute: selective")
    with pytest.raises(InputError, match="does not fit") as raised:
        loads(text)
    assert "with shard: zero1 it needs" in raised.value.hint
    assert loads(text + "    shard: zero1\n")


@pytest.mark.parametrize(("vocab", "stage"), [(0, 0), (50_000, 3)])
def test_the_fullest_stage_decides(vocab: int, stage: int) -> None:
    """With 1F1B the first stage holds most micro-batches (Narayanan et al. 2021); the last has the logits."""
    model = SMALL.replace("}", f", vocab: {vocab}}}")
    with pytest.raises(InputError, match="does not fit") as raised:
        loads(_text(model=model, gpu="{flops: 100T, memory: 20MB}", parallel="{pipeline: 4, data: 2}"))
    assert f"a rank of stage {stage} needs" in raised.value.what


def test_a_plan_says_all_that_does_not_divide() -> None:
    with pytest.raises(InputError) as raised:
        loads(_text(parallel="{tensor: 3, pipeline: 3, data: 8}", count=2, more="schedule: {interleaved: 2}"))
    assert {p.where.rpartition(".")[2] for p in (raised.value, *raised.value.also)} >= {"tensor", "pipeline", "count"}


@pytest.mark.parametrize("algorithm", ["in_network", "direct_reduce", "optimus_nic"])
def test_offloads_bring_what_they_ask_for(algorithm: str) -> None:
    experiment = loads(_text(more=f"groups: {{data: {{algorithm: {algorithm}}}}}"))
    switch, nic = experiment.fabric.switch, experiment.fabric.nic
    assert bool(switch.accelerator) == (algorithm == "in_network")
    assert (nic.kind == "on_path") == (algorithm != "in_network")
