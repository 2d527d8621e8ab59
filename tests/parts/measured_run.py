"""A run of some steps, checked, and its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.experiment import loads
from testbed.run.run import run


def measured(folder: Path, topology: str, steps: list[str]) -> list[dict[str, Any]]:
    """The results of a run of these steps, checked: right data, exact clock, nothing dropped."""
    lines = "\n".join(f"  - {step}" for step in steps)
    text = f"name: closed-form\nfabric: {{topology: {topology}}}\nworkers: {{memory: 2GiB}}\nworkload:\n{lines}\n"
    result = run(loads(text), folder / "run")
    summary: dict[str, Any] = json.loads((Path(result.folder) / "summary.json").read_text())
    assert summary["fidelity"]["verdict"] == "exact"
    assert summary["counters"]["drops"] == {}
    rows: list[dict[str, Any]] = summary["results"]
    assert {row["wrong"] for row in rows} == {0}
    return rows
