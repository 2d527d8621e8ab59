"""The memory that the checklist says a step of tasks registers is what its ranks do register."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from testbed.checklist.exchange import registered
from testbed.checklist.exchanges import exchanges
from testbed.experiment import loads
from testbed.plan.steps.plan import plan
from tests.parts import fake_run
from tests.parts.fake_fabric import FakeFabric
from workloads.parts.context import Context

MODEL = "{layers: 4, hidden: 64, heads: 4, ffn: 128, seq: 64, vocab: 128"


@pytest.mark.parametrize(
    "train",
    [
        f"model: {MODEL}}}, parallel: {{data: 8}}, batch: {{count: 2}}, buckets: 64KiB",
        f"model: {MODEL}}}, parallel: {{data: 8}}, shard: fsdp, batch: {{count: 2}}",
        f"model: {MODEL}}}, parallel: {{tensor: 2, data: 4, sequence: true}}, shard: zero1, buckets: 32KiB",
        f"model: {MODEL}, experts: 4}}, parallel: {{context: 2, data: 4, expert: 4}}, shard: zero1, buckets: 32KiB",
    ],
)
def test_what_groups_of_a_training_step_register(train: str, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = loads(
        "name: t\nfabric: {topology: {star: {hosts: 8}}}\nworkload:\n"
        f"  - train: {{gpu: {{preset: h100}}, groups: {{data: {{algorithm: ring}}}}, {train}}}\n"
    )
    region, own = Context.region, Counter[int]()

    def counted(self: Context, name: str, nbytes: int | None = None) -> Any:
        if name.startswith("group "):
            own[self.device.rank] += nbytes or 0
        return region(self, name, nbytes)

    monkeypatch.setattr(Context, "region", counted)
    fake = FakeFabric(8)
    its = plan(experiment)
    _, errors = fake_run.run(fake, {**its.told(), "costs": its.costs})
    assert (fake.error, errors) == (None, [])
    assert registered(exchanges(experiment)) == pytest.approx(own, rel=1e-3)  # but for what pieces are aligned by


def test_half_of_everything_registers_half() -> None:
    text = (
        "name: t\nfabric: {topology: {star: {hosts: 8}}}\nworkload:\n  - train: {gpu: {preset: h100}, shard: zero1,"
        " model: {layers: 4, hidden: 1024, heads: 8, seq: 1024, vocab: 0}, parallel: {data: 8}"
    )
    whole, half = (registered(exchanges(loads(text + rest))) for rest in ("}\n", ", scale: {by: 2}}\n"))
    assert half == pytest.approx({rank: nbytes / 2 for rank, nbytes in whole.items()}) and half[7] > 10 << 20
