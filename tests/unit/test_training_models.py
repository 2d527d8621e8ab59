"""Models, GPUs and memory of training steps against what is published of them."""

from dataclasses import replace

import pytest

from tests.parts.training_steps import GPU, SMALL, graph_of
from workloads.steps.memory import layer_activations, memory
from workloads.steps.plan.gpu import PRESETS as GPUS
from workloads.steps.plan.gpu import Gpu
from workloads.steps.plan.model import PRESETS, Model, gpt
from workloads.steps.plan.parallel import Parallel
from workloads.steps.plan.training import Training
from workloads.tasks.task import Compute

# Counted by the models' own code, and printed on their pages.
COUNTED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
}


@pytest.mark.parametrize(("name", "parameters"), COUNTED.items())
def test_presets_have_their_models_parameters(name: str, parameters: int) -> None:
    assert PRESETS[name].parameters == parameters


@pytest.mark.parametrize(("name", "billions"), [("gpt3-1.3b", 1.3), ("gpt3-13b", 13.0), ("gpt3-175b", 175.0)])
def test_gpt3_has_what_its_paper_rounds_to(name: str, billions: float) -> None:
    assert PRESETS[name].parameters == pytest.approx(billions * 1e9, rel=0.02)


def test_parameters_are_megatrons_equation() -> None:
    layers, hidden, vocab, seq = 24, 2048, 50257, 2048
    by_equation = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocab + seq) / (12 * layers * hidden))
    assert gpt(layers, hidden, 16).parameters == round(by_equation) + 2 * hidden  # and the last norm


def test_flops_are_megatrons_equation() -> None:
    """Narayanan et al. (2021), equation 3, without recomputation, which is a fourth pass: 72 for 96, 12 for 16."""
    b, s, layers, h, vocab = 16, 2048, 24, 2048, 51200
    model = replace(gpt(layers, h, 16), vocab=vocab)
    equation = 72 * b * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))
    assert model.flops(b * s) == pytest.approx(equation)


@pytest.mark.parametrize("parallel", [{}, {"tensor": 4}, {"tensor": 2, "sequence": True, "context": 2, "pipeline": 2}])
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_without_memorys_limits_ranks_compute_the_models_flops(parallel: dict[str, int], schedule: str) -> None:
    """What all ranks compute together is what MFU counts, at the GPU's peak."""
    model = replace(PRESETS["gpt3-1.3b"], vocab=50304, tied=False)
    t = Training(model=model, gpu=GPU, parallel=Parallel(**parallel), count=2, schedule=schedule)
    graph = graph_of(t)
    ns = sum(task.duration_ns for its in graph.tasks.values() for task in its if isinstance(task, Compute))
    assert ns * GPU.flops / 1e9 == pytest.approx(t.flops, rel=1e-6)


def test_a_gpu_takes_what_is_slower() -> None:
    gpu = Gpu(flops=100e12, efficiency=0.5, hbm=1e12)
    assert gpu.time_ns(50e12, 0) == pytest.approx(1e9)
    assert gpu.time_ns(50e12, 2e12) == pytest.approx(2e9)
    assert replace(gpu, hbm=None).time_ns(0, 1e12) == 0


@pytest.mark.parametrize(
    ("name", "dtype", "with_sparsity", "hbm", "memory"),
    [
        ("a100", "bfloat16", 624, 2039, 80),
        ("h100", "bfloat16", 1979, 3350, 80),
        ("h200", "bfloat16", 1979, 4800, 141),
        ("h20", "bfloat16", 296, 4000, 96),
        ("l40s", "bfloat16", 733, 864, 48),
        ("b200", "bfloat16", 4500, 8000, 180),
        ("mi300x", "bfloat16", 2614.9, 5300, 192),
    ],
)
def test_presets_of_gpus_are_dense(name: str, dtype: str, with_sparsity: float, hbm: float, memory: int) -> None:
    """Data sheets lead with figures of structured sparsity, which are twice as high."""
    gpu = GPUS[name][dtype]
    assert gpu.flops == pytest.approx(with_sparsity * 1e12 / 2, rel=0.02)  # of L40S they say 733 and 362.05
    assert (gpu.hbm, gpu.memory) == (hbm * 1e9, memory * 10**9)


def test_presets_of_gpus_are_of_one_gpu() -> None:
    for name, by_type in GPUS.items():
        assert len({(g.hbm, g.memory) for g in by_type.values()}) == 1, name
    assert GPUS["a100"]["bfloat16"].flops == 2 * GPUS["a100"]["float32"].flops == 312e12


def _korthikanti(t: int, *, sequence: bool, recompute: str) -> float:
    """Table 2 of their paper, for a GPT of these numbers in elements of 2 bytes."""
    s, b, h, a = 2048, 2, 4096, 32
    scores = 5 * a * s / h if recompute == "none" else 0
    if recompute == "full":
        return 2 * s * b * h / (t if sequence else 1)
    return s * b * h * ((34 + scores) / t if sequence else 10 + 24 / t + scores / t)


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_are_korthikantis(tensor: int, sequence: bool, recompute: str) -> None:
    if sequence and tensor == 1:
        return
    t = Training(
        model=gpt(24, 4096, 32), gpu=GPU, micro=2, parallel=Parallel(tensor=tensor, sequence=sequence),
        recompute=recompute,
    )  # fmt: skip
    assert layer_activations(t) == _korthikanti(tensor, sequence=sequence, recompute=recompute)


@pytest.mark.parametrize(
    ("shard", "each"),
    [
        ("none", 16),
        ("zero1", 4 + 12 / 64),
        ("zero2", 2 + (2 + 12) / 64),
        ("zero3", 16 / 64),
    ],
)
def test_states_are_what_zero_says(shard: str, each: float) -> None:
    """Figure 1 of its paper: 120, 31.4, 16.6 and 1.9 GB of 7.5 G parameters on 64 ranks."""
    model = Model(layers=36, hidden=4096, heads=32, kv_heads=32, ffn=16384, seq=64)
    got = memory(Training(model=model, gpu=GPU, parallel=Parallel(data=64), shard=shard), 0)
    gathered = 2 * model.layer_parameters if shard == "zero3" else 0  # the layer that is at work
    assert got.all - got.activations - gathered == pytest.approx(each * model.parameters, rel=1e-6)


def test_float32_has_no_second_copy() -> None:
    got = memory(Training(model=SMALL, gpu=GPU), 0)
    assert got.parameters == got.gradients == 4 * SMALL.parameters
    assert got.optimizer == 8 * SMALL.parameters


@pytest.mark.parametrize(
    ("schedule", "chunks", "layers_held"),
    [
        ("gpipe", 1, lambda p, m, stage: 8 // p * m),
        ("1f1b", 1, lambda p, m, stage: 8 // p * min(m, p - stage)),
        ("zero_bubble", 1, lambda p, m, stage: 8 // p * p),
        ("zb_v", 2, lambda p, m, stage: 8 // p * p),
        ("dualpipe", 2, lambda p, m, stage: 8 // p * (p + 1)),
        # Korthikanti et al., section 4.2.3: 1 + (p - 1) / (p v) times what 1F1B holds, on the first stage.
        ("interleaved", 2, lambda p, m, stage: 8 * (1 + (p - 1) / (p * 2)) if stage == 0 else None),
    ],
)
def test_micro_batches_that_are_held(schedule, chunks, layers_held) -> None:  # type: ignore[no-untyped-def]
    p, m = 4, 8
    t = Training(model=SMALL, gpu=GPU, parallel=Parallel(pipeline=p), count=m, schedule=schedule, chunks=chunks)
    for stage in range(p):
        if (layers := layers_held(p, m, stage)) is not None:
            assert memory(t, stage).activations == layers * layer_activations(t)


@pytest.mark.parametrize(("schedule", "chunks", "through"), [("1f1b", 1, 1), ("gpipe", 1, 8), ("interleaved", 2, 1)])
def test_logits_of_all_micro_batches_that_are_held(schedule: str, chunks: int, through: int) -> None:
    """Korthikanti et al., section 4.3: 4 s b h (1 + v / h) for a micro-batch in the last stage; GPipe holds all."""
    model = replace(SMALL, vocab=512, dtype="bfloat16")
    t = Training(model=model, gpu=GPU, parallel=Parallel(pipeline=4), count=8, schedule=schedule, chunks=chunks)
    without = replace(t, model=replace(model, vocab=0))
    more = memory(t, 3).activations - memory(without, 3).activations
    assert more == through * 4 * 64 * 64 * (1 + 512 // 64)


def test_what_experts_get_stays_gathered() -> None:
    """One expert that all tokens take: an MLP, but for its input, which every rank of tensor keeps whole."""
    dense = Training(model=gpt(24, 4096, 32), gpu=GPU, parallel=Parallel(tensor=4, sequence=True))
    routed = replace(dense, model=replace(dense.model, experts=1, top_k=1))
    assert layer_activations(routed) - layer_activations(dense) == 2 * 2048 * 4096 * 3 // 4
