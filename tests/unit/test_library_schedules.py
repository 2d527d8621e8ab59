"""What a library has ranks do: proved right whatever the timing, in NCCL's order, and predicted alike in two ways."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.steps.planner import Planner
from workloads.base.entry import named
from workloads.check.check import check
from workloads.collectives.manner import Manner
from workloads.collectives.schedule import Shape, schedule_of
from workloads.library.schedules.orders import ring
from workloads.registry import by_library, find
from workloads.times.case import Case
from workloads.times.expected import replayed

PLAIN = Manner(4, 1, 1, 2, "simple", False, True, 4096, 2, 64, 4, 5000.0, 0.01, 100.0, 10.0, 20.0, 1.0)
GROUPS = {
    "one GPU a server": (5, replace(PLAIN, padded=2.0, protocol="ll")),
    "line by line": (12, replace(PLAIN, gpus=4, nics=4, channels=4, padded=128 / 120, protocol="ll128")),
    "through the NIC's GPU": (12, replace(PLAIN, gpus=4, nics=4, channels=4)),
    "two GPUs to a NIC": (8, replace(PLAIN, gpus=4, nics=2, channels=4)),
    "crossing": (12, replace(PLAIN, gpus=4, nics=4, channels=8, crossing=True, chunk=256)),
    "over any NIC": (8, replace(PLAIN, gpus=4, nics=4, channels=4, pxn=False)),
    "one server": (4, replace(PLAIN, gpus=4, nics=4, channels=3)),
    "several channels to a peer": (6, replace(PLAIN, gpus=2, nics=2, channels=4, of_peer=2, chunk=512)),
}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("collective", "name"), [(c, name) for c, names in by_library().items() for name in names])
def test_no_timing_makes_it_wrong(collective: str, name: str, group: str) -> None:
    """No deadlock, no race, every result whole."""
    entry, (ranks, manner) = find(collective, name), GROUPS[group]
    for count in (1, 7, 1003):
        check(entry, schedule_of(entry), Shape(ranks, count, library=manner))


def test_rings_are_nccls() -> None:
    """NCCL's own log of 3 servers of 8 H100 (github.com/NVIDIA/nccl, issue 1453), as far as it shows each."""
    logged = {
        0: "0 7 6 5 4 3 2 1 8 15 14 13 12 11 10 9 16 23 22 21",
        1: "0 7 6 5 4 3 2 9 8 15 14 13 12 11 10 17 16 23 22 21",
        5: "0 7 6 13 12 11 10 9 8 15 14 21 20 19 18 17 16 23 22 5",
        6: "0 7 14 13 12 11 10 9 8 15 22 21 20 19 18 17 16 23 6 5",
        7: "0 15 14 13 12 11 10 9 8 23 22 21 20 19 18 17 16 7 6 5",
        10: "0 7 6 5 4 3 10 9 8 15 14 13 12 11 18 17 16 23 22 21",
        12: "0 7 6 5 12 11 10 9 8 15 14 13 20 19 18 17 16 23 22 21",
    }
    for channel, text in logged.items():
        order = list(ring(channel, 24, 8, 8))
        from_zero = order[order.index(0) :] + order[: order.index(0)]
        assert from_zero[:20] == [int(word) for word in text.split()], channel


def test_crossing_rings_keep_to_rails_and_use_every_nic() -> None:
    left, come = [], []
    for channel in range(8):
        order = ring(channel, 32, 8, 8, crossing=True)
        assert sorted(order) == list(range(32))
        for at in range(0, 32, 8):
            source, target = order[at - 1], order[at]
            assert source % 8 == target % 8
            left.append(source)
            come.append(target)
    assert sorted(left) == sorted(come) == list(range(32))


def _case(topology: str, algorithm: str, protocol: str, collective: str, size: str) -> tuple[Case, object]:
    experiment = loads(
        f"name: x\nfabric: {{topology: {topology}}}\n"
        f"library: {{env: {{NCCL_ALGO: {algorithm}, NCCL_PROTO: {protocol}}}}}\n"
        f"workload: [{{collective: {collective}, sizes: [{size}]}}]\n",
        "x",
    )
    planner = Planner(experiment)
    by = planner.by_library(experiment.workload[0])  # type: ignore[arg-type]
    nbytes = by.step.sizes[0]
    told = by.chosen()[str(nbytes)]
    entry, ways = find(collective, told["algorithm"]), planner.chooser.ways(by.ranks)
    return Case.of(entry, len(by.ranks), nbytes, 4, told, 1, planner.chooser.costs, ways), entry


@pytest.mark.parametrize(
    ("topology", "algorithm", "protocol", "collective", "size", "within"),
    [
        ("{star: {hosts: 4}}", "ring", "simple", "all_gather", "16MiB", 0.01),
        ("{star: {hosts: 4}}", "ring", "ll", "all_reduce", "64KiB", 0.01),
        ("{rail: {servers: 4, gpus: 2}}", "ring", "ll128", "reduce_scatter", "4MiB", 0.03),
        ("{rail: {servers: 2, gpus: 4}}", "ring", "simple", "all_reduce", "4MiB", 0.07),
        ("{rail: {servers: 2, gpus: 4}}", "tree", "simple", "all_reduce", "4MiB", 0.01),
        ("{rail: {servers: 4, gpus: 2}}", "tree", "ll", "all_reduce", "16KiB", 0.04),
        ("{rail: {servers: 4, gpus: 4}}", "nvlstree", "simple", "all_reduce", "8MiB", 0.25),
        ("{star: {hosts: 8}}", "pat", "simple", "reduce_scatter", "4MiB", 0.02),
        ("{rail: {servers: 2, gpus: 4}}", "ring", "simple", "all_to_all", "4MiB", 0.1),
        ("{rail: {servers: 2, gpus: 4}}", "ring", "simple", "send_recv", "4MiB", 0.05),
        ("{rail: {servers: 2, gpus: 4}}", "ring", "ll", "broadcast", "64KiB", 0.05),
        ("{rail: {servers: 4, gpus: 2}}", "ring", "ll", "reduce", "64KiB", 0.1),
    ],
)
def test_arrays_say_what_messages_do(
    topology: str, algorithm: str, protocol: str, collective: str, size: str, within: float
) -> None:
    case, entry = _case(topology, algorithm, protocol, collective, size)
    followed = replayed(case, schedule_of(entry), 60_000)  # type: ignore[arg-type]
    assert followed is not None
    assert named(entry.time)(case) == pytest.approx(followed, rel=within)  # type: ignore[attr-defined]


def test_a_step_that_names_its_algorithm_is_not_the_librarys() -> None:
    text = "name: x\nfabric: {topology: {star: {hosts: 4}}}\nlibrary: {}\nworkload:\n"
    text += (
        "  - {collective: all_reduce, sizes: [1MiB]}\n  - {collective: all_reduce, algorithm: ring, sizes: [1MiB]}\n"
    )
    text += "  - {collective: scatter, sizes: [1MiB]}\n"
    names = [step.algorithm for step in loads(text, "x").workload]  # type: ignore[union-attr]
    assert names == ["library", "ring", "linear"]
    assert [step.algorithm for step in loads(text.replace("library: {}\n", ""), "x").workload][0] == "ring"  # type: ignore


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("{costs: {cta.speed: 1Gbps}}", "library.costs.cta.speed: unknown cost 'cta.speed'"),
        ("{costs: {cta.rate: 1us}}", "library.costs.cta.rate"),
        ("{costs: {net.hop: 3Gbps}}", "library.costs.net.hop"),
        ("{env: {NCCL_ALGO: rings}}", "'rings' is unknown"),
        ("{env: {NCCL_DEBUG: INFO}}", "is no variable that changes a schedule"),
        ("{version: new}", "library.version"),
        ("{gpu: pascal}", "unknown generation of GPUs 'pascal'"),
        ("{choice: table, table: [{collective: all_reduce, algorithm: mesh}]}", "unknown algorithm 'mesh'"),
        ("{choice: table}", "goes by `table`"),
        ("{name: rccl}", "library.name"),
    ],
)
def test_mistakes_in_it_are_named(library: str, why: str) -> None:
    text = f"name: x\nfabric: {{topology: {{star: {{hosts: 4}}}}}}\nlibrary: {library}\nworkload: []\n"
    with pytest.raises(InputError) as error:
        loads(text, "x")
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("topology", "library", "step", "why"),
    [
        (
            *(
                "{rail: {servers: 2, gpus: 4}}",
                "{env: {NCCL_ALGO: collnetchain, NCCL_COLLNET_ENABLE: 1}}",
                "all_reduce",
            ),
            "the library takes collnet_chain for all_reduce of 1024 B here, which is not carried out",
        ),
        (
            *("{rail: {servers: 2, gpus: 4}}", "{env: {NCCL_ALGO: nvls, NCCL_COLLNET_ENABLE: 1}}", "all_reduce"),
            "switches have no accelerator",
        ),
        ("{star: {hosts: 4}}", "{env: {NCCL_ALGO: nvls}}", "all_reduce", "leave nothing for all_reduce"),
        (
            "{star: {hosts: 4}}",
            "{choice: table, table: [{collective: all_gather, algorithm: ring}]}",
            "all_reduce",
            "has no line",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_named(topology: str, library: str, step: str, why: str) -> None:
    text = f"name: x\nfabric: {{topology: {topology}}}\nlibrary: {library}\n"
    experiment = loads(f"{text}workload: [{{collective: {step}, sizes: [1KiB]}}]\n", "x")
    with pytest.raises(InputError, match=why):
        Planner(experiment).collective(experiment.workload[0])  # type: ignore[arg-type]


def test_library_alone_says_which() -> None:
    with pytest.raises(InputError, match="there is no library that could choose"):
        loads(
            "name: x\nfabric: {topology: {star: {hosts: 4}}}\n"
            "workload: [{collective: all_reduce, algorithm: library, sizes: [1KiB]}]\n",
            "x",
        )
