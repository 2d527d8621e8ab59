"""Keys that go in step, and points drawn from a space."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.base.units import SIZE
from testbed.experiment import loads
from testbed.run.sweep import count, point, points
from tests.parts.incast_experiment import INCAST

BUFFER, KMIN = "fabric.switch.buffer", "fabric.switch.reserve"


def test_keys_that_go_in_step_are_columns_of_their_own() -> None:
    text = INCAST + f"sweep: {{zip: {{seed: [1, 2], {BUFFER}: [300KB, 400KB]}}, transport.cc: [none, dcqcn]}}\n"
    experiment = loads(text)
    made = list(points(experiment))
    assert count(experiment) == len(made) == 4
    assert [p.values for p in made] == [
        {"seed": seed, BUFFER: size, "transport.cc": cc}
        for seed, size in ((1, "300KB"), (2, "400KB")) for cc in ("none", "dcqcn")
    ]  # fmt: skip
    assert [(p.experiment.seed, p.experiment.fabric.switch.buffer) for p in made[1:3]] == [(1, 300_000), (2, 400_000)]
    assert [point(experiment, k)[0] for k in range(4)] == [p.values for p in made]


@given(st.integers(1, 40), st.integers(0, 5))
def test_a_latin_sample_has_one_value_in_each_part_of_each_span(number: int, seed: int) -> None:
    """What makes a sample one of McKay, Beckman and Conover's (1979)."""
    sample = f"{{latin: {number}, seed: {seed}, over: {{{BUFFER}: 1MB..2MB, seed: 0..1000000}}}}"
    rows = [entry.values for axis in loads(INCAST + f"sweep: {{sample: {sample}}}\n").axes() for entry in axis.entries]
    assert len(rows) == number
    sizes = [(float(SIZE.parse(row[BUFFER])) - 1e6) / 1e6 for row in rows]
    seeds = [(row["seed"] + 0.5) / 1_000_001 for row in rows]
    for shares in (sizes, seeds):
        near = [sorted({int((share + d) * number) for d in (-0.0006, 0.0006)}) for share in shares]  # four digits
        assert all(any(part in some for some in near) for part in range(number))


def test_a_sample_is_the_same_each_time_and_another_with_another_seed() -> None:
    def drawn(seed: int) -> list[dict[str, object]]:
        sample = f"{{random: 5, over: {{{BUFFER}: 1MB..2MB log, transport.cc: [none, dcqcn]}}}}"
        return [p.values for p in points(loads(INCAST + f"seed: {seed}\nsweep: {{sample: {sample}}}\n"))]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {row["transport.cc"] for row in drawn(1)} <= {"none", "dcqcn"}


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("{zip: {seed: [1, 2], transport.cc: [none]}}", "1 values, and seed has 2"),
        ("{zip: {seed: 1}}", "no list of values"),
        ("{zip: {}}", "nothing to sweep"),
        ("{zip: {sed: [1]}}", "sweep.zip.sed"),
        ("{zip: {transport.cc: [none, fast]}}", "sweep.zip.transport.cc[1]"),
        ("{sample: {latin: 3}}", "over what"),
        ("{sample: {latin: 3, random: 3, over: {seed: 1..2}}}", "how many points"),
        ("{sample: {latin: 0, over: {seed: 1..2}}}", "not a number of points"),
        ("{sample: {latin: 3, over: {seed: 2..1}}}", "not below"),
        ("{sample: {latin: 3, over: {seed: 1..2}, sed: 1}}", "'sed' is not known"),
        ("{sample: {latin: 3, seed: x, over: {seed: 1..2}}}", "not a seed"),
        ("{sample: {latin: 3, over: {sed: 1..2}}}", "sweep.sample.over.sed"),
    ],
)
def test_wrong_ones_are_said_before_anything_runs(sweep: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        list(points(loads(INCAST + f"sweep: {sweep}\n")))
    assert said in error.value.what + error.value.where + error.value.hint
