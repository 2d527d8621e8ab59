"""What several paths give a permutation of 32 hosts: shares of the ideal rate as the prototype and UEC's simulator have
them, and for packets in turn the load of the fullest cable."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from testbed.experiment import load
from testbed.experiment.overrides import override
from testbed.run.outcome import RunResult
from testbed.run.run import run

PATHS = Path(__file__).parents[2] / "experiments/congestion/paths"


def point(study: str, tmp_path: Path, *more: str, **names: str) -> RunResult:
    """The point of a study whose variants have these names; `more`: keys that are set as well."""
    whole = load(PATHS / study)
    keys = {key: value for word, name in names.items() for key, value in whole.sweep[word][name].items()}
    told = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
    return run(override(whole, ["sweep={}", *told, *more]), tmp_path / "run")


def shares(result: RunResult) -> list[float]:
    """Of the rate alone, that each flow had."""
    return [row["ideal_ns"] / row["time_ns"] for row in result.results]


@pytest.mark.parametrize(("paths", "mean", "least"), [("adaptive", 0.92, 0.90), ("reps", 0.90, 0.88)])
def test_each_flow_has_nearly_the_rate_that_it_has_alone(paths: str, mean: float, least: float, tmp_path: Path) -> None:
    got = shares(point("hosts.yaml", tmp_path, hosts="32", paths=paths))
    assert fmean(got) >= mean
    assert min(got) >= least


def test_one_slow_cable_of_eight_takes_no_more_than_what_it_lacks(tmp_path: Path) -> None:
    """Out of its leaf, whose queues show it, and into it, where only weights do: (S - 1 + r) / S, within 5 %."""
    result = point("slow-uplink.yaml", tmp_path, 'control.routing={"adaptive": {"weights": "capacity"}}')
    got = dict(zip([row["flow"] for row in result.results], shares(result), strict=True))
    ends = {flow: [int(end) < 8 for end in flow.split("->")] for flow in got}
    met = [share for flow, share in got.items() if any(ends[flow])]
    assert len(met) == 16 and min(met) > 0.95 * (8 - 1 + 0.1) / 8


def test_in_turn_the_fullest_cable_says_when_the_last_flow_ends(tmp_path: Path) -> None:
    result = point("hosts.yaml", tmp_path, hosts="32", paths="spray in turn")
    ports = json.loads((result.folder / "counters.json").read_text())["ports"]
    load_of: Counter[str] = Counter()
    for port in ports:
        ends = port["node"], port["peer"]
        if all(end.startswith(("leaf", "spine")) for end in ends):
            load_of[f"{ends[0]}:{port['port']}"] += port["tx_bytes"]
    fullest = max(load_of.values()) / fmean(load_of.values())
    assert 1 / min(shares(result)) == pytest.approx(fullest, rel=0.03)


def test_a_probe_loses_nothing_a_second_time(tmp_path: Path) -> None:
    """Windows are so small after an incast that they hold back what is to be sent again: that is what a probe sends."""
    of = {"traffic": "incast", "fabric": "slow uplink", "paths": "adaptive"}
    result = point("decide.yaml", tmp_path, "fabric.switch.trimming=null", **of)
    assert len(result.results) == 31
    assert not any(row["wrong"] for row in result.results)


def test_after_a_probe_all_is_known_that_was_lost(tmp_path: Path) -> None:
    """A full window is lost on a cut cable, and what was trimmed before is sent first. 31 MB take 640 us."""
    result = point("decide.yaml", tmp_path, traffic="incast", fabric="cut uplink", paths="flowlets")
    assert max(row["time_ns"] for row in result.results) < 700_000
