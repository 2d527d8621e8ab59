"""Probes and captures on a world of a bare fabric: what they measure, and how far they let the clock go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.live.tools import TOOLS
from testbed.live.tools.site import STEP_NS
from testbed.words.entry import find
from tests.parts.fabricd_fixture import BareFabric, wait_until
from tests.parts.traffic_fabric import star


class BareWorld:
    """A bare fabric that stands still at `time_ns`."""

    def __init__(self, f: BareFabric) -> None:
        self.fabricd, self.time_ns = f.fabricd, 0
        self.lab: Any = SimpleNamespace(fabric=f.fabric, dir=f.directory)
        self.advance(0)

    def advance(self, ns: int) -> None:
        self.time_ns += ns
        self.fabricd.request("run_until", time_ns=self.time_ns)
        seen: list[float] = []

        def held() -> bool:
            seen.extend(e["time_ns"] for e in self.fabricd.events(0.02) if e["event"] == "held")
            return self.time_ns in seen

        wait_until(held, f"the hold at {self.time_ns}")

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return self.fabricd.request(op, **arguments)

    def use(self, line: str) -> list[list[dict[str, Any]]]:
        tool, rest = find(TOOLS.values(), line.split())
        return [table.rows for table in tool.run(self, **tool.read(rest, self.lab.fabric))]


@pytest.fixture
def world() -> Iterator[BareWorld]:
    with star(3) as f:
        yield BareWorld(f)


def test_latency_is_there_and_back_and_grows_by_exactly_what_delays_it(world: BareWorld) -> None:
    ((before,),) = world.use("probe lat 0 1 --count 3")
    assert before["min_us"] == before["median_us"] == before["max_us"] and before["lost"] == 0
    world.request("inject", fault="d", primitive="frames", ports=["h0:1"], effect="delay", delay_ns=3000)
    ((after,),) = world.use("probe lat 0 1 --count 3")
    assert after["median_us"] == pytest.approx(before["median_us"] + 3.0)
    ((other,),) = world.use("probe lat 1 2 --count 3")
    assert other["median_us"] == before["median_us"]


def test_a_probe_takes_the_time_that_it_takes(world: BareWorld) -> None:
    ((row,),) = world.use("probe lat 0 1 --count 1")
    assert 0 <= world.time_ns - 1000 * row["max_us"] < STEP_NS
    began = world.time_ns
    ((row,),) = world.use("probe bw 0 1 --size 256KiB")
    assert 0 <= world.time_ns - began - 1000 * row["time_us"] < STEP_NS
    assert 200 < row["Gbps"] < 400


def test_what_does_not_come_back_is_lost_and_waited_for_no_longer_than_said(world: BareWorld) -> None:
    world.request("inject", fault="cut", primitive="params", cable="h1-sw0", values={"up": False})
    ((row,),) = world.use("probe lat 0 1 --count 2 --timeout 10us")
    assert (row["lost"], row["median_us"], world.time_ns) == (2, None, 12_000)
    ((row,),) = world.use("probe bw 0 1 --timeout 5us")
    assert (row["lost"], row["Gbps"]) == (1, None)


def test_a_mesh_has_every_pair_and_shows_the_slow_ones(world: BareWorld) -> None:
    world.request("inject", fault="d", primitive="frames", ports=["h2:1"], effect="delay", delay_ns=2000)
    table, slowest = world.use("probe mesh")
    usual, slow = table[0]["1"], table[0]["2"]
    assert slow == pytest.approx(usual + 2, abs=0.01) and table[0]["0"] is None
    late = {(row["from"], row["to"]) for row in slowest if row["max_us"] > usual + 1}
    assert late == {(0, 2), (1, 2), (2, 0), (2, 1)}


def test_probes_are_no_faults(world: BareWorld) -> None:
    world.use("probe mesh")
    assert world.request("faults")["faults"] == []


def test_a_capture_shows_what_goes_by_and_takes_as_long_as_it_is_asked_to(world: BareWorld, tmp_path: Path) -> None:
    world.request("inject", fault="t", primitive="traffic", flows=[[0, 1, 20_000, 0]])
    file = tmp_path / "x.pcapng"
    (rows,) = world.use(f"capture nic:0 --for 10us -o {file}")
    assert world.time_ns == 10_000
    sent = [row for row in rows if row["Dir"] == "out"]
    assert [row["PSN"] - sent[0]["PSN"] for row in sent] == list(range(5))
    assert {(row["DSCP"], row["ECN"], row["Protocol"]) for row in sent} == {(26, "ECT(0)", "RRoCE")}
    assert [row["Info"] for row in sent][1:4] == ["RC WRITE_MIDDLE"] * 3
    assert file.stat().st_size > 20_000 and not list(world.lab.dir.glob("look-*"))
    (rows,) = world.use("capture sw0:1 --for 1us --filter pfc")
    assert rows == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("probe lat 0 0", "are the same NIC"),
        ("probe lat 0", "is missing"),
        ("probe lat 0 7", "there is no rank 7"),
        ("probe bw 0 1 --size 0B", "out of bounds"),
        ("capture sw0:9", "sw0 has no port 9"),
        ("capture h0 -o /nowhere/x.pcapng", "there is no folder /nowhere"),
        ("capture h0 --filter smoke", "'smoke' is nothing known"),
    ],
)
def test_bad_input(world: BareWorld, line: str, what: str) -> None:
    with pytest.raises(InputError) as wrong:
        world.use(line)
    assert what in wrong.value.what and wrong.value.where and wrong.value.hint
    assert world.time_ns == 0
