"""The testbed from Python: experiments as objects, predictions, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import railbed.runs
from railbed import Experiment, InputError, predict, run, sweep
from railbed.notebook import in_notebook
from testbed.commands.predict import command

SMALL = """
name: small
fabric: {topology: {star: {hosts: 2}}}
workload: [{collective: all_reduce, sizes: [1KiB]}]
"""


def test_an_experiment_is_a_file_text_or_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    mapping = {
        "name": "small",
        "fabric": {"topology": {"star": {"hosts": 2}}},
        "workload": [{"collective": "all_reduce", "sizes": ["1KiB"]}],
    }
    made = [Experiment(written) for written in (SMALL, tmp_path / "small.yaml", mapping)]
    assert made[0].resolved == made[1].resolved == made[2].resolved
    assert made[0]["fabric.cable.rate"] == "400Gbps" and made[0]["workload.0.sizes"] == ["1KiB"]
    assert Experiment(str(made[0])).resolved == made[0].resolved


def test_setting_a_value_makes_another_one() -> None:
    before = Experiment(SMALL)
    after = before.set({"fabric.cable.rate": "100Gbps", "workload.0.sizes": ["2KiB"]})
    assert (before["fabric.cable.rate"], after["fabric.cable.rate"]) == ("400Gbps", "100Gbps")
    swept = before.over({"fabric.cable.rate": ["100Gbps", "200Gbps"], "seed": [1, 2, 3]})
    assert swept.points == 6 and before.points == 1
    assert repr(swept) == "<experiment 'small', a sweep of 6>" and "<pre>name: small" in swept._repr_html_()


def test_a_mistake_has_its_hint_as_a_note() -> None:
    with pytest.raises(InputError, match="set: fabric.cable.rat: there is no 'rat' here") as wrong:
        Experiment(SMALL).set({"fabric.cable.rat": 1})
    assert wrong.value.__notes__ == ["its keys: flow_control, retry, rate, delay"]
    with pytest.raises(InputError) as several:
        Experiment(SMALL.replace("1KiB", "1KX").replace("hosts: 2", "hosts: -1"))
    assert any(note.startswith("also experiment:4: workload[0].sizes[0]: ") for note in several.value.__notes__)
    with pytest.raises(KeyError, match="there is no 'rat'"):
        Experiment(SMALL)["fabric.cable.rat"]


def test_a_prediction_is_that_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    told = json.loads(CliRunner().invoke(command, [str(tmp_path / "small.yaml"), "--json"]).stdout)
    made = predict(tmp_path / "small.yaml")
    assert made.frame.to_dict("records") == told["results"] and made.left_out == told["left_out"]
    swept = predict(Experiment(SMALL).over({"fabric.cable.delay": ["100ns", "600ns"]})).frame
    first, second = swept["time_ns"]
    assert second - first == pytest.approx(3000)  # two rounds and the last acknowledgement, each over two cables
    assert list(swept["fabric.cable.delay"]) == ["100ns", "600ns"]


def test_a_sweep_is_no_run_and_a_run_no_sweep() -> None:
    with pytest.raises(InputError, match="small is a sweep"):
        run(Experiment(SMALL).over({"seed": [1, 2]}))
    with pytest.raises(InputError, match="small is no sweep"):
        sweep(SMALL)


def test_a_terminal_is_no_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    with railbed.runs.progress_of(True) as progress:
        progress.note("nobody reads this")
    assert capsys.readouterr() == ("", "")
