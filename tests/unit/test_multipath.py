"""`transport.multipath`: what a file may say, what follows from it, and times of messages over several paths."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hardware.build import SOURCES
from hardware.multipath import POLICIES
from testbed.base.errors import InputError
from testbed.checklist.review import review
from testbed.experiment import Experiment, loads
from testbed.plan.hardware import hardware_of, written_control
from testbed.plan.ideal import Ideal
from testbed.predict.large import of_any_size
from testbed.predict.predict import predict
from topologies.graph.frames import ser_ns
from workloads.times.messages import Costs, Link, Packets, Path, stages_of

SELECTIVE = "recovery: selective_repeat, loss: {}"
CLOS = "{clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}"


def experiment(
    multipath: str,
    *,
    transport: str = SELECTIVE,
    topology: str = CLOS,
    more: str = "",
    switch: str = "{pfc: false, ecn: {classes: [3]}}",
    nic: str = "{pfc: false}",
    control: str = "{}",
) -> Experiment:
    """`more`: of the fabric."""
    return loads(
        f"name: t\nfabric: {{topology: {topology}, switch: {switch}, nic: {nic}{more}}}\n"
        f"control: {control}\n"
        f"transport: {{multipath: {multipath}, {transport}}}\nworkload: [{{collective: all_reduce, sizes: [1MiB]}}]\n"
    )


def found(one: Experiment) -> list[str]:
    return [f.what for f in review(one) if f.check == "paths"]


def test_fabricd_gets_every_parameter_and_none_of_queue_pairs_with_one_path() -> None:
    nic = hardware_of(experiment("{policy: reps, entropies: 64, freeze: 1ms, freeze_on: timeout}")).nic
    explored = nic["multipath"]["params"].pop("explore")
    assert nic["multipath"] == {
        "policy": "reps", "entropies": 64, "params": {"buffer": 8.0, "freeze_on": 1.0, "freeze_ns": 1e6}
    }  # fmt: skip
    assert 60 < explored < 120  # a bandwidth-delay product at 400 Gb/s over three switches, in packets
    assert "multipath" not in hardware_of(experiment("null")).nic
    assert written_control(experiment("{policy: plb}"))["multipath"] == {
        "policy": "plb", "entropies": 256, "threshold": 0.5, "rounds": 12, "idle_rounds": 3, "suspend": "60s"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("round", "'round' is no choice among paths"),
        ("{policy: sprya}", "sprya"),
        ("{policy: round, entropies: 100}", "entropies are a power of two up to 16384, not 100"),
        ("{policy: round, entropies: 32768}", "entropies are a power of two up to 16384, not 32768"),
        ("{policy: round, buffer: 8}", "buffer"),
        ("{policy: reps, buffer: 65}", "buffer is from 1 to 64"),
        ("{policy: reps, freeze_on: never}", "never"),
    ],
)
def test_what_is_wrong_is_said(written: str, what: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)):
        experiment(written)


@pytest.mark.parametrize("control", ["none", "nscc", "dctcp"])
def test_those_that_go_by_marks_of_entropies_have_a_quarter_and_three_quarters(control: str) -> None:
    def ecn(multipath: str) -> dict[str, Any]:
        return dict(hardware_of(experiment(multipath, transport=f"{SELECTIVE}, cc: {control}")).switch["ecn"]["3"])

    # the round trip of three switches and four cables, from the cable on: 500 ns each, a packet and its acknowledgement
    rtt_ns = 2 * 7 * 500 + 4 * (ser_ns(4096 + 78, 400e9) + ser_ns(62, 400e9))
    for policy in ("reps", "bitmap"):
        its = ecn(f"{{policy: {policy}}}")
        assert its["kmin_bytes"] == pytest.approx(rtt_ns * 50 / 4, rel=0.01)
        assert its["kmax_bytes"] == pytest.approx(rtt_ns * 50 * 3 / 4, rel=0.01)
        assert its["pmax"] == 1
    assert ecn("{policy: round}") == ecn("{policy: plb}") == ecn("null") != ecn("{policy: reps}")


def test_the_checklist_knows_what_spraying_needs() -> None:
    assert not found(experiment("{policy: reps}")) and not found(experiment("null", transport="cc: none"))
    (back,) = found(experiment("{policy: round}", transport="cc: none"))
    assert "go_back_n" in back
    (overtaken,) = found(experiment("{policy: random}", transport="recovery: selective_repeat"))
    assert "overtaken" in overtaken
    assert not found(experiment("{policy: plb}", transport="cc: none"))  # all packets of a while take one path
    unmarked = experiment("{policy: bitmap}", switch="{ecn: null}")
    (marks,) = found(unmarked)
    assert "not marked" in marks
    (one,) = found(experiment("{policy: round}", topology="{ring: {nodes: 4}}"))
    assert "one path" in one


def test_the_checklist_knows_what_adaptive_switches_need() -> None:
    def of(transport: str, routing: str = "adaptive") -> list[str]:
        return found(experiment("null", transport=f"{transport}, cc: none", control=f"{{routing: {routing}}}"))

    assert not of("recovery: go_back_n", "ecmp") and not of("recovery: selective_repeat, loss: {}")
    (back,) = of("recovery: go_back_n")
    assert "adaptive switches" in back and "go_back_n" in back
    (overtaken,) = of("recovery: selective_repeat")
    assert "overtaken" in overtaken
    assert not of("recovery: go_back_n", "{adaptive: {scope: {flowlet: {gap: 1ms}}}}")  # longer than a round trip
    assert of("recovery: go_back_n", "{adaptive: {scope: {flowlet: {gap: 1us}}}}")


def test_policies_have_the_same_keys_in_their_files_and_entries() -> None:
    for policy in POLICIES.values():
        text = (SOURCES / "multipath" / f"{policy.name}.c").read_text()
        (entry,) = re.findall(r"struct multipath_policy .*?^};", text, re.M | re.S)
        assert f'.name = "{policy.name}"' in entry and (".hears = true" in entry) == policy.hears
        assert re.findall(r'\] = "(\w+)"', entry) == [p.key for p in policy.parameters]


def packet_by_packet(size_bytes: int, path: Path, costs: Costs) -> float:
    """Each packet takes the cable that is free first; a stage of `spread` cables has so many."""
    packets = Packets.of(size_bytes, costs, reth=True, imm=True)
    free = [[0.0] * round(stage.spread) for stage in stages_of(path, costs, to_memory=True)]
    last = 0.0
    for k in range(packets.count):
        frame = packets.first if k == 0 else packets.last if k == packets.count - 1 else packets.middle
        t = 0.0
        for stage, cables in zip(stages_of(path, costs, to_memory=True), free, strict=True):
            i = cables.index(min(cables))
            t = cables[i] = max(t, cables[i]) + stage.time_ns(*frame)
        last = max(last, t)
    return last


@pytest.mark.parametrize("size_bytes", [100, 4097, 20_000, 1_000_000])
@pytest.mark.parametrize("spreads", [(1, 1, 1), (1, 4, 1), (2, 4, 2), (2, 8, 1)])
def test_a_message_over_cables_side_by_side_takes_what_its_packets_take(
    size_bytes: int, spreads: tuple[int, ...]
) -> None:
    path = Path(tuple(Link(200e9, 500, spread) for spread in spreads), (500.0,) * (len(spreads) - 1))
    costs, packet_ns = Costs(), ser_ns(4096 + 78, 200e9)
    formula = Packets.of(size_bytes, costs, reth=True, imm=True).through(stages_of(path, costs, to_memory=True))
    exact = packet_by_packet(size_bytes, path, costs)
    assert abs(formula - exact) <= (0 if max(spreads) == 1 else packet_ns) + 1e-6


def test_a_flow_over_two_planes_is_alone_as_fast_as_both_or_as_pcie() -> None:
    """16 MB over ports of 200 Gb/s: all but the constant part is what the slowest stage takes."""
    topology, size = "{clos: {leaves: 4, spines: 4, hosts_per_leaf: 2, links: 2}}", 16_000_000
    line_ns = ser_ns(4096 + 58, 200e9) * size / 4096

    def ideal_ns(multipath: str, pcie: str) -> float:
        nic = f"{{pfc: false, pcie: {{rate: {pcie}}}}}"
        one = experiment(multipath, topology=topology, nic=nic, more=", cable: {rate: 200Gbps}")
        time_ns = Ideal(one).time_ns(0, 4, size)
        assert time_ns is not None
        return time_ns

    for one_path in ("null", "{policy: plb}"):
        assert line_ns < ideal_ns(one_path, "512Gbps") < line_ns + 15_000
    assert line_ns / 2 < ideal_ns("{policy: round}", "512Gbps") < line_ns / 2 + 15_000
    assert size * 8 / 300 < ideal_ns("{policy: reps}", "300Gbps") < size * 8 / 300 + 15_000


def test_adaptive_switches_do_not_give_a_flow_both_ports_of_its_nic() -> None:
    """The bridge in the NIC hashes its one source port: 16 MB at 200 Gb/s, over however many ways behind it."""
    more = ", cable: {rate: 200Gbps}"
    topology, size = "{clos: {leaves: 4, spines: 4, hosts_per_leaf: 2, links: 2}}", 16_000_000
    one = experiment("null", topology=topology, nic="{pfc: false}", more=more, control="{routing: adaptive}")
    line_ns = ser_ns(4096 + 58, 200e9) * size / 4096
    assert line_ns < (Ideal(one).time_ns(0, 4, size) or 0) < line_ns + 15_000


def test_predictions_take_cables_side_by_side_for_one_as_fast_as_all() -> None:
    fat = "".join(f', "cable:leaf{k}-spine0": {{rate: 1600Gbps}}' for k in range(2))[2:]
    (sprayed,) = predict(experiment("{policy: round}")).figures
    one_spine = CLOS.replace("spines: 4", "spines: 1")
    (wide,) = predict(experiment("null", topology=one_spine, more=f", cables: {{{fat}}}")).figures
    (hashed,) = predict(experiment("null")).figures
    longer_ns = ser_ns(4096 + 58, 400e9) * 3 / 4  # a packet on two cables of every second hop of the ring
    assert sprayed.time_ns == pytest.approx(wide.time_ns + 3 * 2 * longer_ns, rel=1e-4)
    assert sprayed.time_ns == pytest.approx(hashed.time_ns, rel=1e-4)  # whose flows take cables of their own


@pytest.mark.parametrize("policy", ["two_choices", "random", "shortest", "round_robin"])
def test_adaptive_switches_are_predicted_as_packets_that_take_all_ways(policy: str) -> None:
    (sprayed,) = predict(experiment("{policy: round}")).figures
    prediction = predict(experiment("null", control=f"{{routing: {{adaptive: {{policy: {policy}}}}}}}"))
    assert prediction.figures[0].time_ns == sprayed.time_ns
    assert any("how unevenly switches spread" in line for line in prediction.left_out)


@pytest.mark.parametrize(
    ("adaptive", "more", "what"),
    [
        ("{scope: {flowlet: {}}}", "", "no model of flowlets"),
        ("{}", ", cables: {'cable:leaf0-spine0': {rate: 40Gbps}}", "share cables that differ"),
        (
            "{policy: random, weights: capacity}",
            ", cables: {'cable:leaf0-spine0': {rate: 40Gbps}}",
            "cables that differ",
        ),
    ],
)
def test_what_of_adaptive_switches_has_no_model_is_said(adaptive: str, more: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as error:
        predict(experiment("null", more=more, control=f"{{routing: {{adaptive: {adaptive}}}}}"))
    assert "control.routing" in error.value.where
    assert predict(experiment("null", control="{routing: {adaptive: {policy: random}}}")).figures


def test_bridges_in_nics_hash_before_adaptive_switches() -> None:
    """Of a NIC's two ports a queue pair takes one: as long as by one port of the same rate."""
    two = "{clos: {leaves: 4, spines: 2, hosts_per_leaf: 2, links: 2}}"
    (adaptive,) = predict(experiment("null", topology=two, control="{routing: adaptive}")).figures
    (sprayed,) = predict(experiment("{policy: round}", topology=two)).figures
    assert adaptive.time_ns > sprayed.time_ns


def test_there_is_no_model_of_it_on_fabrics_too_large_to_run() -> None:
    large = "{clos: {leaves: 100, spines: 100, hosts_per_leaf: 100}}"
    with of_any_size():
        with pytest.raises(InputError, match="spray on so large a fabric"):
            predict(experiment("{policy: round}", topology=large))
        assert predict(experiment("{policy: plb}", topology=large)).figures
