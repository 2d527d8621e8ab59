"""Congestion controls of users' own files in fabricd: figures as ours, what they are told, what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hardware.config import Hardware
from testbed.experiment import Experiment, loads
from testbed.plan.hardware import hardware_of
from tests.parts.fabricd_fixture import bare_fabric
from tests.parts.traffic_fabric import drops, send, star

OWN = Path(__file__).parents[1] / "parts" / "own"
FILE = """
name: own
fabric:
  topology: {star: {hosts: 5}}
  switch: {buffer: 150KB, lossless: [], pfc: false, ecn: {kmin: 5KB, kmax: 5KB, pmax: 1}}
  nic: {retry: 7}
transport: {cc: %s}
"""
ENTRY = """#include "railbed.h"
static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{
	%s
}
RAILBED_CONTROL(1, .hears = RAILBED_STAMPS, .acked = acked);
"""


def hardware(control: str, folder: Path = OWN, buffer: str = "150KB") -> Hardware:
    experiment: Experiment = loads(FILE.replace("150KB", buffer) % control, directory=folder)
    return hardware_of(experiment)


def written(folder: Path, what: str) -> Hardware:
    (folder / "mine.c").write_text(ENTRY % what)
    return hardware("{file: mine.c}", folder)


def figures(chosen: Hardware, start_ns: list[float]) -> tuple[list[float], dict[str, Any]]:
    """Times of an incast, and all that was counted."""
    with star(5, chosen) as f:
        times = send(f, [(rank, 0, 1_000_000, start) for rank, start in enumerate(start_ns, 1)])
        counters = f.counters()
    return times, {key: counters[key] for key in ("nics", "ports", "qps", "drops", "switches")}


@pytest.mark.parametrize(
    ("ours", "own", "proof"),
    [
        ("{dctcp: {g: 0.5}}", "{file: dctcp.c, g: 0.5}", "retransmitted"),
        (
            "{dcqcn: {set: paper, rate_timer: 5us, alpha_timer: 2us, byte_counter: 50KB, cnp_gap: 10us}}",
            "{file: dcqcn.c, rate_timer: 5us, alpha_timer: 2us, byte_counter: 50KB, cnp_gap: 10us}",
            "rp_cnp_handled",
        ),
        ("{homa: {initial: 20KB}}", "{file: homa.c, initial: 20KB, overcommit: 2}", "tx_credit"),
    ],
)
def test_ours_written_as_ones_own_gives_the_same_figures(ours: str, own: str, proof: str) -> None:
    late = [0.0, 0.0, 30_000.0, 100_000.0]
    expected = figures(hardware(ours), late)
    assert figures(hardware(own), late) == expected
    assert sum(nic.get(proof, 0) for nic in expected[1]["nics"]) > 5


def test_it_hears_what_switches_stamp(tmp_path: Path) -> None:
    """By its 50,000 bytes for a stamp, with the cable's rate in it, and its count of switches."""
    what = "flow->window = ack->stamps == ack->switches && ack->stamp->rate_mbps == 400000 ? 50000 : 4096;"
    with star(5, written(tmp_path, what)) as f:
        send(f, [(1, 0, 500_000, 0)])
        assert [qp["window_bytes"] for qp in f.counters()["qps"] if qp["rank"] == 1] == [50_000]


def test_it_gets_what_it_asked_for_and_no_more(tmp_path: Path) -> None:
    """Who fills its window of one and a half packets has two under way; a timer that asks to be called at once is
    called a tenth of a microsecond later (railbed.h)."""
    took = []
    for more in ("", ", .fills_window = true"):
        took.append(_timed(tmp_path, "flow->window = 6144;", f".start = start{more}")[0])
    assert took[1] == pytest.approx(took[0] / 2, rel=0.1)
    again = "flow->window += 1; flow->timer = flow->now;"
    begin = "flow->window = 500000; flow->timer = flow->now;"
    short, long = (_timed(tmp_path, begin, ".start = start, .timer = on", again, size) for size in (400_000, 800_000))
    assert long[1] - short[1] == pytest.approx((long[0] - short[0]) / 100, abs=2)


@pytest.mark.parametrize(("more", "window"), [("", 30_000), (".answers_marks = true, ", 200_000)])
def test_whose_marks_are_answered_at_once_hears_of_one_at_a_time(tmp_path: Path, more: str, window: int) -> None:
    what = "flow->window = ack->marked > 1 || flow->window == 30000 ? 30000 : 200000;"
    (tmp_path / "mine.c").write_text((ENTRY % what).replace(".hears = RAILBED_STAMPS, ", more))
    with star(5, hardware("{file: mine.c}", tmp_path, "10MB")) as f:
        send(f, [(rank, 0, 1_000_000, 0) for rank in (1, 2)])
        assert {qp["window_bytes"] for qp in f.counters()["qps"] if qp["rank"]} == {window}


def _timed(folder: Path, start: str, entries: str, on: str = "", size: int = 400_000) -> tuple[float, int]:
    """What a flow takes, and its window in the end."""
    functions = "".join(
        f"static void {name}(struct railbed_flow *flow)\n{{\n\t{body}\n}}\n"
        for name, body in (("start", start), ("on", on))
        if body
    )
    (folder / "mine.c").write_text(f'#include "railbed.h"\n{functions}RAILBED_CONTROL(1, {entries});\n')
    with star(5, hardware("{file: mine.c}", folder)) as f:
        (ns,) = send(f, [(1, 0, size, 0)])
        (qp,) = (qp for qp in f.counters()["qps"] if qp["rank"] == 1)
    return ns, qp["window_bytes"]


def test_it_hears_what_it_is_granted(tmp_path: Path) -> None:
    """All that it asks for, at once, and a window of what it was granted first."""
    (tmp_path / "mine.c").write_text(
        """#include "railbed.h"
static void arrived(const struct railbed_arrival *a, struct railbed_claim *claim)
{
	claim->owed = a->wants;
}
static void granted(struct railbed_flow *flow, double bytes)
{
	if (flow->window <= 0)
		flow->window = bytes;
}
RAILBED_CONTROL(2, .hears = RAILBED_CREDIT, .arrived = arrived, .granted = granted);
"""
    )
    with star(3, hardware("{file: mine.c, initial: 40KB, grant_packets: 3}", folder=tmp_path)) as f:
        send(f, [(1, 0, 500_000, 0)])
        (qp,) = (qp for qp in f.counters()["qps"] if qp["rank"] == 1)
        assert qp["window_bytes"] in (4096, 8192, 12288) and f.nic(0)["tx_credit"] > 20


def test_it_hears_what_was_granted_and_has_not_come(tmp_path: Path) -> None:
    """Who grants two packets beyond what has come gets two in a round trip, of four cables at 500 ns."""
    (tmp_path / "mine.c").write_text(
        """#include "railbed.h"
static void arrived(const struct railbed_arrival *a, struct railbed_claim *claim)
{
	double room = 2 * 4096 - a->under_way;

	claim->owed = a->wants < room ? a->wants : room;
}
RAILBED_CONTROL(1, .hears = RAILBED_CREDIT, .arrived = arrived);
"""
    )
    with star(3, hardware("{file: mine.c, initial: 40KB, grant_packets: 1}", folder=tmp_path)) as f:
        (took,) = send(f, [(1, 0, 110 * 4096, 0)])
    assert took > (110 - 10) / 2 * 2 * 2 * 500


def test_who_hears_stamps_and_credit_has_room_for_both(tmp_path: Path) -> None:
    """Five stamps, and what its sender would like to have, nearly fill what a frame has beside its payload."""
    (tmp_path / "mine.c").write_text(
        """#include "railbed.h"
static void arrived(const struct railbed_arrival *a, struct railbed_claim *claim)
{
	claim->owed = a->wants;
}
static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{
	flow->window = ack->stamps == ack->switches && ack->stamp->rate_mbps == 400000 ? 50000 : 4096;
}
RAILBED_CONTROL(1, .hears = RAILBED_STAMPS | RAILBED_CREDIT, .arrived = arrived, .acked = acked);
"""
    )
    with star(3, hardware("{file: mine.c, initial: 40KB, hops: 5}", folder=tmp_path)) as f:
        send(f, [(1 + n % 2, 0, 4096, 100.0 * n) for n in range(200)])
        assert {qp["window_bytes"] for qp in f.counters()["qps"] if qp["rank"]} == {50_000}
        assert not drops(f)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (
            "while (ack->rtt > 0) flow->window += 1;",
            r"has computed for a second and does not return: an endless loop\?",
        ),
        ("memset(flow->state - (1 << 30), 1, 1 << 29);", "reads or writes memory that is not there: .*"),
        ("flow->rate = sqrt(-ack->rtt);", "sets a rate, window or timer that is not a number"),
    ],
)
def test_what_goes_wrong_in_it_is_named_and_ends_the_fabric(tmp_path: Path, what: str, reason: str) -> None:
    with bare_fabric(
        "star", {"hosts": 5}, written(tmp_path, what), dies=rf"fabricd: mine\.c: acked\(\): {reason}"
    ) as f:
        f.fabricd.subscribe()
        f.fabricd.request("start", ranks=[])
        f.fabricd.request("inject", fault="f", primitive="traffic", flows=[[1, 0, 100_000, 0]])
        (event,) = f.events("own_failed")
        assert (event["name"], event["function"]) == ("mine.c", "acked")
