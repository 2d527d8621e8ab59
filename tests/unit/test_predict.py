"""`testbed predict`: times worked from formulas by hand, what it says, and what is followed once."""

from __future__ import annotations

import json
import time
from math import inf
from typing import Any

import pytest

from testbed.cli import cli
from testbed.predict import predict
from testbed.predict.working import Working
from tests.parts.predicted import (
    DELAY,
    LATENCY,
    PCIE,
    POST,
    collective,
    experiment,
    figures,
    pcie_ns,
    wire_ns,
)
from workloads.times import followed as following
from workloads.times import replay


def test_a_message_is_what_arithmetic_says() -> None:
    """4 KiB over one switch: docs/closed-form.md has this number, 4835.36 ns."""
    (one,) = figures("{star: {hosts: 2}}", collective("send_recv", "pair", "4096B"))
    there = POST + 2 * PCIE + pcie_ns(4096) + 2 * (wire_ns(4198) + DELAY) + LATENCY
    assert one.time_ns == pytest.approx(there + 2 * (wire_ns(86) + DELAY) + LATENCY + PCIE)
    assert one.time_ns == pytest.approx(4835.36)


def test_a_ring_is_2_n_minus_1_messages() -> None:
    """16 KiB on 4 ranks: 6 messages of one packet, 3 sums; the last acknowledgement comes after the last message."""
    (one,) = figures("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB"))
    received = 2 * PCIE + 2 * pcie_ns(4096) + 2 * (wire_ns(4198) + DELAY) + LATENCY + PCIE
    acknowledged = 2 * PCIE + pcie_ns(4096) + 2 * (wire_ns(4198) + DELAY) + LATENCY
    acknowledged += 2 * (wire_ns(86) + DELAY) + LATENCY + PCIE
    added = 4096 * 8 / 800
    assert one.time_ns == pytest.approx(6 * (POST + received) + 3 * added + acknowledged - received)
    assert one.busbw_bps == pytest.approx(2 * 3 / 4 * 16384 / one.time_ns * 1e9)


def test_nics_pay_the_doorbell_once() -> None:
    """DirectReduce, a packet a chunk: 2(n-1) ways through cables, switch and engine; 5 of them follow each other."""
    (one,) = figures("{star: {hosts: 4}}", collective("all_reduce", "direct_reduce", "16KiB"))
    way = 2 * (wire_ns(4178) + DELAY) + LATENCY
    adds, passes = 4096 * 8 / 400, 1e3 / 595.2
    begin, end = POST + 2 * PCIE + pcie_ns(4096), passes + pcie_ns(4096) + PCIE
    assert one.time_ns == pytest.approx(begin + 3 * (way + adds) + 3 * way + 2 * passes + end, rel=1e-6)


def test_groups_side_by_side_are_as_each_alone() -> None:
    step = collective("all_reduce", "ring", "64KiB")
    alone = figures("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}", {**step, "ranks": [0, 1, 2]})
    both = figures("{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}", {**step, "groups": [[0, 1, 2], [4, 5, 6]]})
    assert [f.time_ns for f in both] == [alone[0].time_ns] * 2 and [f.group for f in both] == [0, 1]


def test_auto_takes_what_is_predicted_to_be_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.times.followed._LITTLE", inf)  # all are followed to the end
    sizes = ("1KiB", "1MiB")
    names = ("ring", "bidirectional_ring", "halving_doubling", "double_binary_tree", "recursive_doubling")
    each = figures("{star: {hosts: 8}}", *(collective("all_reduce", name, *sizes) for name in names))
    auto = figures("{star: {hosts: 8}}", collective("all_reduce", "auto", *sizes))
    for k, found in enumerate(auto):
        expected = found.chosen["expected_ns"]
        whole = {name: ns for name, ns in expected.items() if name in names}
        assert whole == pytest.approx({one.algorithm: one.time_ns for one in each[k::2]})
        assert (found.time_ns, found.algorithm) == (
            pytest.approx(min(expected.values())),
            f"{min(expected, key=lambda name: expected[name])} (auto)",
        )


def test_tasks_take_their_longest_path() -> None:
    tasks = """tasks: {groups: {g: [[0, 1, 2, 3]]}, list: [{id: a, compute: 50us},
      {id: c, compute: 20us, stream: other},
      {id: b, collective: all_reduce, group: g, size: 16KiB, algorithm: ring, after: [a]}]}"""
    ring = figures("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB"))[0].time_ns
    (one,) = figures("{star: {hosts: 4}}", f"{{{tasks}}}".replace("\n", " "))
    assert one.time_ns == pytest.approx(50_000 + ring)


def test_it_says_what_it_leaves_out() -> None:
    """Spines are drawn only where tasks are not followed: NICs do some of these."""
    ring = collective("all_reduce", "ring", "1MiB")
    hosts, nics = (
        f"{{tasks: {{groups: {{g: {{ranks: [[0, 1, 2, 3]], algorithm: {{all_reduce: {name}}}}}}}, "
        "list: [{id: a, collective: all_reduce, group: g, size: 1MiB}]}}"
        for name in ("ring", "direct_reduce")
    )
    for steps, hashed in (((ring,), False), ((ring, hosts), False), ((ring, nics), True)):
        clos = "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}"
        text = " ".join(predict(experiment(clos, *steps, more="transport: {cc: dcqcn}\n")).left_out)
        assert "dcqcn" in text and "losses" in text and ("hash" in text) == hashed


def test_the_command_says_it_as_json(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        "name: e\nfabric: {topology: {star: {hosts: 4}}}\nsweep: {fabric.topology.star.hosts: [2, 4]}\n"
        "workload: [{collective: all_reduce, sizes: [16KiB]}]\n"
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["predict", str(file), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0 and [p["point"] for p in told["points"]] == [
        {"fabric.topology.star.hosts": n} for n in (2, 4)
    ]
    (row,) = told["points"][1]["results"]
    assert row["time_ns"] == pytest.approx(
        figures("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB"))[0].time_ns
    )


def test_groups_whose_links_are_alike_are_followed_once_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    run = replay.Replay.run

    def counted(self: Any, starts: Any) -> list[float]:
        followed.append(len(starts))
        return run(self, starts)

    monkeypatch.setattr(following, "_ENDED", {})
    monkeypatch.setattr(replay.Replay, "run", counted)
    ring = collective("all_reduce", "ring", "64KiB")
    rails = [[0, 4, 8], [1, 5, 9], [2, 6, 10]]
    alike = figures("{rail: {servers: 4, gpus: 4}}", {**ring, "groups": rails})
    assert len({f.time_ns for f in alike}) == 1 and followed == [3]
    tree = "{clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}"
    near, far = (figures(tree, {**ring, "ranks": ranks})[0].time_ns for ranks in ([0, 1, 2], [0, 1, 4]))
    assert near == alike[0].time_ns < far and followed == [3, 3]  # three ranks of a leaf are as three of a rail
    slower = figures(tree, {**ring, "ranks": [0, 1, 2]}, more="  cable: {rate: 200Gbps}\n")
    assert slower[0].time_ns > near and len(followed) == 3


def test_what_takes_long_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Working(0.01) as working:
        predict(experiment("{star: {hosts: 4}}", collective("all_reduce", "ring", "16KiB")), working.at)
        said = ""
        deadline = time.monotonic() + 60
        while "step 1 of 1, all_reduce by ring" not in said and time.monotonic() < deadline:
            said += capsys.readouterr().err
            time.sleep(0.01)
    assert "note: step 1 of 1, all_reduce by ring: " in said
