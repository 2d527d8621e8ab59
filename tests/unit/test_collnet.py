"""Sums in scale-up domains, then in switches along rails: what each carries by count, and how near the time comes."""

from __future__ import annotations

from collections import Counter

import pytest

from testbed.experiment import loads
from testbed.predict import predict
from workloads.collectives.collnet import all_reduce, reduce_scatter, switches
from workloads.collectives.schedule import OUTPUT, VECTOR, Recv, Send, Shape, steps

MIB = 1 << 20


def predicted_us(servers: int, gpus: int, size: int, step: str, costs: str = "{reduce_by: channel}") -> float:
    return predicted(servers, gpus, f"{{collective: all_reduce, {step}, sizes: [{size}B]}}", costs)


def predicted(servers: int, gpus: int, step: str, costs: str = "{reduce_by: channel}") -> float:
    experiment = loads(
        f"name: x\ncosts: {costs}\nfabric: {{topology: {{rail: {{servers: {servers}, gpus: {gpus}}}}}, "
        f"switch: {{accelerator: {{}}}}}}\nworkload: [{step}]"
    )
    (figure,) = predict(experiment).figures
    return figure.time_ns / 1000


@pytest.mark.parametrize(("servers", "gpus"), [(2, 2), (4, 4), (3, 5)])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_every_element_goes_up_once_and_comes_down_once(servers: int, gpus: int, count: int) -> None:
    """In each server every element meets its owner gpus - 1 times, is sent to the switches once, and to all others."""
    shape = Shape(servers * gpus, count, 64, (servers, gpus))
    for server in range(servers):
        up, met, gotten = (Counter[int]() for _ in range(3))
        for gpu in range(gpus):
            for step in steps(all_reduce(shape, server * gpus + gpu)):
                elements = range(step.start, step.stop)  # type: ignore[union-attr]
                if isinstance(step, Send) and step.peer == switches(shape):
                    up.update(elements)
                elif isinstance(step, Recv) and step.into == VECTOR:
                    assert step.reduce and step.peer // gpus == server, "domains add up"
                    met.update(elements)
                elif isinstance(step, Recv):
                    assert step.into == OUTPUT
                    gotten.update(elements)
        for counted, times in ((up, 1), (met, gpus - 1), (gotten, gpus)):
            assert counted == Counter(dict.fromkeys(range(count), times))


@pytest.mark.parametrize(("servers", "gpus"), [(2, 2), (4, 4), (3, 5)])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_of_a_reduce_scatter_every_sum_comes_to_whose_it_is(servers: int, gpus: int, count: int) -> None:
    """On its rail, and nowhere else: rank i has elements i n/N to (i + 1) n/N, or one more of the first ones."""
    shape = Shape(servers * gpus, count, 64, (servers, gpus))
    ups = {server: Counter[int]() for server in range(servers)}
    for rank in range(shape.ranks):
        each, longer = divmod(count, shape.ranks)
        first = rank * each + min(rank, longer)
        gotten = Counter[int]()
        for step in steps(reduce_scatter(shape, rank)):
            elements = range(step.start, step.stop)  # type: ignore[union-attr]
            if isinstance(step, Send) and step.peer == switches(shape):
                ups[rank // gpus].update(elements)
            elif isinstance(step, Recv) and step.into == OUTPUT:
                assert step.peer == switches(shape)
                gotten.update(elements)
        assert gotten == Counter(range(first, first + each + (rank < longer)))
    assert all(up == Counter(range(count)) for up in ups.values())


def test_a_reduce_scatter_is_for_medium_sizes() -> None:
    """A NIC sends its whole share, where a ring of m servers keeps (m - 1)/m of it out: slower where bytes count.

    Of a share, 1130 bytes on the cable carry 1024; in a ring 4178 carry 4096.
    """
    step = "{collective: reduce_scatter, dtype: int32, algorithm: %s, sizes: [%s]}"
    large = [predicted(4, 4, step % (name, "64MiB"), "{reduce: 80Tbps}") for name in ("collnet_direct", "rails")]
    assert large[0] / large[1] == pytest.approx(4 / 3 * 1130 / 1024 / (4178 / 4096), rel=0.02)
    assert predicted(4, 4, step % ("collnet_direct", "1MiB")) < 0.7 * predicted(4, 4, step % ("rails", "1MiB"))


def test_a_task_takes_what_a_step_of_its_own_does() -> None:
    """Also of a training step, whose gradients are one all-reduce of float32 here."""
    alone = predicted(2, 4, "{collective: all_reduce, algorithm: collnet_direct, sizes: [1MiB], dtype: int32}")
    task = "{id: a, collective: all_reduce, algorithm: collnet_direct, group: dp, size: 1MiB, dtype: int32}"
    assert predicted(2, 4, f"tasks: {{groups: {{dp: [[0, 1, 2, 3, 4, 5, 6, 7]]}}, list: [{task}]}}") == alone
    train = (
        "train: {model: {layers: 1, hidden: 256, heads: 4, seq: 64, vocab: 0, dtype: float32}, gpu: {preset: h100}, "
        "parallel: {data: 8}, buckets: 16MiB, groups: {data: {algorithm: %s}}}"
    )
    took = {name: predicted(4, 2, train % name) for name in ("collnet_direct", "rails", "in_network")}
    assert took["collnet_direct"] < min(took["rails"], took["in_network"])


@pytest.mark.parametrize(("servers", "gpus", "near"), [(4, 4, 1.15), (8, 8, 1.06)])
def test_a_nic_carries_its_share_once_each_way(servers: int, gpus: int, near: float) -> None:
    """Of S bytes each of k NICs sends S/k, of which headers (106 of 1130 bytes) leave 90.6 %.

    Into its domain a GPU sends (k - 1)/k S for others to add up, and as much of results.
    """
    nic, domain = 16 * MIB / gpus * 1130 / 1024 / 400e3, 2 * (gpus - 1) / gpus * 16 * MIB / 3600e3
    bound = 8 * max(nic, domain)
    took = predicted_us(servers, gpus, 16 * MIB, "algorithm: collnet_direct, dtype: int32")
    assert bound < took < near * bound
    assert took < predicted_us(servers, gpus, 16 * MIB, "algorithm: rails, dtype: int32")
    assert took < predicted_us(servers, gpus, 16 * MIB, "algorithm: in_network, dtype: int32")


@pytest.mark.parametrize(("servers", "gpus", "near"), [(4, 4, 1.03), (8, 8, 1.07)])
def test_domains_that_add_up_carry_half_as_much(servers: int, gpus: int, near: float) -> None:
    """A GPU gets (k + 1)/k S where it got 2 (k - 1)/k S, and adds nothing: the NICs are left, with S/k and headers."""
    nic = 8 * 64 * MIB / gpus * 1130 / 1024 / 400e3
    domain = 8 * (gpus + 1) / gpus * 64 * MIB * 4202 / 4096 / 3600e3
    step = "algorithm: %s, dtype: int32"
    took = predicted_us(servers, gpus, 64 * MIB, step % "collnet_nvls")
    assert max(nic, domain) < took < near * max(nic, domain)
    assert took < predicted_us(servers, gpus, 64 * MIB, step % "collnet_direct")


def test_auto_finds_it() -> None:
    step = "algorithm: %s, dtype: int32"
    took = predicted_us(4, 4, 16 * MIB, "algorithm: auto, offloads: true, dtype: int32")
    assert took <= min(predicted_us(4, 4, 16 * MIB, step % name) for name in ("collnet_direct", "collnet_nvls"))
