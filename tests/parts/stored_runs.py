"""Run folders made without running anything: their experiment, operations and counters as given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results.store.folder import RunFolder
from results.store.sweeps import SWEEP
from testbed.base.yaml_writer import dump

EXPERIMENT: dict[str, Any] = {
    "name": "some",
    "seed": 1,
    "clock": "virtual",
    "fabric": {"topology": {"star": {"hosts": 4}}, "cable": {"rate": "400Gbps", "delay": "1us"}},
    "transport": {"cc": "none"},
    "workload": [{"collective": "all_reduce", "algorithm": "ring", "sizes": ["1MiB"]}],
}


def experiment(**changes: Any) -> dict[str, Any]:
    """EXPERIMENT with other values, by path with `__` for dots: `fabric__cable__rate="100Gbps"`."""
    made: dict[str, Any] = json.loads(json.dumps(EXPERIMENT))
    for path, value in changes.items():
        *above, last = path.split("__")
        inner = made
        for step in above:
            inner = inner[step]
        inner[last] = value
    return made


def operation(time_ns: float, size: int = 1 << 20, iteration: int = 0) -> dict[str, Any]:
    """An all-reduce among four."""
    return {
        "step": 0, "kind": "collective", "collective": "all_reduce", "algorithm": "ring", "dtype": "float32",
        "op": "sum", "ranks": 4, "size_bytes": size, "iteration": iteration, "start_ns": 0.0, "end_ns": time_ns,
        "time_ns": time_ns, "algbw_Bps": size / time_ns * 1e9, "busbw_Bps": 1.5 * size / time_ns * 1e9, "wrong": 0,
    }  # fmt: skip


def stored(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any] = EXPERIMENT,
    frames: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    **summary: Any,
) -> Path:
    """A complete run in `folder`."""
    made = RunFolder.create(str(about["name"]), folder)
    with (made.path / "experiment.yaml").open("w") as file:
        dump(dict(about), file)
    made.write_frame("results", rows)
    for name, of in (frames or {}).items():
        made.write_frame(name, of)
    counters = {"drops": {}, "ecn_marked": 0, "pause_rx": 0, "retransmitted": 0}
    made.write_json("summary.json", {"results": list(rows), "counters": counters, "metrics_sha256": "0", **summary})
    made.write_json("fidelity.json", {"verdict": "exact", "reasons": [], "advice": []})
    made.write_json("counters.json", {})
    step = {"kind": "collective", "collective": "all_reduce", "algorithm": "ring", "dtype": "float32", "op": "sum"}
    made.write_json("steps.json", {"ranks": 4, "steps": [{**step, "ranks": 4, "busbw_factor": 1.5}]})
    return made.complete()


def stored_sweep(folder: Path, points: Sequence[tuple[Mapping[str, Any], float | str]], **base: Any) -> Path:
    """A sweep over the keys of its points (`__` for dots), each with its all-reduce's time in ns, or its error."""
    keys = [path.replace("__", ".") for path in points[0][0]]
    rows: list[dict[str, Any]] = []
    folder.mkdir()
    for k, (values, time_ns) in enumerate(points):
        row = dict(zip(keys, values.values(), strict=True))
        if isinstance(time_ns, str):
            rows.append({**row, "error": time_ns})
            continue
        stored(folder / f"point-{k}", [operation(time_ns)], experiment(**base, **values), metrics_sha256=str(time_ns))
        rows.append({**row, "run": f"point-{k}"})
    with (folder / "experiment.yaml").open("w") as file:
        dump(experiment(**base), file)
    (folder / "state.json").write_text('{"state": "complete"}')
    (folder / SWEEP).write_text(json.dumps({"name": "some", "keys": keys, "points": rows}))
    return folder
