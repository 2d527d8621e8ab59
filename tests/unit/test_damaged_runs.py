"""Run folders that are not whole: every reader says which file is wrong, and where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import results
from results import StoreError
from testbed.base import yaml_reader
from tests.parts.command_line import Cli
from tests.parts.command_line import testbed as testbed
from tests.parts.stored_runs import stored_sweep

DROPPED = object()

READERS = (("show", "run"), ("show", "run", "--json"), ("show", "counters", "qps"), ("plot", "times"), ("plot", "fct"),
           ("plot", "sweep"), ("plot", "rate"))  # fmt: skip
DAMAGES: dict[str, Any] = {
    "no experiment": lambda f: (f / "experiment.yaml").unlink(),
    "an empty experiment": lambda f: (f / "experiment.yaml").write_text(""),
    "half an experiment": lambda f: (f / "experiment.yaml").write_text("name: [a"),
    "no steps": lambda f: (f / "steps.json").unlink(),
    "an empty state": lambda f: (f / "state.json").write_text(""),
    "half a state": lambda f: (f / "state.json").write_text('{"state":'),
    "a list for an object": lambda f: (f / "summary.json").write_text("[1, 2]"),
    "no bytes of text": lambda f: (f / "fidelity.json").write_bytes(b"\xff\xfe"),
    "half a frame": lambda f: (f / "metrics/results.parquet").write_bytes(b"PAR1half"),
    "no frames": lambda f: [p.unlink() for p in (f / "metrics").iterdir()],
    "half a sweep": lambda f: (f / "sweep.json").write_text('{"name": "x", "keys": ["a"], "points": [{}]}'),
    "an empty sweep": lambda f: (f / "sweep.json").write_text(""),
    "a sweep whose points are gone": lambda f: (f / "sweep.json").write_text(
        '{"name": "x", "keys": ["a"], "points": [{"a": 1, "run": "point-0"}, {"a": [2], "error": "e"}]}'
    ),
}


def test_whatever_is_damaged_in_a_folder_is_named(testbed: Cli) -> None:
    assert testbed("run", "small.yaml", "--out", "here").code == 0
    for number, (what, damage) in enumerate(DAMAGES.items()):
        folder = Path(f"damaged-{number}")
        shutil.copytree("here", folder)
        damage(folder)
        said = []
        for verb, *words in READERS:
            words = [words[0], str(folder), *words[1:]] if verb == "show" else [str(folder), words[0], "-o", "p.svg"]
            done = testbed(verb, *words)
            assert done.code in (0, 2), f"{what}, {verb} {words}: {done.err}"
            assert "Traceback" not in done.err and "internal error" not in done.out
            said.append(done.err + done.out)
        if what.startswith(("half", "an empty")):
            assert any("this file is damaged" in one for one in said), what


WRONG = [
    ("state.json", "state", 7),
    ("state.json", "error", "none"),
    ("state.json", "ended", "x"),
    ("fidelity.json", "verdict", "perfect"),
    ("fidelity.json", "reasons", None),
    ("fidelity.json", "advice", DROPPED),
    ("summary.json", "counters.drops", "x"),
    ("summary.json", "counters.drops.buffer", "3"),
    ("steps.json", "steps", "x"),
    ("steps.json", "steps.0", None),
    ("steps.json", "steps.0.kind", DROPPED),
    ("steps.json", "steps.0.ranks", "3"),
    ("steps.json", "steps.0.busbw_factor", "1.5"),
    ("steps.json", "steps.0.dtype", DROPPED),
    ("counters.json", "ports.0.node", DROPPED),
    ("counters.json", "ports.0.tx_bytes", "many"),
    ("counters.json", "drops", {}),
    ("counters.json", "time_ns", "x"),
    ("experiment.yaml", "fabric.topology", {}),
    ("experiment.yaml", "workload", {}),
    ("measurements.jsonl", "0.start_ns", "0"),
    ("measurements.jsonl", "0.rank", None),
    ("measurements.jsonl", "0.collective", DROPPED),
    ("measurements.jsonl", "0.wrong", DROPPED),
    ("sweep.json", "keys", "x"),
    ("sweep.json", "points.0.run", 7),
]


@pytest.mark.parametrize(("name", "key", "value"), WRONG)
def test_a_wrong_value_within_is_named_with_its_file_and_key(
    testbed: Cli, name: str, key: str, value: object, tmp_path: Path
) -> None:
    file, steps = Path("bad") / name, key.split(".")
    if name == "sweep.json":
        stored_sweep(Path("good"), [({"seed": 1}, 1000.0), ({"seed": 2}, 2000.0)])
    else:
        assert testbed("run", "small.yaml", "--out", "good").code == 0
    shutil.copytree("good", "bad")
    text = file.read_text()
    lines = name.endswith(".jsonl")
    told = [json.loads(line) for line in text.splitlines()] if lines else yaml_reader.read(text).data
    if lines:
        shutil.rmtree("bad/metrics")  # else nobody reads them
    at = told
    for step in steps[:-1]:
        at = at[int(step) if isinstance(at, list) else step]
    last = int(steps[-1]) if isinstance(at, list) else steps[-1]
    if value is DROPPED:
        del at[last]
    else:
        at[last] = value
    file.write_text("\n".join(map(json.dumps, told)) + "\n" if lines else json.dumps(told))  # which is YAML, too
    inner = ".".join(steps[1:] if lines else steps)
    what = f"this file is damaged: {inner} is {'missing' if value is DROPPED else f'{value!r}'}"
    where = f"bad/{name}:1" if lines else f"bad/{name}"
    said = []
    for line in ("show run bad", "show run bad --json", "show counters bad ports", "report bad -o bad.html",
                 "compare good bad", "plot bad times -o bad.svg"):  # fmt: skip
        done = testbed(*line.split())
        assert done.code in (0, 2) and "Traceback" not in done.err and "internal error" not in done.out, done.err
        said.append(f"error: {what}" in done.err and f"at: {where}" in done.err)
    assert any(said), done.err
    with pytest.raises(StoreError) as wrong:
        run = results.load("bad")
        for part in ("state", "experiment", "fidelity", "summary", "figures", "counters", "results"):
            getattr(run, part)
    assert (wrong.value.what, wrong.value.where) == (what, where)
