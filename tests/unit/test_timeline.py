"""Where a step's time goes: shares of unions of intervals, checked against a raster of whole picoseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from results.figures.report import report
from results.figures.timeline import RankTime, communicates, length, moving_from, steps, union, without
from results.figures.trace_events import microseconds, threads, trace
from results.frames.columns import COLUMNS
from results.frames.metrics import timeline_rows
from results.pictures.drawing import PlotError
from results.pictures.timeline_plot import chosen, timeline
from results.store.folder import RunFolder
from testbed.cli import cli

Row = dict[str, Any]

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda s: (min(s), max(s))), max_size=8)


def raster(some: list[tuple[int, int]]) -> set[int]:
    """Every picosecond that one of the spans covers."""
    return {t for begin, end in some for t in range(begin, end)}


def task(rank: int, stream: str, start_ns: float, end_ns: float, **more: Any) -> Row:
    row = {"step": 0, "iteration": 0, "rank": rank, "stream": stream, "task": f"{stream}{start_ns}", "kind": ""}
    return row | {"group": None, "size_bytes": None, "start_ns": start_ns, "end_ns": end_ns} | more


def compute(rank: int, start: float, end: float, **more: Any) -> Row:
    return task(rank, "gpu", start, end, operation="compute", **more)


def collective(rank: int, start: float, end: float, **more: Any) -> Row:
    return task(rank, "net", start, end, group="dp", size_bytes=1024, operation="all_reduce", **more)


def send(rank: int, peer: int, start: float, end: float, tag: str = "") -> Row:
    return task(rank, "net", start, end, size_bytes=8, operation="send", peer=peer, tag=tag)


def recv(rank: int, peer: int, start: float, end: float, tag: str = "") -> Row:
    return task(rank, "net", start, end, size_bytes=8, operation="recv", peer=peer, tag=tag)


def figures(one: RankTime) -> tuple[float, float, float]:
    return one.compute_ps / 1000, one.exposed_ps / 1000, one.bubble_ps / 1000


@given(spans, spans)
def test_unions_and_what_they_leave(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    one, other = union(some), union(others)
    assert raster(one) == raster(some) and length(one) == len(raster(some))
    assert all(a[1] < b[0] for a, b in zip(one, one[1:], strict=False))
    left = without(one, other)
    assert raster(left) == raster(some) - raster(others) and length(left) == len(raster(left))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 60), st.integers(0, 30)), min_size=1))
def test_shares_of_any_timeline_are_those_of_the_raster(drawn: list[tuple[int, bool, int, int]]) -> None:
    rows = [(collective if busy else compute)(rank, at / 1000, (at + ps) / 1000) for rank, busy, at, ps in drawn]
    (step,) = steps(rows)
    begin, end = min(at for _, _, at, _ in drawn), max(at + ps for _, _, at, ps in drawn)
    assert step.span == (begin, end)
    for one in step.ranks:
        at_work, moving = (
            raster([(at, at + ps) for rank, net, at, ps in drawn if rank == one.rank and net == of])
            for of in (False, True)
        )
        assert one.compute_ps + one.exposed_ps + one.bubble_ps == end - begin
        assert one.compute_ps == len(at_work)
        assert one.communication_ps == len(moving)
        assert one.exposed_ps == len(moving - at_work)
        assert one.bubble_ps == len(set(range(begin, end)) - moving - at_work)
        assert one.overlap == (pytest.approx(len(moving & at_work) / len(moving)) if moving else None)
        assert raster(one.bubble) == set(range(begin, end)) - moving - at_work


def test_what_is_hidden_is_not_exposed() -> None:
    (step,) = steps([compute(0, 10, 60), collective(0, 50, 90), compute(1, 0, 100)])
    assert [figures(one) for one in step.ranks] == [(50, 30, 20), (100, 0, 0)]
    assert step.ranks[0].overlap == 0.25 and step.ranks[1].overlap is None
    assert step.overlap == 0.25 and step.time_ns == 100
    row = step.row(tokens=1000)
    assert (row["compute_ns"], row["exposed_ns"], row["bubble_ns"], row["utilisation"]) == (75, 15, 10, 0.75)
    assert row["tokens_per_s"] == 1000 / 100e-9


@pytest.mark.parametrize(
    ("row", "does"),
    [
        ({"group": "all", "size_bytes": 0}, True),  # a barrier moves nothing
        ({"group": None, "size_bytes": 8}, True),
        ({"group": None, "size_bytes": 0, "peer": 0}, True),
        ({"group": None, "size_bytes": None}, False),
    ],
)
def test_a_barrier_communicates_as_what_has_bytes_or_a_peer_does(row: dict[str, Any], does: bool) -> None:
    assert communicates(row) is does


def test_the_straggler_computes_longest_and_only_where_it_stands_out() -> None:
    (step,) = steps([compute(rank, 0, 100 + 30 * (rank == 2)) for rank in range(4)])
    assert step.straggler == (2, 1.3)
    (step,) = steps([compute(rank, 0, 100 + 5 * (rank == 2)) for rank in range(4)])
    assert step.straggler is None
    (step,) = steps([collective(rank, 0, 10) for rank in range(4)])
    assert step.straggler is None


def test_iterations_and_steps_are_apart() -> None:
    rows = [compute(0, 0, 10), compute(0, 20, 30, iteration=1), compute(0, 40, 60, step=1)]
    assert [(s.step, s.iteration, s.time_ns) for s in steps(reversed(rows))] == [(0, 0, 10), (0, 1, 10), (1, 0, 20)]


def test_a_receive_waits_until_its_send_begins() -> None:
    rows = [compute(0, 0, 100), send(0, 1, 100, 110, "a"), recv(1, 0, 0, 108, "a"), recv(1, 0, 0, 140, "b"),
            compute(0, 110, 120), send(0, 1, 120, 142, "b"), compute(1, 142, 242)]  # fmt: skip
    (step,) = steps(rows)
    one = step.ranks[1]
    assert one.communication == [(100_000, 108_000), (120_000, 140_000)]
    assert figures(one) == (100, 28, 114)
    assert moving_from([recv(1, 0, 5, 8)]) == [5000]  # its send is in no row: it counts whole


def test_messages_of_one_tag_match_in_order() -> None:
    rows = [
        recv(1, 0, 0, 60),
        recv(1, 0, 60, 90),
        send(0, 1, 50, 60),
        send(0, 1, 70, 90),
        recv(0, 1, 0, 9),
        send(2, 1, 1, 9),
    ]
    assert moving_from(rows) == [50_000, 70_000, 50_000, 70_000, 0, 1000]


def test_messages_match_in_the_order_of_the_lists_whichever_starts_first() -> None:
    """Two streams send: the first of the list starts late. Both are received by one stream, in order."""
    about = {
        "0": [{"operation": "send", "stream": s, "task": s, "peer": 1, "tag": ""} for s in ("late", "soon")],
        "1": [{"operation": "recv", "stream": "in", "task": t, "peer": 0, "tag": ""} for t in ("r0", "r1")],
    }
    said = {"kind": "timeline", "step": 0, "iteration": 0, "first": 0}
    lines = [{**said, "rank": 1, "times": [[0, 110_000, 0], [110_000, 110_000, 0]]},
             {**said, "rank": 0, "times": [[100_000, 120_000, 0], [5_000, 20_000, 0]]}]  # fmt: skip
    for k in (0, 1):  # and once more, so that something comes behind the one without an arrow
        lines.append({**lines[k], "iteration": 1})
    rows = [row | {"kind": "", "group": None, "size_bytes": 8} for row in timeline_rows(lines, [about])]
    step, _ = steps(rows)
    assert step.ranks[1].communication == [(100_000, 110_000)]
    arrows = [(e["ph"], e["ts"]) for e in trace(rows, "x")["traceEvents"] if e["ph"] in "sf"]
    assert arrows == [("s", 0.1), ("f", 0.1)] * 2  # the other message was there before its receive


# -- the picture


def drawn(axes: Any) -> dict[str, set[tuple[float, float, float, float]]]:
    """Boxes by their colour: from, to, top, bottom."""
    found: dict[str, set[tuple[float, float, float, float]]] = {}
    for one in axes.collections:
        boxes = [path.get_extents() for path in one.get_paths()]
        found.setdefault(to_hex(one.get_facecolor()[0]), set()).update(
            tuple(round(float(v), 6) for v in (b.x0, b.x1, b.y0, b.y1)) for b in boxes
        )
    return found


def test_the_picture_has_a_lane_for_each_stream_and_marks_what_is_lost() -> None:
    rows = [compute(0, 1000, 3000, kind="forward"), collective(0, 2000, 4000, kind="gradients"),
            compute(1, 1000, 6000, kind="forward")]  # fmt: skip
    (step,) = steps(rows)
    (axes,) = timeline(step, "some").axes
    boxes = drawn(axes)
    assert boxes.pop("#d4d4d4") == {(3, 5, -0.2, 2.2)}  # rank 0 has nothing to do from 3 to 5 us of the step
    assert boxes.pop("#f2a48b") == {(2, 3, -0.2, 2.2)}
    (forward, gradients) = boxes.values()
    assert forward == {(0, 2, 0.06, 0.94), (0, 5, 2.66, 3.54)} and gradients == {(1, 3, 1.06, 1.94)}
    assert [t.get_text() for t in axes.get_yticklabels()] == ["rank 0  gpu", "net", "rank 1  gpu"]
    title = axes.figure.get_suptitle().replace("\n", " ")
    assert title.startswith("some: step 0, iteration 0: 5 us: compute 70.0%, exposed communication 10.0%, bubble 20.0%")
    names = [t.get_text() for one in axes.figure.legends for t in one.get_texts()]
    assert names == ["bubble", "exposed communication", "forward", "gradients"]


def test_what_a_receive_waits_is_drawn_apart() -> None:
    (step,) = steps([compute(0, 0, 1000), send(0, 1, 1000, 2000), recv(1, 0, 0, 2000)])
    boxes = drawn(timeline(step, "some").axes[0])
    assert boxes["#6e6e6e"] == {(0, 1, 2.2 + 0.84, 2.2 + 0.96)}


def test_many_ranks_are_named_without_their_streams_and_stay_on_a_page() -> None:
    rows = [row for r in range(64) for row in (compute(r, 0, 10), collective(r, 5, 15))]
    (step,) = steps(rows)
    figure = timeline(step, "some")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [f"rank {r}" for r in range(64)]
    assert figure.get_size_inches()[1] < 16


def test_iterations_are_chosen_by_number_or_the_last_of_each_step() -> None:
    found = steps([compute(0, k, k + 1, step=k // 3, iteration=k % 3) for k in range(5)])
    assert [(s.step, s.iteration) for s in chosen(found, None)] == [(0, 2), (1, 1)]
    assert [(s.step, s.iteration) for s in chosen(found, 2)] == [(0, 2)]
    with pytest.raises(PlotError, match="there is no iteration 3: there are 0 to 2"):
        chosen(found, 3)
    with pytest.raises(PlotError, match="has no tasks"):
        chosen([], None)


def test_commands_draw_and_write_what_a_run_has_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create("some", "run")
    rows = [compute(0, 0, 100), send(0, 1, 100, 110), recv(1, 0, 0, 110), compute(1, 110, 300)]
    for name in COLUMNS:
        folder.write_frame(name, rows if name == "timeline" else [])
    folder.write_json("steps.json", {"steps": [{"kind": "tasks", "name": "t", "ranks": 2, "tokens": 300}]})
    folder.complete()

    def testbed(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        return (int(ended.value.code or 0), *capsys.readouterr())

    assert testbed("plot", "run", "timeline")[:2] == (0, "run-timeline.svg\n")
    assert testbed("plot", "run", "trace", "-o", "trace.json")[:2] == (0, "trace.json\n")
    assert json.loads(Path("trace.json").read_text()) == trace(rows, "run")
    code, _, told = testbed("plot", "run", "timeline", "--iteration", "1")
    assert code == 2 and "there is no iteration 1" in told
    code, _, told = testbed("plot", "run", "trace", "-o", "trace.svg")
    assert code == 2 and "a trace is .json" in told
    code, printed, _ = testbed("show", "run", "run")
    line = next(line for line in printed.splitlines() if line.split()[:3] == ["0", "0", "2"])
    assert " ".join(line.split()) == "0 0 2 0.300 0.145 0.010 0.145 0.0 48.3 1 x1.90 - 1e+09"
    folder = RunFolder.create("other", "other")
    folder.complete()
    for kind in ("timeline", "trace"):
        code, _, told = testbed("plot", "other", kind)
        assert code == 2 and "has no timeline" in told


def test_the_report_says_where_steps_spend_their_time() -> None:
    told = dict.fromkeys(("ports", "drops"), ()) | {"timeline": [compute(0, 0, 1500), collective(0, 1000, 2000)]}
    text = report(name="n", error=None, clock="virtual", fidelity={"verdict": "exact", "reasons": [], "advice": []},
                  results=[], tables=told, events=[], hops={}, environment={}, metrics_sha256="")  # fmt: skip
    assert (
        "|    0 |         0 |     2.000 |        1.500 |        0.500 |       0.000 |        50.0 |         - |" in text
    )


# -- trace.json


@given(st.integers(0, 10**15))
@example(64847)  # of microseconds that, times 1000, are a little less
def test_times_of_a_trace_are_whole_nanoseconds_to_whoever_cuts_off(ns: int) -> None:
    assert int(microseconds(ns) * 1000.0) == ns
    assert round(microseconds(ns), 3) == ns / 1000


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=30))
def test_slices_of_a_stream_do_not_reach_into_each_other(drawn: list[tuple[int, int]]) -> None:
    rows, at = [], 0
    for gap, ps in drawn:  # one after the other, in picoseconds
        rows.append(compute(0, (at + gap) / 1000, (at + gap + ps) / 1000))
        at += gap + ps
    slices = [e for e in trace(rows, "r")["traceEvents"] if e["ph"] == "X"]
    seen = 0
    for one in slices:  # as Perfetto reads them
        start = int(one["ts"] * 1000.0)
        assert start >= seen
        seen = start + int(one["dur"] * 1000.0)


def test_a_trace_has_ranks_streams_tasks_and_arrows() -> None:
    rows = [send(0, 1, 100, 110), compute(0, 0, 100, kind="forward"), recv(1, 0, 20, 108), compute(1, 108, 200)]
    document = json.loads(json.dumps(trace(rows, "pipe")))
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"} and document["displayTimeUnit"] == "ns"
    events = document["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] in ("process_name", "thread_name")}
    assert named == {(r, t): n for r in (0, 1) for t, n in ((0, f"rank {r}"), (1, "gpu"), (2, "net"))}
    slices = [(e["pid"], e["tid"], e["cat"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [(0, 1, "forward", 0, 0.1), (0, 2, "communication", 0.1, 0.01),
                      (1, 2, "communication", 0.02, 0.088), (1, 1, "compute", 0.108, 0.092)]  # fmt: skip
    start, end = [e for e in events if e["ph"] in "sf"]
    assert (start["ph"], start["pid"], start["tid"], start["ts"]) == ("s", 0, 2, 0.1)
    assert (end["ph"], end["pid"], end["tid"], end["ts"], end["bp"]) == ("f", 1, 2, 0.1, "e")
    assert start["id"] == end["id"] and start["cat"] == end["cat"] and start["name"] == end["name"]


@pytest.mark.parametrize(
    ("sent", "received", "at"),
    [
        ((100, 110), (20, 108), 0.1),  # when the send begins
        ((100, 110), (105, 120), 0.105),  # when the receive does
        ((100, 110), (20, 100), None),  # a receive that has no moment for it
        ((100, 100.9), (90, 120), None),  # nor has a send of less than a nanosecond
        ((100, 110), (20, 101), 0.1),
    ],
)
def test_an_arrow_ends_in_a_moment_of_the_receive(
    sent: tuple[float, float], received: tuple[float, float], at: float | None
) -> None:
    events = trace([send(0, 1, *sent), recv(1, 0, *received)], "r")["traceEvents"]
    assert [e["ts"] for e in events if e["ph"] == "f"] == ([] if at is None else [at])


def test_a_slice_says_what_its_task_was() -> None:
    (one,) = [e for e in trace([send(0, 1, 5, 10, tag="t")], "r")["traceEvents"] if e["ph"] == "X"]
    assert one["args"] == {"step": 0, "iteration": 0, "size_bytes": 8, "operation": "send", "peer": 1, "tag": "t"}
    assert (one["name"], one["cat"], one["tid"]) == ("net5", "communication", 1)


def test_streams_that_compute_come_first() -> None:
    assert threads([collective(0, 0, 1), compute(0, 0, 1), task(0, "a", 0, 1, size_bytes=8)]) == {
        "gpu": 1, "a": 2, "net": 3
    }  # fmt: skip
