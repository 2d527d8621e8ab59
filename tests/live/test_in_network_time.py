"""In-network all-reduce against its formula, in whole runs on an idle fabric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.experiment import loads
from testbed.predict import predict
from testbed.run import run as running
from workloads.times import messages as cf
from workloads.times.switches.in_network import in_network_all_reduce_ns, travels

STAR, CLOS = "{star: {hosts: 4}}", "{clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}"
WIDTH = {"float32": 4, "float16": 2, "int32": 4}


@pytest.mark.parametrize(("topology", "adders"), [(STAR, ((1600e9, 4),)), (CLOS, ((1200e9, 2), (800e9, 2)))])
@pytest.mark.parametrize(
    ("dtype", "elements", "slots"),
    [("float32", 256, 512), ("float16", 256, 512), ("int32", 1024, 256), ("int32", 256, 64)],
)
def test_time_is_what_the_formula_says(
    topology: str, adders: tuple[tuple[float, int], ...], dtype: str, elements: int, slots: int, tmp_path: Path
) -> None:
    step = {"collective": "all_reduce", "algorithm": "in_network", "sizes": ["4B", "100KB", "2MiB"], "dtype": dtype}
    text = json.dumps(step | {"slots": slots})
    fabric = f"{{topology: {topology}, switch: {{accelerator: {{elements: {elements}}}}}}}"
    result = running.run(loads(f"name: time\nfabric: {fabric}\nworkload:\n  - {text}\n"), tmp_path / "run")
    path = cf.Path.uniform(2 * len(adders) - 1, rate_bps=400e9, delay_ns=500, latency_ns=500)
    for row in result.results:
        expected = in_network_all_reduce_ns(
            4, row["size_bytes"], path, cf.Costs(), width=WIDTH[dtype], elements=elements, slots=slots,
            **travels(dtype, "sum", 1600e9), accelerators=adders,
        )  # fmt: skip
        assert row["time_ns"] == pytest.approx(expected, rel=0.003), f"{row['size_bytes']} bytes"


def test_several_trees_take_what_is_predicted(tmp_path: Path) -> None:
    """Uplinks of a quarter of the hosts' rate, and four spines."""
    fabric = """topology: {clos: {leaves: 3, spines: 4, hosts_per_leaf: 1}}, cable: {rate: 100Gbps},
  host_cable: {rate: 400Gbps}, switch: {accelerator: {elements: 1024}}"""
    of = "sizes: [1MiB], trees: 4}"
    steps = f"[{{collective: reduce_scatter, algorithm: in_network, dtype: int32, {of}, {{collective: broadcast, {of}]"
    steps = steps.replace("collective: broadcast", "collective: broadcast, algorithm: multicast")
    one = loads(f"name: trees\nfabric: {{{fabric}}}\nworkload: {steps}\n")
    result = running.run(one, tmp_path / "run")
    figures = predict(one).figures
    for row, figure in zip(result.results, figures, strict=True):
        assert row["wrong"] == 0 and not row["fallback"]
        assert row["time_ns"] == pytest.approx(figure.time_ns, rel=0.025)
        assert 1.8 * row["time_ns"] < (1 << 20) / 4096 * 4202 * 8 / 100, "one uplink of a leaf does not carry all of it"


def test_sums_that_not_all_want_take_as_long_as_is_predicted(tmp_path: Path) -> None:
    steps = [f"{{collective: {c}, algorithm: in_network, sizes: [4B, 1MiB]}}" for c in ("reduce", "reduce_scatter")]
    steps += ["{collective: barrier, algorithm: in_network}"]
    experiment = loads(f"name: time\nfabric: {{topology: {CLOS}}}\nworkload:\n  - " + "\n  - ".join(steps) + "\n")
    took = [row["time_ns"] for row in running.run(experiment, tmp_path / "run").results]
    expected = [figure.time_ns for figure in predict(experiment).figures]
    assert len(took) == 5
    assert took == pytest.approx(expected, rel=0.022)
