"""Choices of users' own files in fabricd, among paths and among ports: figures as ours, what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hardware.config import Hardware
from testbed.experiment import loads
from testbed.own.line import line_of
from testbed.plan.hardware import hardware_of
from tests.parts.fabricd_fixture import BareFabric, bare_fabric, plain
from tests.parts.traffic_fabric import send

OWN = Path(__file__).parents[1] / "parts" / "own"
FILE = """
name: own
fabric:
  topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}
  switch: {buffer: 300KB, lossless: [], pfc: false, ecn: {kmin: 5KB, kmax: 5KB, pmax: 1}}
transport: {cc: nscc, recovery: selective_repeat, sack: {}, loss: {after: 20us}, multipath: %s}
control: {routing: %s}
"""
GROUP = 1 << 31
PICK = '#include "railbed.h"\nstatic uint32_t pick(struct railbed_%s *its)\n{\n\t%s\n}\nRAILBED_%s(2, .pick = pick);\n'
UP = (3, 4, 5, 6)


def hardware(multipath: str = "null", routing: str = "ecmp", folder: Path = OWN) -> Hardware:
    return hardware_of(loads(FILE % (multipath, routing), directory=folder))


@contextmanager
def leaves(its: Hardware, dies: str = "") -> Iterator[BareFabric]:
    """leaf0 takes one of its four ways up; the one to spine3 is slow, and one in 200 packets is lost behind spine0."""
    params = {"leaves": 2, "spines": 4, "hosts_per_leaf": 2}
    with bare_fabric("clos", params, its, dies=dies, binary=plain()) as f:
        if its.switch.get("adaptive"):
            buckets = ",".join(f"bucket=output:{p}" for p in (3, *UP))
            f.ofctl("add-group", f.bridge("leaf0"), f"group_id={GROUP},type=all,{buckets}")
            rules = [f"priority=50000,ip,nw_dst={f.fabric.nics[to].ip},actions=group:{GROUP}" for to in (2, 3)]
            f.ofctl("add-flows", f.bridge("leaf0"), "-", flows=rules)
        f.fabricd.request("start", ranks=[])
        f.fabricd.request("cable", cable="leaf0-spine3", rate_bps=40e9)
        about: dict[str, Any] = {"primitive": "frames", "ports": ["spine0:2"], "effect": "drop"}
        f.fabricd.request("inject", fault="loss", **about, select={"share": 0.005})
        yield f


def figures(its: Hardware) -> tuple[list[float], dict[str, Any]]:
    with leaves(its) as f:
        times = send(f, [(0, 2, 2_000_000, 0), (1, 3, 2_000_000, 5000), (0, 3, 500_000, 20_000)])
        counters, paths = f.counters(), f.fabricd.request("paths", rank=0)["paths"]
    counted = {key: counters[key] for key in ("nics", "ports", "drops", "groups")}
    return times, {**counted, "paths": [{k: v for k, v in p.items() if k != "policy"} for p in paths]}


@pytest.mark.parametrize(
    ("ours", "own"),
    [
        ("{policy: round, entropies: 32}", "{file: round.c, entropies: 32}"),
        (
            "{policy: bitmap, entropies: 16, loss: 3, saturated: 0.25}",
            "{file: bitmap.c, entropies: 16, loss: 3, saturated: 0.25}",
        ),
    ],
)
def test_a_choice_of_ours_among_paths_written_as_ones_own_gives_the_same_figures(ours: str, own: str) -> None:
    expected = figures(hardware(ours))
    assert figures(hardware(own)) == expected
    assert sum(nic["retransmitted"] for nic in expected[1]["nics"]) > 5
    assert sum(path["marked"] for path in expected[1]["paths"]) > 20


@pytest.mark.parametrize(
    ("ours", "own", "more"),
    [
        ("two_choices", "{file: two_choices.c}", ""),
        ("two_choices", "{file: two_choices.c}", ", quality: {bands: 4, every: 500ns}"),
        ("two_choices", "two_choices.c", ", scope: flowlet"),
        ("round_robin", "{file: round_robin.c}", ""),
    ],
)
def test_a_choice_of_ours_among_ports_written_as_ones_own_gives_the_same_figures(
    ours: str, own: str, more: str
) -> None:
    def of(policy: str) -> tuple[list[float], dict[str, Any]]:
        return figures(hardware(routing=f"{{adaptive: {{policy: {policy}{more}}}}}"))

    expected = of(ours)
    assert of(own) == expected
    assert sum(group["picks"] > 0 for group in expected[1]["groups"]) > 1


@pytest.mark.parametrize(
    ("kind", "what", "reason"),
    [
        ("paths", "return its->entropies;", "takes entropy 16, and there are those from 0 to 15"),
        ("choice", "return its->ports;", "takes port 4 of 4, and their places begin at 0"),
        ("choice", "while (its->now >= 0) its->bytes += 1; return 0;", "has computed for a second and does not return"),
        ("paths", "return *(uint32_t *)its->sent;", "reads or writes memory that is not there"),
    ],
)
def test_what_goes_wrong_in_it_is_named_and_ends_the_fabric(tmp_path: Path, kind: str, what: str, reason: str) -> None:
    macro = {"paths": "MULTIPATH", "choice": "ADAPTIVE"}[kind]
    (tmp_path / "mine.c").write_text(PICK % (kind, what, macro))
    multipath = "{file: mine.c, entropies: 16}" if kind == "paths" else "null"
    routing = "ecmp" if kind == "paths" else "{adaptive: {policy: mine.c}}"
    with leaves(hardware(multipath, routing, tmp_path), dies=rf"fabricd: mine\.c: pick\(\): {reason}.*") as f:
        f.fabricd.subscribe()
        f.fabricd.request("inject", fault="f", primitive="traffic", flows=[[0, 2, 100_000, 0]])
        (event,) = f.events("own_failed", 100.0)  # a second of computing may take long on a busy machine
        assert (event["name"], event["function"]) == ("mine.c", "pick") and event["reason"].startswith(reason)
        assert (line_of(event["file"], event["offset"]) == 4) == bool(event["offset"]) == ("takes" not in reason)


def test_it_is_told_how_long_a_packet_took_if_anybody_measures_that(tmp_path: Path) -> None:
    """It takes the entropy of that many us: a packet alone goes there and back in the time that `show paths` has."""
    text = """#include "railbed.h"
static uint32_t pick(struct railbed_paths *its) { return *(uint32_t *)its->state; }
static void returned(struct railbed_paths *its, const struct railbed_returned *back)
{
	*(uint32_t *)its->state = (uint32_t)(back->took / 1000);
}
RAILBED_MULTIPATH(2, .state_bytes = 4, .pick = pick, .returned = returned);
"""
    (tmp_path / "mine.c").write_text(text)
    for cc, measured in (("nscc", True), ("none", False)):
        its = hardware_of(
            loads((FILE % ("{file: mine.c, entropies: 32}", "ecmp")).replace("nscc", cc), directory=tmp_path)
        )
        with leaves(its) as f:
            for _ in range(2):
                send(f, [(0, 1, 4096, 0)])
            rows = f.fabricd.request("paths", rank=0)["paths"]
        took_us = {int(row["took_ns"] / row["timed"] / 1000) for row in rows if row["timed"]}
        assert {row["entropy"] for row in rows} == {0} | took_us and (max(took_us, default=0) > 1) == measured


def test_its_parameters_are_what_the_experiment_says_and_are_shown(tmp_path: Path) -> None:
    """It takes the third port of 3 to 6, of which the first weighs two."""
    names = '{{"place", RAILBED_NUMBER, {0}, 0, 9}}'
    text = PICK % ("choice", "return its->port[0].weight == 2 ? (uint32_t)its->parameter[0] : 0;", "ADAPTIVE")
    (tmp_path / "mine.c").write_text(text.replace(".pick = pick", f".pick = pick, .parameters = {names}"))
    with leaves(hardware(routing="{adaptive: {policy: {file: mine.c, place: 2}}}", folder=tmp_path)) as f:
        send(f, [(0, 2, 40_960, 0)])
        assert [row["port"] for row in f.counters()["groups"] if row["picks"]] == [5]
        shown = f.fabricd.request("parameters")["switches"]["leaf0"]["adaptive"]
        assert shown["params"] == {"place": 2.0}


def test_all_frames_of_a_flow_have_one_number_and_flows_have_others(tmp_path: Path) -> None:
    """Whoever goes by it sends all of 10, 20, 40, 80 packets by one port, and again."""
    what = "uint64_t *seen = its->state; *seen += 1; return *seen ? railbed_flow_of(its) % its->ports : 0;"
    (tmp_path / "mine.c").write_text(PICK % ("choice", what, "ADAPTIVE"))
    text = (tmp_path / "mine.c").read_text().replace(".pick", ".state_bytes = 8, .pick")
    (tmp_path / "mine.c").write_text(text)
    flows = {(0, 2): 10, (0, 3): 20, (1, 2): 40, (1, 3): 80}
    with leaves(hardware(routing="{adaptive: {policy: mine.c}}", folder=tmp_path)) as f:
        f.fabricd.request("heal", fault="loss")
        f.fabricd.request("cable", cable="leaf0-spine3", rate_bps=400e9)
        for start in (0.0, 100_000.0):
            send(f, [(*pair, packets * 4096, start) for pair, packets in flows.items()])
        picks = [row["picks"] for row in f.counters()["groups"] if row["switch"] == "leaf0"]
    assert sum(picks) >= 2 * sum(flows.values()) and sum(n > 0 for n in picks) > 1
    assert all(n % 10 == 0 for n in picks)
