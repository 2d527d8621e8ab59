"""Real runs of `testbed bench`: its figures are those of the closed forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli import cli
from tests.parts.command_line import testbed as testbed
from tests.parts.uniform_paths import closed_form_ns
from workloads.registry import find
from workloads.times.messages import Costs
from workloads.times.messages import Path as Way


def test_a_real_bench_gives_the_figures_of_the_closed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"bench ping_pong --algorithm write,send -b 8 -e 64K -f 8192 --json --out {tmp_path / 'run'}"
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0 and told["fidelity"]["verdict"] == "exact"
    rows = {(r["algorithm"], r["size"]): r["time_us"] for r in told["rows"]}
    assert set(rows) == {(a, s) for a in ("write", "send") for s in (8, 65536)}
    assert [rows[r["algorithm"], r["size_bytes"]] for r in told["results"]] == [
        r["time_ns"] / 1e3 for r in told["results"]
    ]
    way = Way.uniform(1, rate_bps=400e9, delay_ns=500.0, latency_ns=500.0)
    for (algorithm, size), time_us in rows.items():
        formula = closed_form_ns(find("ping_pong", algorithm), 2, size, way, Costs(reduce_bps=800e9))
        assert time_us * 1e3 == pytest.approx(formula, rel=0.002)


def test_a_real_ring_takes_the_host_time_and_the_bytes_that_its_hops_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """n - 1 reducing hops of a chunk each; 2 (n - 1) messages of a post, packets with headers, and the immediate."""
    line = f"bench all_reduce --algorithm ring -b 64K -e 1M -f 16 -g 4 --json --out {tmp_path / 'run'}"
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    for row in told["rows"]:
        chunk = row["size"] // 4
        assert row["host_us"] * 1e3 == pytest.approx(6 * 100 + 3 * chunk * 8 / 800, abs=1e-6)
        assert row["sent_bytes"] == 6 * (chunk + chunk // 4096 * (14 + 20 + 8 + 12 + 4) + 16 + 4)
    assert [r["sent_bytes"] for r in told["results"]] == [r["sent_bytes"] for r in told["rows"]]
