"""`--set`: single keys of an experiment changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.experiment import load, loads
from testbed.experiment.overrides import override
from tests.parts.command_line import Cli
from tests.parts.command_line import testbed as testbed
from tests.parts.small_run import EXPERIMENT


def test_keys_of_the_experiment_can_be_set(testbed: Cli) -> None:
    testbed("run", "small.yaml", "--seed", "9", "--set", "workload.0.iterations=2", "--out", "here")
    resolved = loads(Path("here/experiment.yaml").read_text())
    assert resolved.seed == 9
    changed = override(resolved, ["fabric.cable.rate=100Gbps", "fabric.topology={star: {hosts: 5}}"])
    assert (changed.fabric.cable.rate, len(changed.build_fabric().nics)) == (10**11, 5)
    with pytest.raises(InputError) as told:
        override(resolved, ["fabric.cable.rate=fast"])
    assert told.value.where == "--set fabric.cable.rate=fast: fabric.cable.rate"


@pytest.mark.parametrize(
    ("key", "left"),
    [
        ("place.tensor", {"place": {"pipeline": "rail"}}),  # a name of the file's own
        ("place", {"place": {}}),
        ("schedule", {"schedule": "1f1b"}),
        ("batch.count", {"batch": {"micro": 1, "count": 1, "global": None}}),
        ("first_bucket", {"first_bucket": None}),
    ],
)
def test_null_drops_a_key_as_if_the_file_did_not_have_it(key: str, left: dict[str, object]) -> None:
    text = """name: t
fabric: {topology: {rail: {servers: 2, gpus: 2}}}
workload:
  - train:
      model: {layers: 4, hidden: 64, heads: 4, seq: 64}
      gpu: {flops: 100T}
      batch: {count: 4}
      parallel: {tensor: 2, pipeline: 2}
      place: {tensor: scale_up, pipeline: rail}
      schedule: gpipe
      first_bucket: 1MiB
"""
    train = override(loads(text), [f"workload.0.train.{key}=null"]).resolved()["workload"][0]["train"]
    assert {name: train[name] for name in left} == left


def test_another_topology_drops_what_only_the_old_one_had() -> None:
    quickstart = load("experiments/quickstart.yaml")  # says scale_up, which only a rail has
    star = override(quickstart, ["fabric.topology={star: {hosts: 4}}"])
    assert (star.fabric.topology.kind, star.fabric.scale_up) == ("star", None)
    rail = override(quickstart, ["fabric.topology={rail: {servers: 2, gpus: 2}}"])
    assert rail.fabric.scale_up == quickstart.fabric.scale_up
    ring = loads(
        "name: x\ncontrol: {routing: dimension_order}\ncapture: ['port:sw0:2']\nfabric:\n  topology: {ring: {nodes: 4}}"
        "\n  cables: {'cable:sw0-sw1': {rate: 100Gbps}}"
    )
    other = override(ring, ["fabric.topology={star: {hosts: 4}}"])
    assert (other.fabric.cables, other.control.routing.name) == ({}, "ecmp")
    with pytest.raises(InputError) as told:
        override(ring, ["fabric.topology={clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}"])
    assert told.value.where.endswith(": capture[0]")
    assert told.value.hint.endswith("the file says this of its ring; --set 'capture=[]' leaves it out")
    with pytest.raises(InputError, match="scale-up domain"):
        override(quickstart, ["fabric.topology={star: {hosts: 4}}", "fabric.scale_up.rate=100Gbps"])


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("workload.3.iterations=1", "it has one entry: 0"),
        ("fabric.switch.lossless.9=1", "its entries are 0 to 1"),
        ("inject.0.rate=1", "the list is empty: set all of it, such as --set 'inject=[{fault: .., on: ..}]'"),
        ("transport.ccc.x=1", "its keys: cc, recovery"),
        ("name.x=1", 'name is "small", without keys; set it as a whole: name=..'),
        ("transport.sack.every=4", "transport.sack is null, without keys; set it as a whole: transport.sack=.."),
    ],
)
def test_what_is_there_is_said_instead(setting: str, hint: str) -> None:
    with pytest.raises(InputError, match="there is no") as told:
        override(loads(EXPERIMENT), [setting])
    assert told.value.hint.startswith(hint)


def test_a_key_may_be_written_as_errors_write_it() -> None:
    star = loads(
        "name: s\nfabric: {topology: {star: {hosts: 4}}}\nworkload: [{collective: all_gather, sizes: [1KiB]}]\n"
    )
    assert override(star, ["workload[0].iterations=7"]).workload[0].iterations == 7


def test_a_word_that_may_have_keys_gets_them() -> None:
    one = loads(
        "name: s\nfabric: {topology: {star: {hosts: 4}}}\nworkload: [{collective: all_gather, sizes: [1KiB]}]\n"
    )
    changed = override(one, ["control.routing.ecmp.seed=3", "control.reaction=2ms"])
    assert changed.control.routing.ecmp.seed == 3
    with pytest.raises(InputError, match="sede"):
        override(one, ["control.routing.ecmp.sede=3"])
    with pytest.raises(InputError, match="there is no 'adaptive' here"):
        override(one, ["control.routing.adaptive.policy=random"])


def test_a_changed_key_changes_the_defaults_that_follow_from_it() -> None:
    star = loads(
        "name: s\nfabric: {topology: {star: {hosts: 4}}}\nworkload: [{collective: all_gather, sizes: [1KiB]}]\n"
    )
    assert star.fabric.scale_up is None
    rail = override(star, ["fabric.topology={rail: {servers: 2, gpus: 2}}"])
    assert rail.fabric.scale_up is not None  # as if the file said so
    reducing = override(star, ["workload.0.collective=all_reduce", "workload.0.op=max"])
    assert (reducing.workload[0].op, star.written()["workload"]) == (
        "max",
        [{"collective": "all_gather", "sizes": ["1KiB"]}],
    )  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("setting", "rest"),
    [
        ("fabric.switch.buffer=1MB", {"fabric.switch.alpha": 0.125}),
        ("fabric.switch.scheduler.weights.3=7", {"fabric.switch.scheduler.weights.2": 1}),  # not a default of its own
        ("fabric.switch.lossless.0=2", {"fabric.switch.lossless.1": 4}),
        ("transport.cc.dcqcn.set=paper", {"transport.recovery": "go_back_n"}),
        ("inject.0.rate=0.5", {"inject.0.on": "all"}),
        ("fabric.switch.ecn.pmax=0.3", {"fabric.switch.ecn.classes.0": 3}),
    ],
)
def test_setting_a_key_leaves_the_others(setting: str, rest: dict[str, Any]) -> None:
    text = EXPERIMENT + "transport: {cc: dcqcn}\ninject: [{fault: loss, on: all, rate: 0.1}]\n"

    def at(resolved: Any, key: str) -> Any:
        for step in key.split("."):
            resolved = resolved[int(step) if isinstance(resolved, list) else step]
        return resolved

    before, after = loads(text).resolved(), override(loads(text), [setting]).resolved()
    key, _, value = setting.partition("=")
    assert str(at(after, key)) == value
    for other, expected in rest.items():
        assert at(after, other) == at(before, other) == expected
    at(before, key.rpartition(".")[0])[key.rpartition(".")[2] if not key.endswith(".0") else 0] = at(after, key)
    assert before == after


SWEPT = """
name: swept
fabric: {{topology: {{star: {{hosts: 4}}}}}}
workload: [{{collective: all_reduce, algorithm: ring, sizes: [64KiB]}}]
sweep: {}
"""
ALGORITHMS = "workload.0.algorithm: [ring, double_binary_tree]"


@pytest.mark.parametrize(
    ("sweep", "settings", "left"),
    [
        ("{seed: [1, 2]}", [], None),
        (f"{{seed: [1, 2], {ALGORITHMS}}}", [], {"workload.0.algorithm": ["ring", "double_binary_tree"]}),
        (f"{{zip: {{seed: [1, 2], {ALGORITHMS}}}}}", ["sweep.zip=null"], {}),
        ("{seed: [1, 2]}", ["sweep.seed=[7]"], {"seed": [7]}),
    ],
)
def test_a_key_that_the_file_sweeps_over_has_the_value_that_is_set(
    sweep: str, settings: list[str], left: dict[str, Any] | None
) -> None:
    changed = override(loads(SWEPT.format(sweep), "f.yaml"), [*settings, "seed=3"])
    assert (changed.seed, changed.written().get("sweep")) == (3, left)


@pytest.mark.parametrize(
    ("axis", "sweep"),
    [
        ("zip", f"{{zip: {{seed: [1, 2], {ALGORITHMS}}}}}"),
        ("sample", "{sample: {random: 2, over: {seed: [1, 2]}}}"),
        ("size", "{size: {small: {seed: 1}, large: {seed: 2}}}"),
        ("seed, measure.iterations", "{'seed, measure.iterations': [2, 3]}"),
    ],
)
def test_one_that_it_sweeps_over_together_with_others_is_no_setting(axis: str, sweep: str) -> None:
    with pytest.raises(InputError, match="sweeps over seed, together with others") as told:
        override(loads(SWEPT.format(sweep), "f.yaml"), ["seed=3"])
    assert told.value.where == "--set seed=3" and f"--set sweep.{axis}=null" in told.value.hint
