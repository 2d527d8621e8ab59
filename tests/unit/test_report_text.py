"""A run's report as Markdown, to the letter."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Any

import pytest

from results.figures.report import MOST_ROWS, report

ROW = {
    "collective": "all_reduce", "flow": None, "algorithm": "ring", "ranks": 4, "size_bytes": 1024, "iteration": 0,
    "time_ns": 7654.3216, "algbw_Bps": 1.234e9, "busbw_Bps": 1.851e9, "wrong": 0,
}  # fmt: skip
PORT = {"node": "sw0", "port": 1, "peer": "h0:1", "tx_frames": 9, "tx_bytes": 900, "queue_max_bytes": 70}
DROP = {"node": "sw0", "port": 2, "reason": "crc", "count": 1, "headers": "10.0.0.1 > 10.0.0.2 | UDP"}


def text(**more: Any) -> str:
    told: dict[str, Any] = {
        "name": "quick", "error": None, "clock": "virtual",
        "fidelity": {"verdict": "exact", "reasons": [], "advice": []}, "results": [],
        "tables": {"drops": [], "ports": []}, "events": [], "hops": {}, "environment": {}, "metrics_sha256": "ab12",
    }  # fmt: skip
    return report(**{**told, **more})


def part(head: str, **more: Any) -> list[str]:
    """The lines below that heading."""
    return text(**more).partition(f"## {head}\n\n")[2].partition("\n\n")[0].splitlines()


def test_a_run_that_measured_nothing_says_so() -> None:
    assert text().split("\n") == [
        "# quick", "",
        "## Fidelity: exact (virtual clock)", "",
        "## Results", "",
        "Nothing was measured.", "",
        "No frame was dropped.", "",
        "## Environment", "",
        "- system: None, kernel None, None CPUs", "- tools: Python None", "- metrics_sha256: ab12", "",
    ]  # fmt: skip


def test_all_that_a_run_has_to_say() -> None:
    found = text(
        error={"what": "rank 2 waits", "where": "step 0", "hint": ""},
        fidelity={"verdict": "doubtful", "reasons": ["it was late"], "advice": ["use more time"]},
        results=[ROW, {**ROW, "algorithm": "in_network", "fallback": "no slots", "algbw_Bps": None, "busbw_Bps": None}],
        tables={"drops": [DROP, {**DROP, "port": 3, "count": 20}], "ports": [PORT]},
        hops={"frame_hops": 30, "fast_hops": 20},
        environment={
            "date": "today", "seed": 7, "commit": None, "system": "Debian", "kernel": "6.1", "cpus": 2,
            "python": "3.11", "tools": {"ovs": "OVS 3.1", "runc": None},
        },
    )  # fmt: skip
    assert (
        found
        == """\
# quick

**The run failed**: rank 2 waits

- where: step 0

What follows was measured until then.

## Fidelity: doubtful (virtual clock)

- it was late
- to change it: use more time

## Results

| operation  | algorithm                          | ranks | size (B) | iteration | time (us) | algbw (GB/s) | busbw (GB/s) | #wrong |
|------------|------------------------------------|------:|---------:|----------:|----------:|-------------:|-------------:|-------:|
| all_reduce | ring                               |     4 |     1024 |         0 |     7.654 |         1.23 |         1.85 |      0 |
| all_reduce | in_network, by the ranks: no slots |     4 |     1024 |         0 |     7.654 |            - |            - |      0 |

## Dropped frames

| node | port | reason | frames | headers of the last one    |
|------|-----:|--------|-------:|----------------------------|
| sw0  |    3 | crc    |     20 | 10.0.0.1 > 10.0.0.2 \\| UDP |
| sw0  |    2 | crc    |      1 | 10.0.0.1 > 10.0.0.2 \\| UDP |

## Busiest ports

| port  | peer | frames sent | bytes sent | longest queue (B) |
|-------|------|------------:|-----------:|------------------:|
| sw0:1 | h0:1 |           9 |        900 |                70 |

Frames passed switches 30 times: 20 times by the fast path, the rest through Open vSwitch.

## Environment

- date: today
- seed: 7
- system: Debian, kernel 6.1, 2 CPUs
- tools: Python 3.11; OVS 3.1
- metrics_sha256: ab12
"""
    )


def test_frames_that_all_went_through_open_vswitch() -> None:
    assert "Frames passed switches 30 times: all through Open vSwitch." in text(hops={"frame_hops": 30}).split("\n")


def test_the_busiest_ports_are_those_that_sent_most() -> None:
    """Ten of them, and none that sent nothing; a port without a peer or a queue has none."""
    ports = [{**PORT, "port": n, "tx_bytes": 100 * n} for n in range(12)] + [
        {"node": "sw1", "port": 1, "tx_frames": 1, "tx_bytes": 5000}
    ]
    rows = part("Busiest ports", tables={"drops": [], "ports": ports})[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["sw1:1", *(f"sw0:{n}" for n in range(11, 2, -1))]
    assert [cell.strip() for cell in rows[0].split("|")[1:-1]] == ["sw1:1", "", "1", "5000", "0"]
    assert "Busiest" not in text(tables={"drops": [], "ports": ports[:1]})


def test_steps_say_where_their_time_went_and_who_was_slow() -> None:
    """Two ranks compute for 1 us, one for 2 us; nothing is sent."""
    rows = [
        {"step": 0, "iteration": 1, "rank": rank, "stream": "gpu", "task": "f", "kind": "", "group": None,
         "size_bytes": None, "start_ns": 0, "end_ns": end}
        for rank, end in enumerate((1000, 1000, 2000))
    ]  # fmt: skip
    assert part("Steps", tables={"drops": [], "ports": [], "timeline": rows}) == [
        "| step | iteration | time (us) | compute (us) | exposed (us) | bubble (us) | overlap (%) | straggler |",
        "|-----:|----------:|----------:|-------------:|-------------:|------------:|------------:|-----------|",
        "|    0 |         1 |     2.000 |        1.333 |        0.000 |       0.667 |           - | rank 2    |",
    ]


def test_events_say_when_and_what_but_a_worker_that_is_through() -> None:
    events = [
        {"event": "worker_done", "time_ns": 5.0, "rank": 0},
        {"event": "link", "time_ns": 7.0, "wall_s": 0.5, "id": 3, "node": "sw0", "up": False},
        {"event": "deadlock", "time_ns": None, "ports": "sw0:1\nsw0:2"},
    ]
    assert part("Events", events=events)[2:] == [
        "| 7.0       | link     | node sw0, up false |",
        "|           | deadlock | ports sw0:1 sw0:2  |",
    ]
    assert "## Events" not in text(events=events[:1])


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_table_says_how_much_is_left_out(more: int) -> None:
    found = text(results=[ROW] * (MOST_ROWS + more))
    assert found.count("| all_reduce |") == MOST_ROWS
    assert ("1 more rows are in the frames." in found) == bool(more)
