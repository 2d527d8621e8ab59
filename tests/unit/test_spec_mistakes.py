"""The experiment file: every mistake is named with file and line, and no text ends in anything but an InputError."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.base import explain, yaml_reader
from testbed.base.errors import InputError
from testbed.experiment import loads
from tests.parts.experiment_text import GOOD, line_of, problems

MISTAKES = [
    # (replace, by, line is the one of, path, what, part of the hint)
    ("400Gbps", "400Gb", "400Gb", "fabric.cable.rate", "'Gb' is not a unit of rate", "Gbps"),
    ("400Gbps", "400", "rate: 400", "fabric.cable.rate", "400 has no unit", "Gbps"),
    ("400Gbps", "0bps", "rate: 0bps", "fabric.cable.rate", "0bps is out of bounds", "more than 0bps"),
    ("400Gbps", ".nan", "rate: .nan", "fabric.cable.rate", "nan has no unit", "Gbps"),
    ("500ns", "-5ns", "-5ns", "fabric.cable.delay", "a time cannot be negative: '-5ns'", "such as 500ns"),
    ("500ns", "500B", "500B", "fabric.cable.delay", "'B' is not a unit of time", "ns, us, ms, s"),
    ("mtu: 4096", "mtu: 100", "mtu: 100", "fabric.nic.mtu", "100 is out of bounds", "at least 256"),
    ("mtu: 4096", "mtu: 9001", "mtu: 9001", "fabric.nic.mtu", "9001 is out of bounds", "at most 9000"),
    ("mtu: 4096", "mtu: '4096'", "mtu: '4096'", "fabric.nic.mtu", "'4096' is not a whole number", ""),
    ("mtu: 4096", "mtu: 4096.5", "mtu: 4096.5", "fabric.nic.mtu", "4096.5 is not a whole number", ""),
    ("mtu: 4096", "mtu: true", "mtu: true", "fabric.nic.mtu", "True is not a whole number", ""),
    ("seed: 1", "seed: .nan", "seed: .nan", "seed", "nan is not a whole number", ""),
    ("seed: 1", "seed: -1", "seed: -1", "seed", "-1 is out of bounds", "at least 0"),
    ("seed: 1", f"seed: {2**63}", "seed: 9", "seed", f"{2**63} is out of bounds", "less than"),
    (
        "routing: ecmp",
        "routing: {adaptive: {scope: {flowlet: {gap: 2}}}}",
        "routing:",
        "control.routing.adaptive.scope.flowlet.gap",
        "2 has no unit",
        "500ns",
    ),
    ("seed: 1", "sed: 1", "sed: 1", "sed", "unknown key 'sed'", "did you mean 'seed'? allowed keys: name, seed"),
    ("name: probe", "name: ../x", "name: ../x", "name", "'../x' is not allowed here", "letter or digit"),
    ("name: probe", "name:", "name:", "name", "there is nothing here", "a text"),
    (
        "rail:",
        "rial:",
        "rial:",
        "fabric.topology.rial",
        "unknown topology 'rial'",
        "did you mean 'rail'? known: clos, custom",
    ),
    ("servers: 4", "servers: 0", "servers: 0", "fabric.topology.rail.servers", "0 is out of range", "from 1"),
    ("servers: 4", "servers: 1000000", "servers: 1", "fabric.topology.rail.servers", "1000000 is out of range", "254"),
    ("servers: 4", "servers: -4", "servers: -4", "fabric.topology.rail.servers", "-4 is out of range", "from 1"),
    ("servers: 4", "servers: .inf", "servers: .inf", "fabric.topology.rail.servers", "inf is not an integer", ""),
    ("servers: 4", "server: 4", "server: 4", "fabric.topology.rail.server", "rail has no such parameter", "servers"),
    ("      servers: 4\n", "", "rail:", "fabric.topology.rail.servers", "rail needs it", "integer"),
    ("routing: ecmp", "routing: ecpm", "ecpm", "control.routing", "unknown routing 'ecpm'", "did you mean 'ecmp'?"),
    (
        "routing: ecmp",
        "routing: dimension_order",
        "routing:",
        "control.routing",
        "'dimension_order' does not fit a rail",
        "ring and torus",
    ),
    (
        "routing: ecmp",
        "fast_path: on",
        "fast_path",
        "control.fast_path",
        "'on' is neither off nor",
        "off, or {sample: 1024}",
    ),
    ("routing:", "rooting:", "rooting:", "control.rooting", "unknown key 'rooting'", "allowed keys: routing, reaction"),
    ("all_reduce", "allreduce", "allreduce", "workload[0].collective", "unknown collective 'allreduce'", "all_reduce"),
    ("- 64KiB", "- 3B", "- 3B", "workload[0].sizes[1]", "3B is not a whole number of float32 elements", "4 bytes"),
    ("- 64KiB", "- 0B", "- 0B", "workload[0].sizes[1]", "0B is not a whole number of float32 elements", "4 bytes"),
    ("- 64KiB", "- 17GiB", "- 17GiB", "workload[0].sizes[1]", "17GiB is out of bounds", "at most 16GiB"),
    ("[0, 1, 2]", "[0, 8]", "ranks:", "workload[0].ranks[1]", "there is no rank 8", "ranks 0 to 7"),
    ("[0, 1, 2]", "[0, -1]", "ranks:", "workload[0].ranks[1]", "there is no rank -1", "ranks 0 to 7"),
    ("[0, 1, 2]", "[0, 0]", "ranks:", "workload[0].ranks[1]", "rank 0 stands twice", "once"),
    ("[0, 1, 2]", "[0]", "ranks:", "workload[0].ranks", "all_reduce takes at least 2 ranks, not 1", ""),
    ("[0, 1, 2]", "[]", "ranks:", "workload[0].ranks", "all_reduce takes at least 2 ranks, not 0", ""),
    ("[0, 1, 2]", "[0, 1]\n    op: mean", "mean", "workload[0].op", "unknown op 'mean'", "avg"),
    ("[0, 1, 2]", "[0, 1]\n    dtype: f32", "f32", "workload[0].dtype", "unknown dtype 'f32'", "float32"),
    (
        "[0, 1, 2]",
        "[0, 1]\n    algorithm: tree",
        "tree",
        "workload[0].algorithm",
        "unknown algorithm 'tree' of all_reduce",
        "ring",
    ),
    (
        "[0, 1, 2]",
        "[0, 1]\n    iterations: 0",
        "iterations",
        "workload[0].iterations",
        "0 is out of bounds",
        "at least 1",
    ),
    (
        "collective: all",
        "collectiv: all",
        "- collectiv",
        "workload[0].collectiv",
        "unknown key 'collectiv'",
        "did you mean 'collective'",
    ),
    ("from: 0", "from: 9", "from: 9", "workload[1].flows[0].from", "there is no rank 9", "0 to 7"),
    ("to: 3", "to: 0", "to: 0", "workload[1].flows[0].to", "a flow from rank 0 to itself", "different"),
    ("size: 10MB", "size: 0B", "size: 0B", "workload[1].flows[0].size", "0B is out of bounds", "more than 0B"),
    (
        "size: 10MB",
        "sise: 1B, size: 1B",
        "sise",
        "workload[1].flows[0].sise",
        "unknown key 'sise'",
        "from, to, size, start",
    ),
    ("clock: virtual", "clock: fast", "fast", "clock", "'fast' is not a clock", "virtual, real"),
    (
        "clock: virtual",
        "clock: {virtual: {partitions: 65}}",
        "virtual:",
        "clock.virtual.partitions",
        "65 is no number of partitions",
        "from 1 to 64",
    ),
    (
        "clock: virtual",
        "clock: {virtual: {parts: 2}}",
        "virtual:",
        "clock.virtual.parts",
        "unknown key 'parts'",
        "partitions",
    ),
    ("clock: virtual", "clock: {real: {dilation: 0}}", "real:", "clock.real.dilation", "0 is not a dilation", "from 1"),
    (
        "clock: virtual",
        "clock: {real: {dilatation: 1}}",
        "real:",
        "clock.real.dilatation",
        "unknown key 'dilatation'",
        "dilation",
    ),
    (
        "seed: 1",
        "transport: {cc: dcqn}",
        "dcqn",
        "transport.cc",
        "unknown congestion control 'dcqn'",
        "known: none, dcqcn",
    ),
    ("seed: 1", "inject: [{fault: lost}]", "lost", "inject[0].fault", "unknown fault 'lost'", "did you mean 'loss'"),
    ("seed: 1", "inject: loss", "inject", "inject", "inject is a list", "[]"),
    ("seed: 1", "capture: ['port:leaf0:1']", "capture", "capture[0]", "unknown switch 'leaf0'", "rail0, rail1, spine0"),
    ("seed: 1", "capture: ['port:rail0:9']", "capture", "capture[0]", "switch rail0 has no port '9'", "1 to 5"),
    ("seed: 1", "capture: ['port:rail0:٣']", "capture", "capture[0]", "switch rail0 has no port", "1 to 5"),
    ("seed: 1", "capture: ['nic:8']", "capture", "capture[0]", "there is no rank '8'", "0 to 7"),
    ("seed: 1", "capture: ['cable:h0-rail0']", "capture", "capture[0]", "unknown cable 'h0-rail0'", "h0.0-rail0"),
    ("seed: 1", "capture: [all]", "capture", "capture[0]", "'all' is not a place to capture", "nic:RANK"),
    ("seed: 1", "workers: {cpus: .inf}", "cpus", "workers.cpus", "inf is not a finite number", ""),
    ("seed: 1", "workers: {cpus: 0}", "cpus", "workers.cpus", "0 is out of bounds", "more than 0"),
    ("seed: 1", "workers: {image: no.tar}", "image", "workers.image", "there is no image archive 'no.tar'", "relative"),
    ("seed: 1", "workers: 4", "workers", "workers", "4 is not a mapping", ""),
    ("workload:", "seed: 2\nworkload:", "seed: 2", "seed", "key 'seed' stands twice", "line 2"),
    ("seed: 1", "seed: !!python/name:os.system x", "seed", "seed", "only plain values are allowed here", ""),
    ("seed: 1", "seed: " + "1" * 5000, "seed", "seed", "is not a number", ""),
]


@pytest.mark.parametrize(
    ("old", "new", "place", "path", "what", "hint"), MISTAKES, ids=[f"{m[3]}-{m[4][:30]}" for m in MISTAKES]
)
def test_mistake_is_named_with_its_line(old, new, place, path, what, hint):
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    where, said, hinted = problems(text)[0]
    assert where == f"e.yaml:{line_of(text, place)}: {path}"
    assert what in said
    assert hint in hinted


def test_a_torus_of_one_dimension_of_one():
    text = "name: x\nfabric:\n  topology:\n    torus:\n      dims:\n      - 4\n      - 1\n"
    where, what, hint = problems(text)[0]
    assert where == "e.yaml:7: fabric.topology.torus.dims[1]"
    assert "1 is out of range" in what and "from 2" in hint


def test_scale_up_of_a_ring():
    text = "name: x\nfabric:\n  topology: {ring: {nodes: 4}}\n  scale_up: {}\n"
    assert problems(text)[0][:2] == (
        "e.yaml:4: fabric.scale_up",
        "hosts of this ring have one GPU each, and so no scale-up domain",
    )


def test_everything_wrong_is_said_in_the_order_of_the_file():
    text = (
        GOOD.replace("400Gbps", "400Gb").replace("mtu: 4096", "mtu: 1").replace("rail:", "rial:").replace("seed", "sed")
    )
    assert [where for where, _, _ in problems(text)] == [
        "e.yaml:2: sed",
        "e.yaml:6: fabric.topology.rial",
        "e.yaml:10: fabric.cable.rate",
        "e.yaml:13: fabric.nic.mtu",
    ]


def test_a_thousand_mistakes_are_not_all_said():
    flows = "\n".join("      - {from: 0, to: 99, size: 1B}" for _ in range(1000))
    assert len(problems(f"{GOOD}{flows}\n")) == 20


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "e.yaml", "the file is empty"),
        ("# only a remark\n", "e.yaml", "the file is empty"),
        ("- 1\n", "e.yaml:1", "an experiment is a mapping"),
        ("just text", "e.yaml:1", "an experiment is a mapping"),
        ("a: [1\nb: 2\n", "e.yaml:2", "not YAML"),
        ("a: 1\n\tb: 2\n", "e.yaml:2", "not YAML"),
        ("a: 1\n--- \nb: 2\n", "e.yaml:2", "not YAML"),
        ("a: *nowhere\n", "e.yaml:1", "not YAML"),
        ("a: \x01\n", "e.yaml", "not YAML"),
        ("[\n" * 1500, "e.yaml", "nested too deeply"),
        ("a: &a\n  - *a\n", "e.yaml:1", "nested too deeply"),
        ("? [a]\n: 1\n", "e.yaml:1", "a key must be a word"),
        ("name: x\nfabric:\n", "e.yaml:2: fabric", "there is nothing here"),
        ("name: x\n", "e.yaml:1: fabric", "key 'fabric' is missing"),
        ("name: x\nfabric: {topology: {star: {hosts:4}}}\n", "e.yaml:2: fabric.topology.star", "'hosts:4' is one word"),
        ("name: x\nfabric: {topology: rail}\n", "e.yaml:2: fabric.topology", "a topology is one kind"),
        ("name: x\nfabric: {topology: {rail: 3}}\n", "e.yaml:2: fabric.topology.rail", "the parameters of rail"),
    ],
)
def test_what_is_no_experiment(text, where, what):
    found = problems(text)[0]
    assert found[0].startswith(where)
    assert what in found[1]


def test_aliases_cannot_blow_up(monkeypatch):
    monkeypatch.setattr(yaml_reader, "MAX_VALUES", 10_000)
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for previous, letter in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{letter}: &{letter} [{', '.join([f'*{previous}'] * 10)}]\n"
    assert "more than" in problems(bomb)[0][1]


def test_of_unknown_keys_by_the_thousand_only_the_first_are_thought_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for what each may mean would take minutes; what else is wrong is still said."""
    asked: list[str] = []
    monkeypatch.setattr(explain, "unknown_key", lambda key, allowed: (asked.append(key) or f"unknown key {key!r}", ""))
    text = GOOD.replace("seed: 1", "seed: -1") + "".join(f"nmae{k}: 1\n" for k in range(5000))
    found = [what for _, what, _ in problems(text)]
    assert 0 < len(asked) <= 100
    assert "unknown key 'nmae0'" in found and "-1 is out of bounds" in found


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: GOOD[: len(b) * 3] + b.decode("latin-1")))
def test_no_text_gives_anything_but_an_input_error(text):
    try:
        loads(text)
    except InputError as error:
        assert error.what and error.where


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3))


@settings(deadline=None, max_examples=60)
@given(data=st.data(), value=VALUES)
def test_no_value_in_any_place_gives_anything_but_an_input_error(data, value):
    document = loads(GOOD).resolved()
    node, paths = document, []
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        paths.append((node, key))
        node = node[key]
    parent, key = data.draw(st.sampled_from(paths))
    parent[key] = value
    try:
        loads(json.dumps(document, allow_nan=True).replace("NaN", ".nan").replace("Infinity", ".inf"))
    except InputError as error:
        assert error.what and error.where


def test_a_misspelt_key_is_said_once_and_not_as_missing_too() -> None:
    with pytest.raises(InputError) as told:
        loads("name: x\nfabric:\n  topolgy: {ring: {nodes: 4}}\n")
    assert (told.value.what, told.value.where) == ("unknown key 'topolgy'", "experiment:3: fabric.topolgy")
    assert told.value.hint.startswith("did you mean 'topology'?") and not told.value.also


def test_a_list_where_one_value_stands_is_a_sweep_of_it():
    text = "name: x\nfabric: {topology: {star: {hosts: 2}}}\nworkload:\n- {collective: all_reduce, algorithm: [ring]}\n"
    (where, what, hint), *_ = problems(text)
    assert where == "e.yaml:4: workload[0].algorithm" and what == "['ring'] is not a text"
    assert hint == "one value; or each in a run of its own, by sweep: {workload.0.algorithm: ['ring']}"


def test_what_a_missing_key_says_is_told():
    (_, what, hint), *_ = problems("name: x\nfabric: {topology: {star: {hosts: 2}}}\nworkload: [{torch: a.py}]\n")
    assert what == "key 'gpu' is missing" and hint.startswith("it says: what computes: ")
    assert hint.endswith("allowed keys: transport, torch, ranks, args, gpu, algorithm, traffic_class")


@pytest.mark.parametrize("text", ["cable:a-b:\n", "{cable:a-b: }", "{'a:b'}", "{a:b: {x: 1}}", "{a, b}", "x: a:b"])
def test_a_key_with_a_colon_in_it_is_one_where_a_colon_follows(text):
    yaml_reader.read(text)
