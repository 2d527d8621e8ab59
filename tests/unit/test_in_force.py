"""A run on a live fabric says what was in force there: shown, reported, compared; others are as they were."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from results import load
from results.compare.comparison import compare
from results.figures import in_force
from results.figures.report import report
from testbed.commands.compare import command as compare_command
from testbed.commands.report import command as report_command
from testbed.tables.results import lines, of_run
from tests.parts.stored_runs import operation, stored

LOSS = {"what": "fault", "id": "f1", "line": "loss --on cable:h0-sw0 --rate 0.01", "from_us": None, "gone": False}
SPEED = {"what": "action", "id": "1", "line": "interface speed sw0:2 100Gbps", "from_us": None, "gone": False}
LIVE = {"fabric": "3f2a", "in_force": [LOSS, SPEED]}


def on_live(folder: Path, live: dict[str, Any] | None) -> Path:
    path = stored(folder, [operation(1e6)])
    if live is not None:
        (path / "live.json").write_text(json.dumps(live))
    return path


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "all the time"),
        ({"off": True}, "there all the time, off when it began"),
        ({"gone": True}, "from the beginning, gone before the end"),
        ({"from_us": 12.3}, "from 12.300 us on"),
        ({"from_us": 0.0, "gone": True}, "from 0.000 us, gone before the end"),
        ({"from_us": None, "gone": True, "until_us": 40.0}, "from the beginning to 40.000 us"),
        ({"from_us": 12.3, "gone": True, "until_us": 40.0}, "from 12.300 us to 40.000 us"),
        ({"from_us": None, "gone": True, "passing": True}, "was still passing when it began"),
        ({"line": None, "primitive": "frames"}, "put in and healed meanwhile"),
    ],
)
def test_when_it_was_in_force(more: dict[str, Any], said: str) -> None:
    assert in_force.when({**LOSS, **more}) == said


def test_the_table_the_reports_and_the_commands_for_it_again_say_it(tmp_path: Path) -> None:
    path = on_live(tmp_path / "run", LIVE)
    table = lines(of_run(load(path)))
    assert table[1:3] == [
        "# On a live fabric : testbed inject loss --on cable:h0-sw0 --rate 0.01: all the time",
        "# On a live fabric : testbed config interface speed sw0:2 100Gbps: all the time",
    ]
    page = Path(CliRunner().invoke(report_command, [str(path), "-o", str(tmp_path / "r.html")]).stdout.strip())
    found = re.search(r"To get it again</h2>\s*<pre>(.*?)</pre>", page.read_text(), re.S)
    assert found and found[1].splitlines()[:-1] == [
        f"testbed up {path}/experiment.yaml --virtual  # it prints an ID",
        "testbed inject loss --on cable:h0-sw0 --rate 0.01 --fabric ID",
        "testbed config interface speed sw0:2 100Gbps --fabric ID",
        f"testbed run {path}/experiment.yaml --fabric ID",
    ]
    assert table[1] in page.read_text()
    markdown = report(
        name="x", error=None, clock="virtual", fidelity={"verdict": "exact", "reasons": [], "advice": []}, results=[],
        tables={"drops": [], "ports": []}, events=[], hops={}, environment={}, metrics_sha256="0", live=LIVE,
    )  # fmt: skip
    assert (
        "## On live fabric 3f2a, with\n\n- `testbed inject loss --on cable:h0-sw0 --rate 0.01`: all the time"
        in markdown
    )


def test_what_came_later_is_no_command_of_its_own() -> None:
    said = in_force.again({"fabric": "x", "in_force": [{**SPEED, "from_us": 12.3}]}, "a b.yaml", "real").splitlines()
    assert said[:3] == [
        "testbed up 'a b.yaml'  # it prints an ID",
        "# from 12.300 us on: testbed config interface speed sw0:2 100Gbps --fabric ID",
        "testbed run 'a b.yaml' --fabric ID",
    ]


@pytest.mark.parametrize("live", [None, {"fabric": "3f2a", "in_force": []}])
def test_a_run_of_its_own_and_one_on_a_sound_fabric_say_nothing(tmp_path: Path, live: dict[str, Any] | None) -> None:
    path = on_live(tmp_path / "run", live)
    assert not any("live fabric" in line for line in lines(of_run(load(path))))
    assert in_force.again(load(path).live, "x.yaml", "virtual") == "testbed run x.yaml"
    assert compare([path, on_live(tmp_path / "other", None)]).differing == {}


def test_each_is_a_key_that_differs(tmp_path: Path) -> None:
    plain = on_live(tmp_path / "plain", None)
    one = on_live(tmp_path / "one", LIVE)
    two = on_live(tmp_path / "two", {"fabric": "77aa", "in_force": [{**LOSS, "id": "f7"}, {**LOSS, "id": "f8"}, SPEED]})
    assert compare([plain, one]).differing == {
        "live.faults: loss --on cable:h0-sw0 --rate 0.01": ["(not there)", "all the time"],
        "live.config: interface speed sw0:2 100Gbps": ["(not there)", "all the time"],
    }
    assert compare([one, two]).differing == {  # neither the id nor the fabric counts, but twice is twice
        "live.faults: loss --on cable:h0-sw0 --rate 0.01 (2)": ["(not there)", "all the time"]
    }
    printed = CliRunner().invoke(compare_command, [str(plain), str(one)]).stdout
    assert "live.faults: loss --on cable:h0-sw0 --rate 0.01" in printed and "no key differs" not in printed
