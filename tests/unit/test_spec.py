"""The experiment file: what it means, how it is written out and read (test_spec_mistakes: what is wrong in it)."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.base.units import format_rate, format_size, format_time
from testbed.experiment import Experiment, load, loads
from tests.pages import experiment as page
from tests.parts.experiment_text import GOOD, problems

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "experiments" / "quickstart.yaml"

# --- what it means ---------------------------------------------------------


def test_quickstart_means_what_it_says():
    e = load(QUICKSTART)
    assert (e.name, e.seed, e.clock.mode) == ("quickstart", 1, "virtual")
    assert e.fabric.topology.kind == "rail"
    assert e.fabric.topology.params == {"servers": 4, "gpus": 2, "spines": 1}
    assert e.fabric.cable.rate == 400_000_000_000 and e.fabric.cable.delay == 500.0
    assert e.fabric.switch.buffer == 32_000_000
    assert e.fabric.scale_up is not None and e.fabric.scale_up.rate == 3_600_000_000_000
    (step,) = e.workload
    assert step.kind == "collective"
    assert step.sizes == [1 << 10, 64 << 10, 1 << 20, 16 << 20]
    assert (step.algorithm, step.op, step.dtype, step.iterations) == ("ring", "sum", "float32", 3)
    assert len(e.build_fabric().nics) == 8


def test_defaults():
    e = loads("name: x\nfabric: {topology: {ring: {nodes: 4}}}")
    assert e.seed == 1 and e.clock.mode == "virtual" and e.workload == [] and e.capture == []
    assert (e.fabric.nic.mtu, e.fabric.nic.ack_every, e.fabric.nic.retry) == (4096, 16, 7)
    assert (e.fabric.nic.timeout, e.fabric.nic.tx_buffer) == (None, 131072)
    assert e.fabric.scale_up is None
    assert (e.control.routing.name, e.control.reaction) == ("ecmp", 1e6)
    assert (e.costs.post, e.costs.reduce, e.costs.wake) == (100.0, 800_000_000_000, 0.0)
    assert e.workers.cpus is None and e.workers.image is None


def test_flow_keys():
    (flow,) = loads(GOOD).workload[1].flows
    assert (flow.from_, flow.to, flow.size, flow.start) == (0, 3, 10_000_000, 0.0)


@pytest.mark.parametrize(
    ("clock", "mode", "dilation"),
    [
        ("virtual", "virtual", None),
        ("real", "real", None),
        ("{real: {}}", "real", None),
        ("{real: {dilation: auto}}", "real", None),
        ("{real: {dilation: 10000}}", "real", 10000),
    ],
)
def test_clocks(clock, mode, dilation):
    e = loads(GOOD.replace("clock: virtual", f"clock: {clock}"))
    assert (e.clock.mode, e.clock.dilation) == (mode, dilation)
    assert Experiment.model_validate(e.resolved()).clock == e.clock


def test_scale_up_is_a_rails_default_and_can_be_left_off():
    rail = "name: x\nfabric: {topology: {rail: {servers: 2, gpus: 2}}%s}"
    assert len(loads(rail % "").build_fabric().scale_up) == 2
    without = loads(rail % ", scale_up: null")
    assert without.build_fabric().scale_up == ()
    assert Experiment.model_validate(without.resolved()) == without


def test_yaml_words_are_words():
    where, what, _ = problems(GOOD.replace("name: probe", "name: probe\non: yes"))[0]
    assert (where, what) == ("e.yaml:2: on", "unknown key 'on'")


def test_defaults_of_a_collective_are_the_registrys():
    def step(text: str):
        return loads(
            GOOD.replace("collective: all_reduce", f"collective: {text}").replace("[0, 1, 2]", "[0, 1]")
        ).workload[0]

    assert (step("all_reduce").algorithm, step("all_reduce").op) == ("ring", "sum")
    assert (step("all_gather").algorithm, step("all_gather").op) == ("ring", None)
    assert step("ping_pong").algorithm == "write"
    assert step("ping_pong\n    algorithm: send").algorithm == "send"


def test_image_path_starts_at_the_file(tmp_path):
    (tmp_path / "worker.tar").write_bytes(b"x")
    file = tmp_path / "e.yaml"
    file.write_text(GOOD + "workers: {image: worker.tar}\n")
    assert load(file).workers.image == str(tmp_path / "worker.tar")


# --- resolved --------------------------------------------------------------


def test_resolved_writes_everything_out_and_loads_again():
    e = loads(GOOD)
    resolved = e.resolved()
    assert resolved["fabric"]["topology"] == {"rail": {"servers": 4, "gpus": 2, "spines": 1}}
    assert resolved["fabric"]["nic"]["pcie"] == {"rate": "512Gbps", "latency": "500ns"}
    assert resolved["workload"][1]["flows"][0] == {
        "from": 0,
        "to": 3,
        "size": "10MB",
        "start": "0ns",
        "class": None,
        "transport": None,
    }
    assert resolved["clock"] == "virtual"
    assert Experiment.model_validate(json.loads(json.dumps(resolved))) == e
    assert loads(json.dumps(resolved)) == e  # JSON is YAML


TIMES = st.floats(0, 1e12, allow_subnormal=False).filter(lambda t: t == 0 or t > 1e-6)


@settings(deadline=None, max_examples=25)
@given(
    rate=st.integers(1, 10**14),
    delay=TIMES,
    mtu=st.integers(256, 9000),
    sizes=st.lists(st.integers(1, 1 << 28).map(lambda n: 4 * n), min_size=1, max_size=5),
    start=TIMES,
    seed=st.integers(0, 2**63 - 1),
    dims=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    dilation=st.none() | st.integers(1, 10**9),
)
def test_any_experiment_survives_being_resolved(rate, delay, mtu, sizes, start, seed, dims, dilation):
    written = {
        "name": "x",
        "seed": seed,
        "clock": {"real": {"dilation": dilation or "auto"}},
        "fabric": {
            "topology": {"torus": {"dims": dims}},
            "cable": {"rate": format_rate(rate), "delay": format_time(delay)},
            "nic": {"mtu": mtu},
        },
        "workload": [
            {"collective": "all_reduce", "sizes": [format_size(s) for s in sizes]},
            {"flows": [{"from": 0, "to": 1, "size": "1B", "start": format_time(start)}]},
        ],
    }
    e = loads(json.dumps(written))
    assert (e.fabric.cable.rate, e.fabric.cable.delay, e.workload[0].sizes) == (rate, delay, sizes)
    assert loads(json.dumps(e.resolved())) == e


# --- files -----------------------------------------------------------------


def test_files_that_cannot_be_read(tmp_path):
    def refusal(path) -> InputError:
        with pytest.raises(InputError) as caught:
            load(path)
        return caught.value

    missing = refusal(tmp_path / "no.yaml")
    assert (missing.what, missing.where) == ("there is no such file", str(tmp_path / "no.yaml"))
    assert "folder" in refusal(tmp_path).what
    assert "cannot be read" in refusal(tmp_path / ("x" * 300)).what
    assert "cannot be read" in refusal("a\0b").what
    (tmp_path / "latin.yaml").write_bytes(b"name: x\n# caf\xe9\n")
    latin = refusal(tmp_path / "latin.yaml")
    assert (latin.what, latin.where) == ("cannot be read: not UTF-8 text", f"{tmp_path}/latin.yaml:2")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (5 << 20))
    assert "larger than" in refusal(tmp_path / "huge.yaml").what


def test_a_file_without_permission(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    secret = tmp_path / "secret.yaml"
    secret.write_text(GOOD)
    secret.chmod(0o000)
    child = os.fork()
    if child == 0:
        os.seteuid(65534)
        try:
            load(secret)
        except InputError as error:
            os._exit(0 if "cannot be read: Permission denied" in error.what else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_windows_files(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(file) == loads(GOOD)
    file.write_bytes(GOOD.replace("400Gbps", "400Gb").replace("\n", "\r\n").encode())
    with pytest.raises(InputError) as caught:
        load(file)
    assert caught.value.where == f"{file}:10: fabric.cable.rate"


# --- what is written about it ----------------------------------------------


def test_schema_file_and_tables_are_those_of_the_models():
    how = "run python -m tests.pages.experiment"
    assert json.loads((ROOT / "docs" / "experiment.schema.json").read_text()) == page.schema(), how
    assert page.tables() in (ROOT / "docs" / "experiment.md").read_text(), how


def test_schema_knows_every_key():
    """Whatever the models write out is in the schema under its own name."""
    schema = page.schema()

    def properties(node: dict) -> dict:
        inner = [*node.get("anyOf", []), *node.get("oneOf", [])]
        if "$ref" in node:
            inner.append(schema["$defs"][node["$ref"].rpartition("/")[2]])
        return {k: v for choice in inner for k, v in properties(choice).items()} | node.get("properties", {})

    def walk(value, node: dict, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if not node.get("additionalProperties"):  # else its keys are the user's own
                    assert key in properties(node), f"{path}.{key}"
                    walk(inner, properties(node)[key], f"{path}.{key}")
        elif isinstance(value, list):
            for item in value:
                lists = [node, *node.get("anyOf", [])]
                walk(item, next((one["items"] for one in lists if "items" in one), {}), f"{path}[]")

    walk(loads(GOOD).resolved(), schema, "")


def test_examples_in_the_docs_are_experiments():
    page = (ROOT / "docs" / "experiment.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        loads(example)


def test_error_shown_in_the_docs_is_the_one_given():
    page = (ROOT / "docs" / "experiment.md").read_text()
    text = QUICKSTART.read_text().replace("400Gbps", "400Gb").replace("routing", "rooting")
    for where, what, hint in problems(text, "quickstart.yaml"):
        for part in (where, what, hint):
            assert part in page


def test_all_ready_experiments_are_good():
    for path in sorted((ROOT / "experiments").rglob("*.yaml")):
        load(path)
