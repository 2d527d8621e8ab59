"""Broadcast and all-gather by multicast, in whole runs: right whatever is lost, as fast and as frugal as stated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.run import run as running
from testbed.run.outcome import RunResult
from tests.parts.uniform_paths import closed_form_ns
from workloads.registry import find
from workloads.times.messages import Costs
from workloads.times.messages import Path as Way
from workloads.times.switches.multicast import Paths, all_gather_over_ns, broadcast_over_ns

STAR = "{star: {hosts: %d}}"
CLOS = "{clos: {leaves: 4, spines: 2, hosts_per_leaf: 4}}"
COLLECTIVES = ("broadcast", "all_gather")
COSTS = Costs(reduce_bps=800e9)
HEADERS = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
RETH, IMM, OFF = 16, 4, 24
MESSAGE = HEADERS + RETH + IMM  # one without data


def step(collective: str = "all_gather", algorithm: str = "multicast", **more: Any) -> str:
    return json.dumps({"collective": collective, "algorithm": algorithm, "sizes": ["64KiB"], **more})


def run(tmp_path: Path, topology: str, *steps: str, more: str = "", name: str = "run") -> RunResult:
    workload = "\n".join(f"  - {s}" for s in steps)
    fabric = f"{{topology: {topology}, nic: {{timeout: 100us}}}}"
    text = f"name: multicast\nfabric: {fabric}\n{more}\nworkers: {{memory: 2GiB}}\nworkload:\n{workload}\n"
    return running.run(loads(text), tmp_path / name)


def counters(result: RunResult) -> dict[str, Any]:
    counted: dict[str, Any] = json.loads((result.folder / "counters.json").read_text())
    return counted


def measured(result: RunResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (result.folder / "measurements.jsonl").read_text().splitlines()]


def right(result: RunResult) -> bool:
    return all(row["wrong"] == 0 for row in result.results)


def by_multicast(result: RunResult) -> bool:
    return right(result) and not any(row["fallback"] for row in result.results)


@pytest.mark.parametrize("ranks", [2, 3, 7, 16])
def test_every_size_type_and_number_of_ranks(ranks: int, tmp_path: Path) -> None:
    sizes = ["8B", "24B", "1000B", "4096B", "8200B", "100008B", "1MiB"]
    steps = [step(c, sizes=sizes) for c in COLLECTIVES]
    steps += [step(c, sizes=sizes[:5], dtype=dtype) for c in COLLECTIVES for dtype in ("bfloat16", "int64")]
    chains = [step(sizes=sizes[:6], chains=k) for k in {1, (ranks + 1) // 2}]
    result = run(tmp_path, STAR % ranks, *steps, *chains, step(sizes=["4B"], dtype="int32"))
    assert by_multicast(result)
    assert result.fidelity.verdict == "exact"
    assert result.counters["drops"] == {}
    assert counters(result)["nics"][0]["local_ack_timeout_err"] == 0, "nothing was cut off"


@pytest.mark.parametrize(
    "topology",
    [CLOS, "{rail: {servers: 2, gpus: 2, spines: 1}}", "{torus: {dims: [2, 2, 2]}}", "{ring: {nodes: 5}}"],
)
def test_every_topology_and_sub_groups(topology: str, tmp_path: Path) -> None:
    groups = [None, [0, 3, 1], [2, 3]]
    steps = [step(c, ranks=g, sizes=["4B", "1MiB"]) for c in COLLECTIVES for g in groups]
    result = run(tmp_path, topology, *steps)
    assert by_multicast(result)
    assert result.counters["drops"] == {}


FAULTS = """inject:
  - {fault: loss, on: all, rate: 0.01}
  - {fault: duplication, on: all, rate: 0.01}
  - {fault: reordering, on: all, rate: 0.01}"""


@pytest.mark.parametrize("topology", [CLOS, STAR % 2, STAR % 3, STAR % 7])
def test_loss_duplicates_and_disorder_on_every_cable(topology: str, tmp_path: Path) -> None:
    sizes = ["4B", "36B", "64KiB", "300004B"]
    steps = [step(c, sizes=sizes) for c in COLLECTIVES] + [step(sizes=sizes, chains=1)]
    result = run(tmp_path, topology, *steps, more=FAULTS)
    assert right(result)
    nics = counters(result)["nics"]
    assert sum(n["local_ack_timeout_err"] for n in nics) > 0, "something was cut off"
    assert sum(n["duplicate_request"] for n in nics) > 0
    if topology == STAR % 7:
        again = run(tmp_path, topology, *steps, more=FAULTS, name="again")
        assert again.metrics_sha256 == result.metrics_sha256


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_injects_one_share_where_the_ring_injects_all_others(ranks: int, tmp_path: Path) -> None:
    """s against (N - 1) s per rank, headers included; both receive (N - 1) s."""
    part, rounds = 64 << 10, (ranks - 1).bit_length()
    size = [f"{ranks * part}B"]
    result = run(tmp_path, STAR % ranks, step(sizes=size), step(algorithm="ring", sizes=size))
    frames = part // 4096
    multicast = part + frames * (HEADERS + OFF) + (rounds + 1) * MESSAGE
    ring = (ranks - 1) * (part + frames * HEADERS + RETH + IMM)
    sent = {(m["algorithm"], m["sent_bytes"]) for m in measured(result)}
    assert sent == {("multicast", multicast), ("ring", ring)}
    assert ring / multicast == pytest.approx(ranks - 1, rel=0.02)
    for nic in counters(result)["nics"]:
        assert nic["tx_vport_rdma_multicast_bytes"] == part + frames * (HEADERS + OFF)
        assert nic["rx_vport_rdma_multicast_bytes"] == (ranks - 1) * (part + frames * (HEADERS + OFF))


def way(switches: int) -> Way:
    return Way.uniform(switches, rate_bps=400e9, delay_ns=500, latency_ns=500)


def on_a_star(a: int, b: int) -> Way:
    return way(1)


def on_clos(a: int, b: int) -> Way:
    return way(1 if a // 4 == b // 4 else 3)


@pytest.mark.parametrize(
    ("topology", "ranks", "ways"), [(STAR % 2, 2, on_a_star), (STAR % 8, 8, on_a_star), (CLOS, 16, on_clos)]
)
def test_takes_what_arithmetic_says(topology: str, ranks: int, ways: Paths, tmp_path: Path) -> None:
    sizes = [4, 4096, 64 << 10, 1 << 20, *([4 << 20] if ranks < 16 else [])]
    names = [f"{size}B" for size in sizes]
    result = run(tmp_path, topology, *(step(c, sizes=names) for c in COLLECTIVES))
    rows = iter(result.results)
    for collective, expected_ns in (("broadcast", broadcast_over_ns), ("all_gather", all_gather_over_ns)):
        for size in sizes:
            expected = expected_ns(ranks, size, ways, COSTS).time_ns
            assert next(rows)["time_ns"] == pytest.approx(expected, rel=0.01), (collective, size)
            if ways is on_a_star:
                same = closed_form_ns(find(collective, "multicast"), ranks, size, way(1), COSTS)
                assert same == pytest.approx(expected)


@pytest.mark.parametrize("switch", ["leaf3"])
def test_without_its_group_table_the_ring_does_it(switch: str, tmp_path: Path) -> None:
    inject = f"inject: [{{fault: missing_group, on: 'switch:{switch}', at: 100us}}]"
    steps = [step(c, sizes=["1MiB"], iterations=2) for c in COLLECTIVES]
    result = run(tmp_path, CLOS, *steps, more=inject)
    assert right(result)
    said = {row["fallback"] for row in result.results if row["fallback"]}
    assert any(f"no rule sends its frames on at {switch}" in why for why in said), said
    assert any(d["node"] == switch and d["reason"] == "forwarding" for d in counters(result)["drops"])


def test_without_a_controller_the_ring_does_it(tmp_path: Path) -> None:
    inject = "inject: [{fault: controller_dead, on: controller}]"
    steps = [step(c, sizes=["4B", "1MiB"]) for c in COLLECTIVES]
    result = run(tmp_path, STAR % 4, *steps, step(algorithm="ring", sizes=["1MiB"]), more=inject)
    assert right(result)
    assert [row["fallback"] for row in result.results] == ["there is no controller"] * 4 + [None]
    by_repair, by_ring = (row["time_ns"] for row in result.results[-2:])
    assert by_repair < 1.6 * by_ring, "the repair of everything is a ring"


def test_groups_come_and_go(tmp_path: Path) -> None:
    result = run(tmp_path, STAR % 4, *(step(sizes=["4KiB"]) for _ in range(5)))
    assert by_multicast(result)
    said = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    assert [(e["job"], e["rules"]) for e in said if e["event"] == "group"] == [(k, {"sw0": 1}) for k in range(1, 6)]
    log = (result.folder / "logs" / "controller.log").read_text()
    assert log.count("closed: 1 switches changed, 0 flows in, 1 out") == 5


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"algorithm": "ring", "chains": 2}, "all_gather by ring has no chains"),
        ({"collective": "broadcast", "chains": 2}, "broadcast by multicast has no chains"),
        ({"chains": 0}, "chains: 0 is out of bounds"),
        ({"cutoff": "0ns"}, "cutoff: 0ns is out of bounds"),
    ],
)
def test_keys_that_do_not_fit(keys: dict[str, Any], why: str) -> None:
    text = f"name: x\nfabric: {{topology: {STAR % 4}}}\nworkload:\n  - {step(**keys)}\n"
    with pytest.raises(InputError, match=why):
        loads(text)
