"""A global batch: so many micro-batches as Megatron-LM makes of it, or it is refused.

The rule is that of Megatron-LM's megatron/core/num_microbatches_calculator.py for a batch that stays as large as it is
(rampup_batch_size None, decrease_batch_size_if_needed False): the global batch must be divisible by micro batch size
times data parallel size, and there is at least one micro-batch. Here it is written as what it means: every sequence of
the batch is in exactly one micro-batch of one pipeline, and all pipelines have as many.
"""

from __future__ import annotations

import json

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.overrides import override
from testbed.predict.predict import predict
from testbed.run.sweep import points

FILE = """name: t
fabric:
  topology: {star: {hosts: RANKS}}
workload:
- train:
    model: {layers: 4, hidden: 64, heads: 4, seq: 16}
    gpu: {flops: 100T}
    batch: BATCH
    parallel: {data: DATA, pipeline: PIPELINE}
"""


def text(batch: str, data: int = 2, pipeline: int = 1) -> str:
    values = {"RANKS": data * pipeline, "BATCH": batch, "DATA": data, "PIPELINE": pipeline}
    made = FILE
    for key, value in values.items():
        made = made.replace(key, str(value))
    return made


def micro_batches(sequences: int, micro: int, data: int) -> int | None:
    """Deals micro-batches out to pipelines in turn until no sequence is left; None if that does not come out even."""
    dealt = [0] * data
    while sequences >= micro * data:
        dealt = [count + 1 for count in dealt]
        sequences -= micro * data
    return dealt[0] if sequences == 0 and dealt[0] else None


@pytest.mark.parametrize("data", [2, 3, 4])
@pytest.mark.parametrize("micro", [1, 2, 3, 4])
def test_a_global_batch_is_as_many_micro_batches_as_megatron_makes_of_it(micro: int, data: int) -> None:
    for sequences in (1, micro, micro * data - 1, micro * data, 3 * micro * data, 5 * micro * data + 1, 24):
        written = text(f"{{micro: {micro}, global: {sequences}}}", data)
        if (count := micro_batches(sequences, micro, data)) is None:
            with pytest.raises(InputError, match=f"{sequences} sequences cannot be divided by micro {micro} x data"):
                loads(written)
            continue
        experiment = loads(written)
        trained = experiment.workload[0].training()
        assert trained and (trained.count, trained.step_tokens) == (count, sequences * 16)
        assert experiment.resolved()["workload"][0]["train"]["batch"] == {
            "micro": micro, "count": count, "global": sequences,
        }  # fmt: skip
        assert loads(json.dumps(experiment.resolved())) == experiment


def test_it_takes_what_as_many_micro_batches_take() -> None:
    times = [
        [one.time_ns for one in predict(loads(text(batch, 2, 2))).figures]
        for batch in ("{micro: 2, global: 16}", "{micro: 2, count: 4}", "{micro: 2, count: 3}")
    ]
    assert times[0] == times[1] != times[2]


def test_it_follows_a_plan_that_changes() -> None:
    swept = loads(
        text("{global: 8}", 4)
        + """sweep:
  plan:
    data: {}
    both: {workload.0.train.parallel: {data: 2, pipeline: 2}}
    pipeline: {workload.0.train.parallel: {pipeline: 4}}
"""
    )
    counts = [one.experiment.workload[0].training().count for one in points(swept)]  # type: ignore[union-attr]
    assert counts == [2, 4, 8]
    changed = override(swept, ["workload.0.train.batch.global=12", "workload.0.train.batch.micro=3"])
    assert changed.workload[0].training().count == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("batch", "more", "key", "what", "hint"),
    [
        ("{micro: 2, global: 10}", "", "batch.global", "10 sequences cannot be divided by micro 2 x data 2", "of 4"),
        ("{count: 3, global: 8}", "", "batch.count", "3 micro-batches of micro 1 x data 2 are no", "it is 4"),
        ("{global: 10000}", "", "batch.global", "is 5000 micro-batches of micro 1 x data 2", "4096 micro-batches"),
        ("{global: 0}", "", "batch.global", "0 is out of bounds", "at least 1"),
        ("{global: 1.5}", "", "batch.global", "1.5 is not a whole number", "such as 4"),
        (
            "{global: 6}", "    schedule: {interleaved: 2}\n", "batch.global", "3 is no multiple of",
            "global / (micro 1 x data 2) is the number of micro-batches: a multiple of 2",
        ),
    ],
)  # fmt: skip
def test_what_does_not_come_out_even_is_said_of_its_line(batch: str, more: str, key: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        loads(text(batch, 2, 2) + more, "t.yaml")
    assert f"t.yaml:8: workload[0].train.{key}" in str(error.value.where)
    assert what in error.value.what and hint in error.value.hint
