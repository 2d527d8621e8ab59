"""Measured operations of GPUs: fitted by kind, used by training steps; the tool that measures them, on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import InputError
from testbed.calibrate.ops import fitted, gpu_profile, read
from testbed.cluster.gpu import load_gpu
from testbed.commands.calibrate import command
from testbed.experiment import loads
from testbed.experiment.steps.training import gpu_of
from workloads.steps.plan.gpu import ATTENTION, Gpu, Measured


def ops(noise: float = 0.0) -> list[dict[str, object]]:
    """Of a GPU with 700 TFLOP/s in matrices after 5 us, 400 in attention after 8 us, 3 TB/s after 2 us."""
    made: list[dict[str, object]] = []
    sign = 1.0

    def add(name: str, shape: list[int], ns: float) -> None:
        nonlocal sign
        sign = -sign
        made.append({"name": name, "dtype": "bfloat16", "shape": shape, "time_ns": [ns * (1 + sign * noise)]})

    for n in (512, 1024, 2048, 4096, 8192):
        add("matrix", [n, n, n], 5000 + 2 * n**3 / 700e3)
    for seq in (512, 1024, 2048, 4096, 8192):
        add("attention", [1, 16, seq, 128], 8000 + 4 * 16 * 128 * seq**2 / 400e3)
    for elements in (1 << 16, 1 << 20, 1 << 24, 1 << 28):
        add("addition", [elements], 2000 + 6 * elements / 3e3)
    return made


def written(tmp_path: Path, what: object) -> str:
    path = tmp_path / "ops.json"
    path.write_text(json.dumps(what))
    return str(path)


def test_rates_and_starts_are_found_again(tmp_path: Path) -> None:
    _, found, _, notes = read(written(tmp_path, {"gpu": "H100", "ops": ops(0.01)}))
    kinds = fitted(found)
    assert not notes and set(kinds) == {"memory", "matrix.bfloat16", "attention.bfloat16"}
    for name, rate, start in (
        ("matrix.bfloat16", 700e12, 5000),
        ("attention.bfloat16", 400e12, 8000),
        ("memory", 3e12, 2000),
    ):
        assert kinds[name].measured.rate == pytest.approx(rate, rel=0.03)
        assert kinds[name].measured.start_ns == pytest.approx(start, rel=0.05)
        assert kinds[name].error < 0.02


def test_a_profile_is_used_by_training_steps(tmp_path: Path) -> None:
    """A multiplication takes its start and its FLOPs, and small ones are less efficient."""
    out = tmp_path / "gpu.yaml"
    path = written(tmp_path, {"gpu": "H100", "torch": "2.13", "date": "2026-11-28", "ops": ops()})
    result = CliRunner().invoke(command, ["--ops", path, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0 and "matrix.bfloat16" in result.stdout
    profile = load_gpu(out)
    assert profile.gpu == "H100" and profile.about == "torch 2.13, date 2026-11-28"
    text = """
name: x
fabric: {topology: {star: {hosts: 2}}}
workload:
  - train:
      model: {layers: 2, hidden: 512, heads: 8, seq: 512}
      gpu: {preset: h100, measured: gpu.yaml}
      parallel: {data: 2}
"""
    step = loads(text, "x.yaml", tmp_path).workload[0]
    gpu = gpu_of(step.train.gpu, "bfloat16")  # type: ignore[attr-defined]
    assert gpu.time_ns(2 * 4096**3, 0) == pytest.approx(5000 + 2 * 4096**3 / 700e3, rel=0.01)
    assert gpu.time_ns(1e9, 0, ATTENTION) == pytest.approx(8000 + 1e9 / 400e3, rel=0.01)
    assert gpu.time_ns(0, 3e6) == pytest.approx(2000 + 3e6 / 3e3, rel=0.01)
    again = loads(json.dumps(loads(text, "x.yaml", tmp_path).resolved()), "r", tmp_path / "elsewhere")
    assert again.workload[0] == step


def test_without_measurements_the_stated_efficiency_holds() -> None:
    plain = Gpu(flops=100e12, efficiency=0.5, hbm=1e12)
    assert (plain.time_ns(1e9, 0), plain.time_ns(1e9, 0, ATTENTION), plain.time_ns(0, 1e6)) == (20_000, 20_000, 1000)
    assert Gpu(flops=1.0, measured={"matrix": Measured(1e12, 50.0)}).time_ns(0, 0) == 0.0


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ([], "no `ops`"),
        ({"ops": []}, "no `ops`"),
        ({"ops": [{"name": "matrix", "dtype": "bfloat16", "shape": [8, 8, 8], "time_ns": 5}]}, "of no kind"),
    ],
)
def test_files_that_are_none(tmp_path: Path, what: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        gpu_profile(written(tmp_path, what))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("x", "an operation is one of"),
        ({"name": "matrix", "dtype": "bf8", "shape": [1, 1, 1], "time_ns": 1}, "unknown type 'bf8'"),
        ({"name": "matrix", "dtype": "float32", "shape": [1, -1, 1], "time_ns": 1}, "3 whole numbers"),
        ({"name": "matrix", "dtype": "float32", "shape": [1, 1], "time_ns": 1}, "3 whole numbers"),
        ({"name": "adam", "dtype": "float32", "shape": [9], "time_ns": [0]}, "no time in ns"),
    ],
)
def test_operations_that_are_none_are_named(tmp_path: Path, entry: object, why: str) -> None:
    _, found, _, notes = read(written(tmp_path, {"ops": [*ops(), entry]}))
    assert len(found) == len(ops()) and "ops[14]" in notes[0] and why in notes[0]


def test_the_tool_measures_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from testbed.calibrate import measure_ops

    small = [("matrix", (16, 16, 16)), ("attention", (1, 1, 16, 8)), ("attention_backward", (1, 1, 16, 8)),
             ("layer_norm", (8, 16)), ("addition", (64,)), ("adam", (64,))]  # fmt: skip
    monkeypatch.setattr(measure_ops, "_asked", lambda quick: small)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        document = measure_ops.measured(["float32"], 0.0, True)
    finally:
        torch.set_num_threads(before)
    _, found, _, notes = read(written(tmp_path, document))
    assert not notes and [op.name for op in found] == [name for name, _ in small]
    assert all(op.time_ns > 0 for op in found) and document["gpu"] in ("CPU", document["gpu"])
