"""Sums and copies in the switch of a scale-up domain: against counts, and against what others have published."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.predict import predict

MIB = 1 << 20
RAIL = "topology: {rail: {servers: 2, gpus: 8}}"


def experiment(step: str, fabric: str = RAIL) -> str:
    return f"name: x\ncosts: {{reduce_by: channel}}\nfabric: {{{fabric}}}\nworkload: [{{{step}}}]"


def predicted_us(collective: str, algorithm: str, ranks: int, size: int, more: str = "") -> float:
    step = f"collective: {collective}, algorithm: {algorithm}, ranks: {list(range(ranks))}, sizes: [{size}B]{more}"
    (figure,) = predict(loads(experiment(step))).figures
    return figure.time_ns / 1000


def test_an_all_reduce_carries_once_and_an_nth_as_measured() -> None:
    """Of V bytes each GPU of n sends its shares of all parts, and its own part's sums to all: V (1 + 1/n).

    Published for 5 to 8 H100 with NVLink of 450 GB/s (issue 1455 of NCCL: algbw of all_reduce_perf, NCCL_ALGO=NVLS):
    258, 265, 270 and 273 GB/s.  With that count they are one rate of the links, within 1 %, and so are ours.
    """
    published = {5: 258, 6: 265, 7: 270, 8: 273}
    rates = {n: algbw * (1 + 1 / n) for n, algbw in published.items()}
    assert max(rates.values()) / min(rates.values()) < 1.01
    ours = {n: 256 * MIB / predicted_us("all_reduce", "nvls", n, 256 * MIB) * (1 + 1 / n) / 1000 for n in published}
    assert max(ours.values()) / min(ours.values()) < 1.003
    assert ours[8] == pytest.approx(450 * 4096 / (4096 + 106) * (9 / (9 + 8 * 106 / 4202)), rel=0.003)  # and loads


@pytest.mark.parametrize(
    ("collective", "carried"),
    [("reduce_scatter", 8 / 7 * (1 + 106 / 8 / 4202)), ("all_gather", 8 / 7), ("broadcast", 1)],
)
def test_the_halves_carry_the_own_part_too(collective: str, carried: float) -> None:
    """So they lose against rings, by what NCCL's model takes off (`(ppn - 1) / ppn`, graph/tuning.cc), and headers."""
    bound = (1 if collective == "broadcast" else 7 / 8) * 256 * MIB / 450e3
    took = predicted_us(collective, "nvls", 8, 256 * MIB)
    assert took / bound == pytest.approx(carried * 4202 / 4096, rel=0.005)


def test_auto_takes_it_where_it_is_faster() -> None:
    for collective, size, taken in (
        ("all_reduce", MIB, "nvls"),
        ("all_gather", 1024, "nvls"),
        ("all_gather", 64 * MIB, "swing"),
    ):
        step = f"collective: {collective}, algorithm: auto, offloads: true, ranks: [8, 9, 10, 11], sizes: [{size}B]"
        (figure,) = predict(loads(experiment(step))).figures
        assert figure.algorithm == f"{taken} (auto)"


def test_groups_of_a_training_step_have_it_in_their_servers() -> None:
    """All tensor groups at once, each in its own domain: their all-reduces of 1 MiB are what one takes by itself."""
    step = (
        "train: {model: {layers: 1, hidden: 512, heads: 8, seq: 512, vocab: 0}, gpu: {preset: h100}, "
        "batch: {micro: 2}, parallel: {tensor: 8, data: 2}, place: {tensor: scale_up, data: rail}, "
        "groups: {tensor: {algorithm: %s}}}"
    )
    (nvls,), (ring,) = (predict(loads(experiment(step % name))).figures for name in ("nvls", "ring"))
    alone = [predicted_us("all_reduce", name, 8, MIB, ", dtype: bfloat16") for name in ("nvls", "ring")]
    assert ring.time_ns - nvls.time_ns == pytest.approx(4 * 1000 * (alone[1] - alone[0]), rel=0.01)


@pytest.mark.parametrize(
    ("ranks", "fabric"), [("[0, 8]", RAIL), ("[0, 1]", "topology: {star: {hosts: 4}}"), ("null", RAIL)]
)
def test_ranks_share_a_domain(ranks: str, fabric: str) -> None:
    with pytest.raises(InputError, match="these ranks are not in one scale-up domain") as mistake:
        loads(experiment(f"collective: all_reduce, algorithm: nvls, ranks: {ranks}, sizes: [4B]", fabric))
    assert "GPUs of one server" in str(mistake.value.hint)
