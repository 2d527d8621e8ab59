"""Where a run's PFC would pause somebody, a prediction says so, and names whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import count, pairwise
from typing import cast

import pytest
from rich.console import Console

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.predict import predict
from testbed.predict.figure import FLOWS, FORMULA, LONGEST_PATH, MESSAGES, ONE_PIPELINE
from testbed.predict.large import of_any_size
from testbed.predict.table import of_prediction
from workloads.times.buffers import Room, Watch
from workloads.times.messages import Costs, Link, Path
from workloads.times.network import Agenda, Stage
from workloads.times.pausing import Group, Node, PausingNetwork
from workloads.times.pausing import Link as Cable
from workloads.times.ways import Route, Ways

MODEL = "model: {layers: 4, hidden: 512, heads: 16, seq: 256}, gpu: {flops: 100T}, batch: {count: 4}"

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
        "PFC, in gather by linear, 2097152 B, 4194304 B: sw0 would pause h1, h2, h3 and 4 more; all that waits "
        "there goes the same way, and takes no longer"
    ]


def test_it_says_whether_what_goes_elsewhere_waits_with_the_rest() -> None:
    """Three send to one receiver; if they have something for another one, too, that waits for nothing of its own."""
    step = "collective: m2n, algorithm: write, sizes: [4MiB], ranks: [0, 1, 2, 3, 4], senders: 3, skew: 1"
    (mixed,) = predict(experiment(step, SMALL)).figures
    (alone,) = predict(experiment("collective: gather, algorithm: linear, sizes: [8MiB]", SMALL)).figures
    assert mixed.paused and alone.paused and (mixed.holds_up, alone.holds_up) == (True, False)
    assert mixed.to_dict()["holds_up"]
    (said,) = notes(step, SMALL)
    assert said.endswith("; that holds up what goes elsewhere, too, and is in the time")


def test_pauses_that_pauses_make_hold_others_up_as_well() -> None:
    """All that n pauses goes to d; but what comes to u over one cable goes to n and to m."""
    for ways, held in (((("u", "n"),), False), ((("u", "n"), ("u", "m")), True)):
        watch = Watch({"n": Room(1000.0), "u": Room(1e9)})
        full = watch.at(("u", "n"), 0.0, ("n", "d"))
        assert full
        full.add((1.0, 1.0), (1e6, 1e6), 4000.0, 1)
        for way in ways:
            watch.at(("x", "u"), 0.0, way)
        assert watch.paused() == {("u", "n"): held}


@pytest.mark.parametrize(
    ("room", "holds", "resumes"),
    [
        # alone: as much of the shared part as is left of it, 500 each; on 100 below what is free again
        (Room(1000, 10_000, 1.0, 1000), 1000 + 5000, 1000 + 4500),
        (Room(0, 9000, 0.5, 0), 3000, 3000),  # s <= (9000 - s) / 2
        (Room(3000, resumes=1000), 3000, 1000),  # a NIC's
    ],
)
def test_a_group_holds_what_its_threshold_says(room: Room, holds: int, resumes: int) -> None:
    """By bytes of 100 each; what comes beyond is headroom, which is let go of first."""
    group = Group(Node(room), Cable(Stage(8e9, 0.0)), False, 0.0)
    taken = next(k for k in count(1) if group.take(100.0))
    assert (taken - 1) * 100 == holds or (room.shared and taken * 100 == holds)
    assert not group.take(100.0)
    left = next(k for k in count(1) if group.let_go(100.0))
    assert (taken + 1 - left) * 100 == resumes


def test_two_groups_share_what_is_shared() -> None:
    """Equally full each has alpha S / (1 + 2 alpha): a third of 9,000."""
    node = Node(Room(0, 9000, 1.0, 0))
    groups = [Group(node, Cable(Stage(8e9, 0.0)), False, 0.0) for _ in range(2)]
    for _ in range(29):
        assert not any(group.take(100.0) for group in groups)
    assert [group.take(100.0) for group in groups] == [False, True]
    assert groups[0].take(100.0)


def test_what_pauses_hold_up_is_in_the_time() -> None:
    """What runs took: a hot receiver behind an uplink, and both ways round a ring, in two classes."""
    fabric = "topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}, switch: {buffer: 2MB}"
    (figure,) = predict(experiment("collective: all_to_all_v, algorithm: spread, sizes: [8MiB]", fabric)).figures
    assert figure.holds_up and figure.time_ns == pytest.approx(559_638.84, rel=0.01)  # without pauses 508,878
    fabric = "topology: {ring: {nodes: 8}}, switch: {buffer: 2MB}"
    (figure,) = predict(experiment("collective: all_to_all, algorithm: spread, sizes: [8MiB]", fabric)).figures
    assert figure.holds_up and figure.time_ns == pytest.approx(358_600, rel=0.02)  # without pauses 224,500


def test_without_a_dateline_pauses_may_wait_for_each_other() -> None:
    with pytest.raises(InputError, match="wait for each other in a circle") as told:
        step = "collective: all_to_all, algorithm: spread, sizes: [8MiB]"
        fabric = "topology: {ring: {nodes: 8}}, switch: {buffer: 2MB}"
        predict(experiment(step, fabric, "control: {dateline: false}\n"))
    assert "workload[0]" in told.value.where


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


@pytest.mark.parametrize(
    ("step", "how"),
    [
        ("collective: all_reduce, algorithm: direct_reduce, sizes: [1MiB]", FORMULA),
        ("collective: all_reduce, algorithm: ring, sizes: [1MiB]", FLOWS),
        (f"train: {{{MODEL}, parallel: {{data: 5000}}}}", ONE_PIPELINE),
        (f"train: {{{MODEL}, parallel: {{data: 8}}, groups: {{data: {{algorithm: direct_reduce}}}}}}", LONGEST_PATH),
    ],
)
def test_where_no_messages_are_followed_its_line_says_that_nobody_has_looked(step: str, how: str) -> None:
    hosts = 5000 if how in (FLOWS, ONE_PIPELINE) else 8
    for more, paused, cell in (("", None, "?"), (", switch: {pfc: false}, nic: {pfc: false}", (), None)):
        with of_any_size():
            its = predict(experiment(step, f"topology: {{star: {{hosts: {hosts}}}}}{more}"))
        (figure,) = its.figures
        assert (figure.how, figure.paused, figure.to_dict()["paused"]) == (how, paused, None if cell else [])
        console = Console(width=160, record=True, file=StringIO())
        console.print(of_prediction(its, "t"))
        shown = console.export_text()
        assert ("how     PFC\n" in shown, "# ?: whether PFC would pause somebody" in shown) == (bool(cell), bool(cell))
        (row,) = [line.split() for line in shown.splitlines() if line[:1] != "#" and how in line]
        assert row[-1] == (cell or how.split()[-1])


def test_lines_say_which_sizes_pause() -> None:
    its = predict(experiment("collective: gather, algorithm: linear, sizes: [64KiB, 2MiB]", SMALL))
    console = Console(width=160, record=True, file=StringIO())
    console.print(of_prediction(its, "t"))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert [line[-1] for line in lines if "messages" in line and "linear" in line] == ["none", "some"]


@dataclass
class _Flows:
    """Ways that are written down: there, and for acknowledgements back."""

    nodes: Sequence[str]

    def route(self, pair: tuple[int, int], channel: int = 0, lane: int = 0) -> Route:
        way = self.nodes[min(pair) // 2].split()[:: 1 if pair[0] % 2 == 0 else -1]
        links = (Link(400e9, 500.0),) * (len(way) - 1)
        return Route(tuple(pairwise(way)), links, Path(links, (0.0,) * (len(links) - 1)))


HTSIM = [
    (["a S1 S2 r", "b S1 S2 v", "c S2 r"], 72, 60, (177.81, 177.90, 157.26), 53, 0.002),
    (["a S1 S2 r", "b S1 S2 r", "c S3 S2 r", "d S3 S2 v", "e S2 r"], 200, 100,
     (343.18, 343.26, 270.15, 245.33, 244.24), 29, 0.03),
]  # fmt: skip
"""Ways of 1,024 packets each, at how many a switch pauses and resumes a port; what csg-htsim says: us, pauses."""


@pytest.mark.parametrize(("ways", "xoff", "xon", "ends", "pauses", "off"), HTSIM)
def test_csg_htsim_pauses_as_often_and_takes_as_long(
    monkeypatch: pytest.MonkeyPatch,
    ways: list[str],
    xoff: int,
    xon: int,
    ends: tuple[float, ...],
    pauses: int,
    off: float,
) -> None:
    """Its `LosslessInputQueue`, compiled: a victim (`v`) behind the same cable as what goes to a hot receiver (`r`)."""
    told, agenda = [], Agenda()
    tell = PausingNetwork._told
    monkeypatch.setattr(PausingNetwork, "_told", lambda *its: (told.append(its[-1]), tell(*its)))
    costs = Costs(post_ns=0, pcie_rate_bps=1e18, pcie_latency_ns=0, ack_every=10**9, tx_buffer_bytes=4178)
    rooms = {f"S{k}": Room(xoff * 4154, resumes=xon * 4154) for k in (1, 2, 3)}
    network = PausingNetwork(agenda, cast(Ways, _Flows(ways)), costs, 1, rooms)
    found: dict[int, float] = {}
    for k in range(len(ways)):
        pair = network.connect((2 * k, 2 * k + 1))
        network.post(0.0, pair, 1024 * 4096, partial(found.setdefault, k), None)
    agenda.run()
    network.check_through()
    assert [found[k] / 1e3 for k in range(len(ways))] == pytest.approx(ends, rel=off)
    assert sum(told) == pauses
