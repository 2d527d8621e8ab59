"""Sums in scale-up domains, then in switches along rails: what each carries by count, and how near the time comes."""

from __future__ import annotations

from collections import Counter

import pytest

from testbed.experiment import loads
from testbed.predict import predict
from workloads.collectives.collnet import all_reduce, switches
from workloads.collectives.schedule import OUTPUT, VECTOR, Recv, Send, Shape, steps

MIB = 1 << 20


def predicted_us(servers: int, gpus: int, size: int, step: str, costs: str = "{reduce_by: channel}") -> float:
    experiment = loads(
        f"name: x\ncosts: {costs}\nfabric: {{topology: {{rail: {{servers: {servers}, gpus: {gpus}}}}}, "
        f"switch: {{accelerator: {{}}}}}}\nworkload: [{{collective: all_reduce, {step}, sizes: [{size}B]}}]"
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


def test_auto_finds_it() -> None:
    step = "algorithm: %s, dtype: int32"
    took = predicted_us(4, 4, 16 * MIB, "algorithm: auto, offloads: true, dtype: int32")
    assert took <= predicted_us(4, 4, 16 * MIB, step % "collnet_direct")
