"""The same scenario gives the same times and counters, byte for byte, however busy the machine is."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import bare_fabric
from tests.parts.scripted_ranks import drive, exchange, incast

SAMPLES = (1024, 0, 1, 7)
"""Of the fast path, run by run."""


@contextlib.contextmanager
def both_cores_loaded() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


SCENARIOS = {
    "all to all": ("star", {"hosts": 5}, Hardware(), exchange(5, 6, 20_000, 1)),
    "all to all over a tiny buffer": (
        "star",
        {"hosts": 4},
        Hardware(mtu=1024, switch_buffer_bytes=5000, timeout_ns=20_000, retry=200, rnr_timeout_ns=1000),
        exchange(4, 4, 10_000, 2),
    ),
    "rails and scale-up": ("rail", {"servers": 3, "gpus": 2, "spines": 1}, Hardware(), exchange(6, 3, 9000, 3)),
    "no latency anywhere": (
        "star",
        {"hosts": 4},
        Hardware(cable_delay_ns=0, switch_latency_ns=0, pcie_latency_ns=0, post_ns=0),
        exchange(4, 3, 9000, 4),
    ),
    "symmetric incast": ("star", {"hosts": 9}, Hardware(), incast(9, 4, 16_384)),
    "symmetric incast with losses": (
        "clos",
        {"leaves": 3, "spines": 1, "hosts_per_leaf": 3},
        Hardware(switch_buffer_bytes=30_000, timeout_ns=30_000, retry=200),
        incast(9, 3, 16_384),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_figures_every_time(name: str) -> None:
    kind, params, hardware, script = SCENARIOS[name]
    results = []
    for i, sample in enumerate(SAMPLES):
        with (
            both_cores_loaded() if i % 2 else contextlib.nullcontext(),
            bare_fabric(kind, params, hardware, sample=sample) as f,
        ):
            results.append(drive(f, script))
    if "tiny" in name or "losses" in name:
        assert '"reason": "tail"' in results[0]
    for other in results[1:]:
        assert other == results[0]


def test_a_flow_gets_its_queue_pairs_behind_those_that_workers_make_by_then() -> None:
    """Whoever is slower to say so: the numbers decide on paths."""
    with bare_fabric("star", {"hosts": 2}) as f:
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 4096, 0]])
        f.start(0, 1)
        workers = f.worker(0), f.worker(1)
        f.counters()
        pair = f.connect(*workers)
        generated = [q["qp"] for q in f.counters()["qps"] if q["generated"]]
        assert generated and min(generated) > max(pair.qp_a, pair.qp_b)
        pair.done()


def test_as_many_flows_as_a_fault_may_have_are_one_request() -> None:
    flows = [[0, 1, 100_000_000, 1_000_000_000 + k] for k in range(100_000)]
    with bare_fabric("star", {"hosts": 2}) as f:
        f.fabricd.request("inject", fault="t", primitive="traffic", flows=flows)
        (fault,) = f.counters()["faults"]
        assert fault["fault"] == "t"
