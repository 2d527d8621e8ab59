"""Compute complexes as ends of messages, `nic:RANK.complex`: read, checked, written back; what workers are told."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from testbed.base.errors import InputError
from testbed.checklist.review import review
from testbed.experiment import loads
from testbed.experiment.model import Experiment
from testbed.plan.ideal import Ideal
from testbed.plan.steps.plan import capture_ports, plan
from topologies.graph import endpoint
from topologies.graph.fabric import TopologyError
from topologies.graph.targets import resolve

TEXT = """
name: ends
fabric:
  topology: {star: {hosts: 3}}
  cable: {rate: 100Gbps}
  nic: NIC
workload:
- STEP
"""
OFF_PATH = "{kind: off_path, profile: bluefield2}"


def experiment(step: str, nic: str = OFF_PATH) -> Experiment:
    return loads(TEXT.replace("NIC", nic).replace("STEP", step))


def test_a_complex_is_an_int_that_is_no_rank() -> None:
    one = endpoint.OfNic.of(2)
    assert str(one) == f"{one}" == f"{one:s}" == "nic:2.complex" and one.rank == 2 and one < 0
    assert copy.deepcopy(one).rank == pickle.loads(pickle.dumps(one)).rank == 2
    assert endpoint.parse("nic:2.complex") == one != endpoint.OfNic.of(1)
    assert [endpoint.parse(text) for text in ("nic:2", "nic:02.complex", "nic:-1.complex", "2", "arm2")] == [None] * 5
    assert [endpoint.name(k, 3) for k in (0, 2, 3, 5)] == ["0", "2", "nic:0.complex", "nic:2.complex"]


def test_flows_to_and_from_complexes_reach_their_workers() -> None:
    e = experiment("flows: [{from: 0, to: nic:0.complex, size: 1KiB}, {from: nic:2.complex, to: 1, size: 1KiB}]")
    assert loads(json.dumps(e.resolved())) == e
    assert e.resolved()["workload"][0]["flows"][0]["to"] == "nic:0.complex"
    made = plan(e)
    assert [(f["from"], f["to"]) for f in made.told()["steps"][0]["flows"]] == [(0, 3), (5, 1)]
    assert made.endpoints == [0, 1, 2, 3, 5]
    assert made.described() == [{"kind": "flows", "names": {"3": "nic:0.complex", "5": "nic:2.complex"}}]
    assert made.told([5])["costs"]["post_ns"] == 200


def test_a_ping_pong_has_complexes_among_its_ranks() -> None:
    e = experiment("{collective: ping_pong, ranks: [nic:1.complex, 0], sizes: [8B]}")
    assert loads(json.dumps(e.resolved())) == e
    assert plan(e).told()["steps"][0]["ranks"] == [4, 0] and plan(e).endpoints == [0, 1, 2, 4]


def test_a_complex_is_a_target_and_a_place_to_capture() -> None:
    fabric = experiment("flows: [{from: 0, to: 1, size: 1B}]").build_fabric()
    assert resolve(fabric, "nic:1.complex").nic.name == "arm1"  # type: ignore[union-attr]
    assert capture_ports("nic:1.complex", fabric) == ["arm1:1"] and capture_ports("nic:1", fabric) == ["h1:1"]
    with pytest.raises(TopologyError, match="no nic:3.complex"):
        resolve(fabric, "nic:3.complex")


@pytest.mark.parametrize(
    ("step", "nic", "key", "what", "hint"),
    [
        ("flows: [{from: 0, to: nic:0, size: 1B}]", OFF_PATH, "flows[0].to", "'nic:0' is neither", "nic:RANK.complex"),
        ("flows: [{from: -1, to: 0, size: 1B}]", OFF_PATH, "flows[0].from", "there is no rank -1", "0 to 2"),
        ("flows: [{from: 0, to: nic:3.complex, size: 1B}]", OFF_PATH, "to", "there is no rank 3", "0 to 2"),
        ("flows: [{from: 0, to: 4, size: 1B}]", OFF_PATH, "flows[0].to", "there is no rank 4", "0 to 2"),
        ("flows: [{from: 0, to: nic:0.complex, size: 1B}]", "{}", "to", "have no compute complex", "kind: off_path"),
        (
            "flows: [{from: nic:1.complex, to: nic:1.complex, size: 1B}]",
            OFF_PATH, "to", "a flow from nic:1.complex to itself", "two different",
        ),
        (
            "{collective: all_reduce, algorithm: ring, ranks: [0, nic:1.complex], sizes: [8B]}",
            OFF_PATH, "ranks[1]", "all_reduce is between ranks, and nic:1.complex is none", "by number",
        ),
        (
            "{collective: ping_pong, ranks: [nic:1.complex, nic:1.complex], sizes: [8B]}",
            OFF_PATH, "ranks[1]", "nic:1.complex stands twice", "once",
        ),
    ],
)  # fmt: skip
def test_mistakes(step: str, nic: str, key: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        experiment(step, nic)
    assert ":8: " in error.value.where and key in error.value.where
    assert what in error.value.what and hint in error.value.hint


def test_the_ideal_time_of_a_flow_into_a_complex_by_hand() -> None:
    """A packet of 4 KiB.  BlueField-2: PCIe 252 Gb/s; bridge 300 ns; complex 200 Gb/s, 150 ns off, 300 ns to memory."""
    frame, ack = 4096 + 82 + 16 + 4, 86  # headers, preamble and gap; RETH; immediate
    link, inside = (frame * 8 / 100, ack * 8 / 100), (frame * 8 / 200, ack * 8 / 200)
    once = 300 + 150  # the bridge, and on to the complex
    there = 500 + 500 + 4096 * 8 / 252 + link[0] + once + inside[0]  # doorbell, fetch
    back = inside[1] + once + link[1] + 500  # to its own memory
    ideal = Ideal(experiment("flows: [{from: 0, to: 1, size: 1B}]"))
    assert ideal.time_ns(0, 3, 4096) == pytest.approx(100 + there + back, abs=0.01)
    # The other way: the complex posts in 200 ns, and its memory is 300 ns away, at 200 Gb/s.
    there = 300 + 300 + 4096 * 8 / 200 + inside[0] + once + link[0]
    back = link[1] + once + inside[1] + 300
    assert ideal.time_ns(3, 0, 4096) == pytest.approx(200 + there + back, abs=0.01)
    # To another host's complex: out over the cable, the switch and its cable (500 ns each), and in.
    way = 300 + 500 + 500 + 500 + 300 + 150
    there = 500 + 500 + 4096 * 8 / 252 + 3 * link[0] + inside[0] + way
    back = inside[1] + way + 3 * link[1] + 500
    assert ideal.time_ns(0, 4, 4096) == pytest.approx(100 + there + back, abs=0.01)


def test_the_checklist_counts_a_complex_as_its_nic() -> None:
    """What leaves a NIC from its complex crosses rails as what its host sends; what stays inside crosses nothing."""
    text = TEXT.replace("{star: {hosts: 3}}", "{rail: {servers: 2, gpus: 2}}").replace("NIC", OFF_PATH)

    def checks(a: int, b: str) -> list[str]:
        flows = f"flows: [{{from: nic:{a}.complex, to: {b}, size: 1MB}}]"
        return [found.check for found in review(loads(text.replace("STEP", flows)))]

    assert "rails" in checks(0, "3") and "rails" in checks(0, "nic:3.complex")
    assert "rails" not in checks(0, "2") + checks(0, "0") + checks(0, "nic:2.complex")
