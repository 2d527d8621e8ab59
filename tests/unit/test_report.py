"""Reports: what is asked, data over time, pages that need nothing else."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from results.figures import report as summary
from results.store.folder import RunFolder, StoreError
from testbed.base.errors import InputError
from testbed.base.yaml_writer import dump
from testbed.commands.report import command
from testbed.experiment import loads
from testbed.report import document, html
from testbed.report.asked import own_keys
from testbed.report.ideal import shares
from testbed.report.series import MOST_POINTS, Chart, Line
from tests.parts.stored_runs import operation, stored, stored_sweep

TEXT = """
name: small
fabric: {topology: {star: {hosts: 4}}, cable: {rate: 400Gbps, delay: 2us}}
transport: {cc: none, recovery: selective_repeat}
inject: [{fault: loss, on: "cable:h0-sw0", rate: 0.01}]
workload: [{collective: all_reduce, algorithm: ring, sizes: [1KiB]}]
"""


def written(*args: str | Path) -> str:
    done = CliRunner().invoke(command, list(map(str, args)))
    if done.exception is not None:
        raise done.exception
    return Path(done.stdout.strip()).read_text()


def data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return dict(json.loads(found[1]))


def test_what_was_asked_is_what_cannot_be_left_out() -> None:
    experiment = loads(TEXT)
    own = own_keys(experiment)
    assert own == {
        "name": "small",
        "fabric": {"topology": {"star": {"hosts": 4}}, "cable": {"delay": "2us"}},  # 400 Gb/s is the default
        "transport": {"recovery": "selective_repeat"},
        "inject": [{"fault": "loss", "on": "cable:h0-sw0", "rate": 0.01}],
        "workload": [{"collective": "all_reduce", "sizes": ["1KiB"]}],
    }
    assert type(experiment).model_validate(own) == experiment


def test_lines_of_a_chart_meet_on_one_time_axis() -> None:
    a = Line("a", np.array([0.0, 2.0, 5.0]), np.array([1.0, 3.0, 3.0]))
    b = Line("b", np.array([0.0, 1.0]), np.array([7.0, 8.0]))
    told = Chart("some", "KB", [a, b]).to_dict()
    times = np.frombuffer(base64.b64decode(told["x"]), "<f8")
    values = [np.frombuffer(base64.b64decode(y), "<f4") for y in told["y"]]
    assert times.tolist() == [0, 1, 2, 5]
    assert [v.tolist() for v in values] == [[1, 1, 3, 3], [7, 8, 8, 8]]  # each keeps its value until the next


def test_a_long_line_keeps_every_peak() -> None:
    x = np.arange(2 * MOST_POINTS, dtype=float)
    y = np.zeros(len(x))
    peaks = np.random.default_rng(1).choice(len(x), 50, replace=False)
    y[peaks] = np.arange(1, 51)
    told = Chart("some", "KB", [Line("a", x, y)]).to_dict()
    kept = np.frombuffer(base64.b64decode(told["y"][0]), "<f4")
    assert len(kept) <= MOST_POINTS + 2 and "thinned" in told["about"]
    stretches = np.unique(peaks // 4)  # of two that share a stretch, the lower one may go
    assert kept.max() == 50 and np.count_nonzero(kept) >= len(stretches) - 1


def a_run(folder: Path, **frames: Any) -> Path:
    return stored(folder / "run", [operation(1000.0)], loads(TEXT).resolved(), frames)


def test_a_page_needs_nothing_else_and_breaks_at_nothing(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><b>&"
    run = a_run(tmp_path, drops=[{"node": "sw0", "port": 1, "reason": "fault", "count": 3, "headers": evil}])
    page = written(run, "-o", tmp_path / "a.html")
    assert evil not in page and "&lt;/script&gt;&lt;script&gt;alert(1)" in page
    assert not re.search(r'(src|href)="(?!data:)', page) and "@import" not in page
    assert "Fidelity: exact" in page and "rate: 0.01" in page
    assert "this run was not sampled" in page and data(page)["charts"] == []


def test_flows_have_their_shares_of_the_rate_alone_by_what_they_are_sent_by() -> None:
    of = [(0, "dctcp", 100.0, 200.0), (0, "dctcp", 100.0, 400.0), (0, "swift", 90.0, 100.0), (1, None, 5.0, 5.0)]
    rows = [{"step": s, "sends_by": by, "ideal_ns": ideal, "time_ns": took} for s, by, ideal, took in of]
    run: Any = SimpleNamespace(rows=lambda name: [*rows, {"step": 2, "ideal_ns": None, "time_ns": 7.0}])
    assert [tuple(row.values()) for row in shares(run)] == [
        (0, "dctcp", 2, "0.375", "0.375", "0.250", "0.500"),
        (0, "swift", 1, "0.900", "0.900", "0.900", "0.900"),
        (1, "", 1, "1.000", "1.000", "1.000", "1.000"),
    ]


def test_a_failed_run_says_so_first(tmp_path: Path) -> None:
    made = RunFolder.create("x", tmp_path / "x")
    with (made.path / "experiment.yaml").open("w") as file:
        dump(loads(TEXT).resolved(), file)
    run = made.fail({"what": "rank 2 waits for rank 1", "where": "step 0", "hint": "look at <h1>"})
    page = written(run, "-o", tmp_path / "b.html")
    body = page[page.index("<main>") :]
    assert body.index("rank 2 waits for rank 1") < body.index("Fidelity: invalid") < body.index("Results")
    assert "look at &lt;h1&gt;" in page


def test_a_killed_run_and_a_shortened_error_have_reports(tmp_path: Path) -> None:
    made = RunFolder.create("x", tmp_path / "x")
    with (made.path / "experiment.yaml").open("w") as file:
        dump({**loads(TEXT).resolved(), "measure": {"sample": "1us"}}, file)
    assert "it was killed, or still goes on" in written(made.path, "-o", tmp_path / "k.html")
    assert "deadlock" in written(made.fail({"what": "deadlock"}), "-o", tmp_path / "f.html")


def test_what_happened_is_not_said_in_python() -> None:
    told = {"event": "fault", "node": None, "port": None, "detail": '{"fault": "f1", "on": true, "to": null, "n": 3}'}
    assert document._said(told, {}) == "fault begins (f1): n 3"
    faults = {"f1": {"fault": "loss", "on": "cable:h0-sw0"}}
    ended = {**told, "detail": '{"fault": "f1", "on": false}'}
    assert document._said(ended, faults) == "loss on cable:h0-sw0 ends (f1)"
    down = {"event": "link", "node": "sw0", "port": 1, "detail": '{"up": false, "by_hand": true, "id": 3}'}
    assert document._said(down, {}) == "link at sw0:1: down, by hand"
    assert summary._detail({"event": "link", "up": False, "to": None, "node": "sw0"}) == "up false, to none, node sw0"


def test_damaged_counters_are_said(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (run / "counters.json").write_text("{half")
    with pytest.raises(StoreError, match="damaged"):
        written(run, "-o", tmp_path / "d.html")


def test_a_sweep_has_its_points_and_a_picture(tmp_path: Path) -> None:
    points = [({"fabric__topology__star__hosts": h}, 100.0 * h) for h in (2, 4)] + [
        ({"fabric__topology__star__hosts": 8}, "deadlock")
    ]
    page = written(stored_sweep(tmp_path / "s", points), "-o", tmp_path / "s.html")
    assert "<th>hosts</th>" in page and "<td>deadlock</td>" in page and "1 of 3 points failed" in page


def test_an_experiment_that_this_version_cannot_read_has_a_report_without_a_network(tmp_path: Path) -> None:
    run = stored(tmp_path / "old", [operation(1.0)], {**loads(TEXT).resolved(), "no_longer_there": 1})
    page = written(run, "-o", tmp_path / "c.html")
    assert "network" not in data(page) and "no_longer_there: 1" in page


@pytest.mark.parametrize(
    ("args", "what"),
    [(["x.pdf"], "a page is .html"), (["no/x.html"], "there is no folder"), ([""], "a page is .html")],
)
def test_where_it_cannot_go(tmp_path: Path, args: list[str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        written(a_run(tmp_path), "-o", *args)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run folder"):
        written(tmp_path)


def lost(module: str) -> list[str]:
    """What a module exports that the page's one script would not tell the others: statements, as far as they matter."""
    plain = re.search(r"^return \{ (.*) \};$", html._plain(module), re.M)
    told = plain[1].split(", ") if plain else []
    found = []
    for statement in re.findall(r"^export\b.*?(?:;$|\{$|\Z)", module, re.M | re.S):
        bare = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`", " ", statement)
        while bare != (bare := re.sub(r"\([^()[\]{}]*\)|\[[^()[\]{}]*\]|\{[^()[\]{}]*\}", " ", bare)):
            pass
        names = re.match(r"export (?:async )?\w+ (\w+)", bare)
        if not names or names[1] not in told or (" const " in bare and "," in bare):
            found.append(statement)
    return found


def test_all_that_modules_export_is_told_in_the_page() -> None:
    for name in html._MODULES:
        module = (html._PAGES / "js" / f"{name}.js").read_text()
        assert "export" in module and lost(module) == [], name


@pytest.mark.parametrize(
    ("line", "is_lost"),
    [
        ("export const a = [1, 2].map((x, y) => f(x, y));", False),
        ('export const a = "1, 2";', False),
        ("export async function a(b, c) {", False),
        ("export class a extends b {", False),
        ("export let a = 1;", True),
        ("export { a, b };", True),
        ("export const { a, b } = c;", True),
        ("export const a = f(1, 2), b = [3];", True),
        ("export const a = 1,\n  b = 2;", True),
        ("export default a;", True),
    ],
)
def test_an_export_that_would_be_lost_is_found(line: str, is_lost: bool) -> None:
    assert lost(f"export const other = 1;\n{line}\n") == ([line] if is_lost else [])
