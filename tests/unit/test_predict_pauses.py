"""Where a run's PFC would pause somebody, a prediction says so, and names whom."""

from __future__ import annotations

import pytest

from testbed.experiment import Experiment, loads
from testbed.predict import predict
from testbed.predict.figure import MESSAGES

PACKET, FRAME = 4096, 4096 + 14 + 20 + 8 + 12 + 4  # as a buffer holds it: without FCS, preamble and gap


def experiment(step: str, fabric: str = "topology: {star: {hosts: 8}}", more: str = "") -> Experiment:
    return loads(f"name: t\nfabric: {{{fabric}}}\nworkload:\n- {{{step}}}\n{more}", "t.yaml")


def notes(step: str, fabric: str = "topology: {star: {hosts: 8}}", more: str = "") -> list[str]:
    return [text for text in predict(experiment(step, fabric, more)).left_out if text.startswith("PFC")]


SMALL = (
    "topology: {star: {hosts: 8}}, switch: {buffer: 2MB, reserve: 4KB, headroom: 40KB, alpha: 0.5, ecn: null}, "
    "nic: {mtu: 4096}"
)


def test_seven_senders_are_paused_from_the_size_on_that_arithmetic_says() -> None:
    """While a packet leaves, seven come: six sevenths of what everybody has sent wait, under equal thresholds."""
    shared = 2_000_000 - 8 * 2 * (4000 + 40_000)  # ports, lossless classes
    threshold = 4000 + 0.5 * shared / (1 + 7 * 0.5)
    packets = threshold * 7 / 6 / FRAME
    for off, paused in ((-2, 0), (2, 7)):
        size = 8 * round(packets + off) * PACKET
        (figure,) = predict(experiment(f"collective: gather, algorithm: linear, sizes: [{size}B]", SMALL)).figures
        assert len(figure.paused) == paused


def test_it_names_who_pauses_whom() -> None:
    step = "collective: gather, algorithm: linear, sizes: [64KiB, 2MiB, 4MiB]"
    assert notes(step, SMALL) == [
        "PFC, in gather by linear, 2097152 B, 4194304 B: sw0 would pause h1, h2, h3 and 4 more; a run takes longer "
        "where that holds others up, too"
    ]


def test_each_of_groups_that_are_alike_has_its_own_names() -> None:
    fabric = "topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 5}}, switch: {buffer: 1MB, ecn: null}"
    step = "collective: gather, algorithm: linear, sizes: [2MiB], groups: [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]"
    found = predict(experiment(step, fabric)).figures
    senders = [{sender for sender, _ in figure.paused} for figure in found]
    assert senders == [{f"h{k}" for k in range(1, 5)}, {f"h{k}" for k in range(6, 10)}]
    assert [{node for _, node in figure.paused} for figure in found] == [{"leaf0"}, {"leaf1"}]


def test_a_nic_whose_pcie_is_slow_pauses_its_switch() -> None:
    fabric = "topology: {star: {hosts: 4}}, nic: {pcie: {rate: 300Gbps}}"
    (said,) = notes("collective: gather, algorithm: linear, sizes: [4MiB]", fabric)
    assert "h0 would pause sw0" in said


@pytest.mark.parametrize(
    ("fabric", "more"),
    [
        (SMALL.replace("ecn: null", "ecn: null, pfc: false"), ""),
        (SMALL.replace("ecn: null", "ecn: null, lossless: [4]"), ""),
    ],
)
def test_nobody_is_paused_without_pfc(fabric: str, more: str) -> None:
    assert notes("collective: gather, algorithm: linear, sizes: [1MiB]", fabric, more) == []


def test_tasks_that_meet_are_looked_at_too() -> None:
    """Four messages over one uplink at the same time."""
    tasks = "".join(
        f"    - {{id: s{k}, send: {{}}, ranks: [{k}], to: {k + 4}, stream: out, tag: t{k}}}\n"
        f"    - {{id: r{k}, recv: {{}}, ranks: [{k + 4}], from: {k}, stream: in, tag: t{k}}}\n"
        for k in range(4)
    )
    fabric = SMALL.replace("star: {hosts: 8}", "clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}")
    for size, paused in (("32KiB", []), ("1MiB", ["h0", "h1", "h2", "h3"])):
        text = f"name: t\nfabric: {{{fabric}}}\nworkload:\n- tasks:\n    list:\n{tasks.replace('{}', size)}"
        (figure,) = predict(loads(text, "t.yaml")).figures
        assert figure.how == MESSAGES
        assert sorted(figure.paused) == [(host, "leaf0") for host in paused]
