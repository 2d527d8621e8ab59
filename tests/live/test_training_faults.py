"""A training step under every fault of the catalogue, in mid-step: it ends, or says which rank waits for whom in which
task; and each time it does the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.faults import CATALOGUE
from testbed.live.tenant import Tenant
from testbed.run.outcome import RunFailed
from testbed.run.run import run

STEP = "model: {layers: 2, hidden: 64, heads: 4, seq: 64, dtype: float32}, gpu: {preset: h100}, batch: {count: 2}, "
STEP += "parallel: {pipeline: 2, data: 2}"
TWO_STEPS = f"""
name: faulty
fabric:
  topology: {{clos: {{leaves: 2, spines: 2, hosts_per_leaf: 2}}}}
  switch: {{accelerator: {{}}}}
transport: {{cc: dcqcn}}
workers: {{memory: 128MiB, ranks_per_process: 4}}
workload:
- train: {{{STEP}}}
- train: {{{STEP}, groups: {{data: {{algorithm: in_network}}}}}}
"""
AT = "15us"
"""When the first step is half through."""
FATAL = ("qp_error", "worker_lost", "stalled", "deadlock")


class Standing:
    """A fabric that stays up from test to test; another one after a run whose verdict is not exact."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.renew()

    def renew(self) -> None:
        self._stack.close()
        self.lab = self._stack.enter_context(Lab.up(loads(TWO_STEPS)))


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    with ExitStack() as stack:
        yield Standing(stack)


def outcome(standing: Standing, folder: Path, fault: dict[str, Any] | None = None) -> tuple[Any, ...]:
    """What came out of a run on a fabric that stays up: its hash, or until what it went, and who waits for whom."""
    text = TWO_STEPS + (yaml.safe_dump({"inject": [fault]}) if fault else "")
    try:
        done = run(loads(text), folder, on=Tenant(standing.lab))
    except RunFailed as failed:
        events = [json.loads(line) for line in (failed.folder / "events.jsonl").read_text().splitlines()]
        first = next((e for e in events if e["event"] in FATAL), None)
        if first is None:
            assert "elements are wrong" in failed.what and "step 0" in failed.where
            return failed.what, failed.where
        assert re.search(r"rank \d waits for ranks? [\d, ]+ in task '.+' \((send|recv|all_reduce)", failed.what)
        return tuple(first.get(key) for key in ("event", "time_ns", "rank", "peer", "status", "reason"))
    if done.fidelity.verdict != "exact":  # it says itself that such runs may differ
        assert done.fidelity.verdict == "doubtful" and "controller left" in done.fidelity.reasons[0]
        standing.renew()
        return done.fidelity.reasons, [row["fallback"] for row in done.results]
    assert [row["wrong"] for row in done.results] == [0, 0]
    return done.metrics_sha256, [row["time_ns"] for row in done.results]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_step_ends_or_says_who_waits(name: str, standing: Standing, tmp_path: Path) -> None:
    fault = {"fault": name, "at": AT, **CATALOGUE[name].example}
    kind = CATALOGUE[name]
    if kind.only_real_clock or kind.only_on or kind.adaptive or kind.cable_credits or kind.grants or kind.trims:
        why = "real clock|is not for a clos|for switches|is for credits|with credit"
        with pytest.raises(InputError, match=why):
            outcome(standing, tmp_path / "run", fault)
        return
    first, second = (outcome(standing, tmp_path / str(k), fault) for k in range(2))
    assert first == second


def test_after_all_of_them_a_step_is_as_on_a_new_fabric(standing: Standing, tmp_path: Path) -> None:
    was = run(loads(TWO_STEPS), tmp_path / "new")
    assert outcome(standing, tmp_path / "run") == (was.metrics_sha256, [row["time_ns"] for row in was.results])
