"""`testbed checklist`: each check finds what it is for, at its place, and says nothing of what is well made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.checklist import CHECKS, Finding, figures, review
from testbed.checklist.exchanges import exchanges
from testbed.cli import cli
from testbed.experiment import load, loads
from testbed.machine.memory import available_bytes

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

# Studies of just that. Everything else in experiments/ has nothing to look at.
WANTED = {
    "congestion/cut-through.yaml": ["messages"],  # latencies
    "congestion/deadlock.yaml": ["buffers"],  # a small buffer, so that pauses come early
    "congestion/ecn-thresholds.yaml": ["congestion control"],  # sweeps thresholds that are too low, too
    "congestion/long-cables.yaml": ["buffers"] * 6,  # compares headroom that is too small, too
    "congestion/pause-storm.yaml": ["buffers", "buffers", "uplinks"],
    "congestion/pfc-victim.yaml": ["uplinks"],  # the victim is on the full uplink
    "congestion/paths/slow-path.yaml": ["uplinks"],
    "offload/best-effort-loss.yaml": ["uplinks", "uplinks"],  # of several jobs at once
    "offload/slots.yaml": ["slots"] * 7,  # sweeps them
    "offload/two-jobs.yaml": ["slots"],  # likewise
    "topology/torus-host-cable.yaml": ["messages", "messages"],  # latencies
}


def found(topology: str, workload: str = "", fabric: str = "", transport: str = "{}", rest: str = "") -> list[Finding]:
    steps = f"workload:\n  - {workload}\n" if workload else ""
    return review(
        loads(f"name: t\nfabric:\n  topology: {topology}\n{fabric}transport: {transport}\n{steps}{rest}", "t.yaml")
    )


def checks(*given: str, **more: str) -> list[str]:
    return [f.check for f in found(*given, **more)]


STAR = "{star: {hosts: 4}}"
RAIL = "{rail: {servers: 2, gpus: 4, spines: 4}}"


FOLDERS = ("congestion", "control", "offload", "smartnic", "topology")
FILES = [
    EXPERIMENTS / "quickstart.yaml",
    *(f for folder in FOLDERS for f in sorted((EXPERIMENTS / folder).glob("*.yaml"))),
]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(EXPERIMENTS)))
def test_ready_experiments_are_well_made(file: Path) -> None:
    assert [f.check for f in review(load(file))] == WANTED.get(str(file.relative_to(EXPERIMENTS)), [])


def test_rails_are_crossed_where_the_order_of_ranks_says_so() -> None:
    ring = "{collective: all_reduce, algorithm: ring, sizes: [1MiB]%s}"
    assert checks(RAIL, ring % "") == []
    assert checks(RAIL, ring % ", ranks: [0, 1, 5, 4]") == []  # 1 -> 5 and 4 -> 0 stay on their rails
    (one,) = found(RAIL, ring % ", ranks: [0, 1, 4, 5]")
    assert one.check == "rails" and one.where == "t.yaml:6: workload[0]"
    assert "all_reduce by ring: 100% of what goes between servers crosses rails" in one.what
    assert "rank 1 on rail 1 -> rank 4 on rail 0" in one.what
    groups = ", groups: [[0, 4], [1, 6]]"
    (one,) = found(RAIL, ring % groups)
    assert one.where == "t.yaml:6: workload[0].groups[1]"
    assert checks(RAIL, "flows: [{from: 0, to: 4, size: 1MB}, {from: 0, to: 1, size: 1MB}]") == []
    assert checks(RAIL, "flows: [{from: 0, to: 5, size: 1MB}, {from: 0, to: 4, size: 3MB}]") == ["rails"]
    assert checks(RAIL, "{collective: all_to_all, sizes: [1MiB]}") == []  # no order of ranks changes that


def test_offloads_that_auto_may_take_and_the_fabric_has_not() -> None:
    auto = "{collective: all_reduce, algorithm: auto, sizes: [1MiB], offloads: true}"
    adders, adding = found(STAR, auto)
    assert adders.where == adding.where == "t.yaml:6: workload[0].offloads"
    assert "in_network: switches have no accelerator" in adders.what and "direct_reduce" in adding.what
    assert found(STAR, auto, fabric="  switch: {accelerator: {}}\n  nic: {kind: on_path}\n") == []
    assert checks(STAR, auto.replace(", offloads: true", "")) == []


def test_slots_for_less_than_a_round_trip() -> None:
    """On a star of 4: 256 elements take 22.6 ns of a cable, and 2,600 ns there and back."""
    few = "{collective: all_reduce, algorithm: in_network, sizes: [4MiB], dtype: int32, slots: %d%s}"
    (one,) = found("{star: {hosts: 4}}", few % (16, ""))
    assert one.check == "slots" and one.what.endswith("16 slots of a tree are 14% of a round trip at line rate")
    assert one.hint.startswith("slots: 115 of the step") and one.where == "t.yaml:6: workload[0]"
    (two,) = found("{star: {hosts: 4}}", few % (16, ", trees: 2"))
    assert "8 slots of a tree are 14%" in two.what and two.hint.startswith("slots: 116 of the step")
    assert found("{star: {hosts: 4}}", few % (115, "")) == []
    assert found("{star: {hosts: 4}}", few.replace("4MiB", "16KiB") % (16, "")) == [], "no more blocks than slots"
    (pool,) = found(
        "{star: {hosts: 4}}", few.split(", slots")[0] + "}", fabric="  switch: {accelerator: {slots: 64}}\n"
    )
    assert "64 slots" in pool.what


@pytest.mark.parametrize(
    ("cc", "seen"),
    [("none", True), ("dcqcn", True), ("timely", True), ("{none: {window: 200KB}}", False), ("nscc", False),
     ("ndp", False), ("hpcc", False)],
)  # fmt: skip
def test_trimmed_packets_of_controls_without_a_window(cc: str, seen: bool) -> None:
    trims = "  switch: {pfc: false, trimming: {classes: [%d]}}\n  nic: {pfc: false}\n"
    flows = "flows: [{from: 0, to: 4, size: 1MB}]"
    told = [f for f in found(RAIL, flows, trims % 3, f"{{cc: {cc}}}") if f.check == "trimming"]
    assert bool(told) == seen and all("has no window" in f.what for f in told)
    assert "trimming" not in checks(RAIL, flows, trims % 2, f"{{cc: {cc}}}")


@pytest.mark.parametrize(
    ("topology", "classes", "seen"),
    [("{torus: {dims: [3, 3]}}", "[3]", True), ("{torus: {dims: [3, 3]}}", "[3, 4]", False), (STAR, "[3]", False)],
)
def test_trimming_of_one_of_the_two_classes_of_a_dateline(topology: str, classes: str, seen: bool) -> None:
    trims = f"  switch: {{pfc: false, trimming: {{classes: {classes}}}}}\n  nic: {{pfc: false}}\n"
    told = [f for f in found(topology, "", trims, "{cc: nscc}") if f.check == "trimming"]
    assert bool(told) == seen and all("class 4" in f.what and f.hint == "classes: [3, 4]" for f in told)


def test_without_a_scale_up_domain_neighbours_in_a_server_cross_rails_too() -> None:
    ring = "{collective: all_reduce, algorithm: ring, sizes: [1MiB]}"
    (one,) = found(RAIL, ring, fabric="  scale_up: null\n")
    assert one.check == "rails" and "75%" in one.what  # 6 of the 8 hops of the ring


def test_uplinks_narrower_than_what_is_sent_over_them() -> None:
    clos = "{clos: {leaves: 2, spines: %d, hosts_per_leaf: 4}}"
    everybody = "{collective: all_to_all, sizes: [1MiB]}"
    # four ranks send 4 of 7 parts each to the other leaf: 2.29 x a cable's rate
    assert checks(clos % 4, everybody) == []
    (one,) = found(clos % 2, everybody)
    assert "ranks at leaf0, leaf1 send 1.14 x what their uplinks carry (2 x 400Gbps)" in one.what
    assert checks(clos % 1, "{collective: all_reduce, algorithm: ring, sizes: [1MiB]}") == []  # one hop each way
    faster = "  cables: {'cable:leaf0-spine0': {rate: 800Gbps}, 'cable:leaf1-spine0': {rate: 1600Gbps}}\n"
    (one,) = found(clos % 1, everybody, fabric=faster)
    assert "ranks at leaf0 send 1.14 x what their uplinks carry (1 x 800Gbps)" in one.what
    one, *_ = found(clos % 2, everybody, fabric="  cables: {'cable:leaf0-spine0': {rate: 40Gbps}}\n")
    assert "ranks at leaf0 send 2.08 x what their uplinks carry (1 x 40Gbps and 1 x 400Gbps)" in one.what
    half = "load: {pattern: permutation, load: 0.5, flows: 8, size: 1MB}"
    assert checks(clos % 4, half) == []


def test_groups_of_tasks_by_what_they_send_and_where_they_are() -> None:
    rail = "{rail: {servers: 2, gpus: 2, spines: 2}}"
    step = "tasks: {groups: {tp: %s, dp: %s}, list: [{id: t, collective: all_reduce, group: tp, size: 16MiB}, "
    step += "{id: d, collective: all_reduce, group: dp, size: 1MiB}, {id: m, send: 1MiB, to: 3, ranks: [0]}, "
    step += "{id: r, recv: 1MiB, from: 0, ranks: [3]}]}"
    inside, along, across = "[[0, 1], [2, 3]]", "[[0, 2], [1, 3]]", "[[0, 3], [1, 2]]"
    assert checks(rail, step % (inside, along)) == []
    (one,) = found(rail, step % (along, inside))
    assert one.check == "placement" and one.where == "t.yaml:6: workload[0].tasks.groups.tp"
    assert (
        "a rank of group 'tp' sends 16.78 MB in the group, which leaves the scale-up domain; of group 'dp'" in one.what
    )
    (one,) = found(rail, step % (inside, across))
    assert one.check == "rails" and one.where == "t.yaml:6: workload[0].tasks.groups.dp"
    small = "tasks: {groups: {dp: [[0, 1]]}, list: [{id: d, collective: all_reduce, group: dp, size: 1KiB}]}"
    assert checks(STAR, small) == ["messages"]
    clos = "{clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}"
    leaf0, leaf1 = found(clos, step % (along, inside))  # rank 0's message goes there, too: they differ
    assert {leaf0.check, leaf1.check} == {"uplinks"} and "group 'tp': ranks at leaf0 send 1." in leaf0.what


def test_training_steps_by_their_groups() -> None:
    step = "train: {model: {layers: 2, hidden: 256, heads: 4, seq: 4096}, gpu: {flops: 100T}, parallel: %s, place: %s}"
    rail = "{rail: {servers: 2, gpus: 2, spines: 2}}"
    plan = "{tensor: 2, data: 2}"
    assert checks(rail, step % (plan, "{tensor: scale_up, data: rail}")) == []
    (one,) = found(rail, step % (plan, "{tensor: rail, data: scale_up}"))
    assert one.check == "placement" and "a rank of group 'tensor' sends" in one.what
    # gradients of a wide model are more than activations of few tokens, but activations are waited for more often
    wide = step.replace("seq: 4096", "seq: 128").replace("hidden: 256", "hidden: 1024")
    assert checks(rail, wide % (plan, "{tensor: scale_up, data: rail}")) == []


@pytest.mark.parametrize(
    ("nic", "expected", "said"),
    [
        ("{mtu: 4096}", [], ""),
        ("{mtu: 1024}", [], ""),
        ("{mtu: 9000}", ["mtu"], "no RoCE NIC has a path MTU of 9000 bytes"),
        ("{mtu: 256}", ["mtu"], "headers take 28%"),
        ("{rx_buffer: 64KiB}", ["buffers"], "receive buffer of 65.54 KB"),
        ("{pfc: false}", ["classes"], "switches send pauses, and NICs do not heed them"),
    ],
)
def test_nics(nic: str, expected: list[str], said: str) -> None:
    told = found(STAR, fabric=f"  nic: {nic}\n")
    assert [f.check for f in told] == expected
    assert said in "".join(f.what for f in told)


@pytest.mark.parametrize(
    ("switch", "transport", "expected", "said"),
    [
        ("{headroom: 10KB}", "{}", ["buffers"], "lossless classes will lose frames"),
        (
            "{headroom: 10KB, pfc: false}",
            "{recovery: selective_repeat}",
            ["classes"],
            "NICs send pauses, and switches do not",
        ),
        ("{buffer: 1MB}", "{}", ["buffers"], "PFC always comes first"),
        ("{buffer: 100KB}", "{}", ["buffers"], "headroom and reserve of"),
        ("{}", "{dscp: 12}", ["classes", "classes"], "DSCP 12"),
        ("{lossless: [4]}", "{}", ["classes"], "go_back_n sends all again"),
        ("{lossless: [4]}", "{recovery: selective_repeat}", [], ""),
        ("{ecn: null}", "{cc: dcqcn}", ["classes"], "dcqcn goes by ECN marks, and class 3 of its data is not marked"),
        ("{ecn: {classes: [4]}}", "{cc: dctcp}", ["classes"], "is not marked"),
        ("{ecn: null}", "{cc: swift}", [], ""),
        ("{ecn: {kmin: 10KB, kmax: 10KB}}", "{cc: dctcp}", ["congestion control"], "a seventh of the bandwidth"),
        ("{}", "{cc: {none: {window: 1KB}}}", ["congestion control"], "one flow cannot fill the line"),
        ("{}", "{cc: {dcqcn: {set: connectx5}}}", ["congestion control"], "at 400Gbps these parameters take 1200 ms"),
        ("{}", "{cc: {dcqcn: {set: scaled}}}", [], ""),
        (
            "{}",
            "{cc: {swift: {base_target: 1us, hop_scale: 0s}}}",
            ["congestion control"],
            "below the idle round trip",
        ),
        ("{}", "{cc: {timely: {min_rate: 400Gbps}}}", ["congestion control"], "never slows down"),
    ],
)
def test_switches_and_transport(switch: str, transport: str, expected: list[str], said: str) -> None:
    told = found(STAR, fabric=f"  switch: {switch}\n", transport=transport)
    assert [f.check for f in told] == [c for c in expected if c], told
    assert said in "".join(f.what for f in told), told


@pytest.mark.parametrize("control", ["none", "dcqcn", "dctcp", "timely", "swift", "hpcc", "nscc"])
@pytest.mark.parametrize("rate", ["25Gbps", "100Gbps", "400Gbps", "800Gbps"])
def test_defaults_of_controls_fit_every_rate(control: str, rate: str) -> None:
    fabric = f"  cable: {{rate: {rate}}}\n  nic: {{pcie: {{rate: 2Tbps}}}}\n"
    assert (
        checks("{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}", fabric=fabric, transport=f"{{cc: {control}}}") == []
    )


def test_messages_below_a_packet_but_not_where_they_are_the_point() -> None:
    (one,) = found(STAR, "{collective: all_reduce, algorithm: ring, sizes: [1KiB, 8KiB]}")
    assert one.check == "messages" and one.where == "t.yaml:6: workload[0].sizes"
    assert "no message is larger than 2.048 KB, and a packet holds 4096 bytes" in one.what
    assert checks(STAR, "{collective: all_reduce, algorithm: ring, sizes: [1KiB, 16KiB]}") == []
    assert checks(STAR, "{collective: ping_pong, sizes: [8B], ranks: [0, 1]}") == []
    assert checks(STAR, "{collective: barrier}") == []


def test_memory_of_a_worker_and_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    step = "{collective: all_reduce, algorithm: ring, sizes: [1GiB]}"
    (one,) = found(STAR, step)
    assert one.check == "memory" and "a worker may use 1.074 GB" in one.what and one.hint == "workers: {memory: 2GiB}"
    here = available_bytes()
    assert here is not None and here > 1 << 20
    monkeypatch.setattr("testbed.checklist.hosts.available_bytes", lambda: 1 << 30)
    (one,) = found(STAR, step, rest="workers: {memory: 4GiB}\n")
    assert "all ranks together register 7.516 GB, this machine has 1.0 GiB to spare" in one.what


def test_every_collective_and_algorithm_has_its_pairs() -> None:
    """What leaves a rank is what the schedules say: of a ring 2 (n-1)/n of the vector, to the next one only."""
    text = "name: t\nfabric: {topology: {star: {hosts: 4}}}\nworkload:\n"
    steps = "".join(
        f"  - {{collective: all_reduce, algorithm: {name}, sizes: [1MiB], ranks: [2, 0, 1, 3]}}\n"
        for name in ("ring", "direct_reduce", "in_network", "auto")
    )
    ring, engines, network, auto = exchanges(loads(text + steps))
    assert ring.sent == dict.fromkeys([(2, 0), (0, 1), (1, 3), (3, 2)], 3 * (1 << 20) // 2)
    assert engines.sent == ring.sent and not network.sent and auto.sent
    assert ring.largest == 1 << 18 and ring.memory == (1 << 20) + 3 * (1 << 18)


def test_a_sweep_is_looked_at_point_by_point() -> None:
    rest = "sweep:\n  fabric.nic.mtu: [256, 4096, 9000]\n  transport.cc: [none, dcqcn]\n"
    told = found(STAR, fabric="  switch: {ecn: null}\n", rest=rest)
    assert [(f.check, f.what.rpartition("[")[2]) for f in told] == [
        ("mtu", "2 of 6 points, first mtu 256, cc none]"),
        ("mtu", "2 of 6 points, first mtu 9000, cc none]"),
        ("classes", "3 of 6 points, first mtu 256, cc dcqcn]"),
    ]
    assert told[0].where == "t.yaml:2: fabric.nic.mtu"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("name: e\nfabric:\n  topology: {star: {hosts: 2}}\n  nic: {mtu: 9000}\n")

    def testbed(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["checklist", *words])
        return (int(ended.value.code or 0), *capsys.readouterr())

    code, printed, _ = testbed(str(file))
    assert code == 0
    assert (
        f"look  mtu: no RoCE NIC has a path MTU of 9000 bytes\n      at: {file}:4: fabric.nic.mtu\n      do: "
        in printed
    )
    assert printed.endswith("e.yaml: 1 thing to look at\n") and printed.count("ok    ") == len(CHECKS) - 1
    assert testbed(str(file), "--strict")[0] == 1
    assert testbed(str(file), "--strict", "--set", "fabric.nic.mtu=4096")[0] == 0
    code, printed, _ = testbed(str(file), "--json")
    told: dict[str, Any] = json.loads(printed)
    assert code == 0 and [f["check"] for f in told["findings"]] == ["mtu"] and told["checks"] == list(CHECKS)
    assert testbed(str(tmp_path / "none.yaml"))[0] == 2


def test_what_a_training_step_holds_of_its_gpu() -> None:
    """16 bytes a parameter: 2 and 2 in bfloat16, and Adam's 12 (Rajbhandari et al. 2020, section 3.1)."""
    model, gpu = "{preset: gpt2, seq: 128, vocab: 0}", "{flops: 100T, memory: %s}"
    step = f"train: {{model: {model}, gpu: {gpu}, parallel: {{data: 4}}, recompute: full}}"
    star = "{star: {hosts: 4}}"
    text = f"name: t\nfabric: {{topology: {star}}}\nworkload:\n- {step % '16GB'}\n"
    told = figures(loads(text))["GPU memory"]
    gpt2 = 124_439_808 - 50257 * 768 - 1024 * 768 - 2 * 768  # as it is published, without tables and the last norm
    assert f"(parameters {2 * gpt2 / 1e6:.4g} MB, gradients {2 * gpt2 / 1e6:.4g} MB, optimizer " in told[0]
    assert f"optimizer {12 * gpt2 / 1e9:.4g} GB" in told[0] and " of 16 GB (" in told[0]
    assert checks(star, step % "1.5GB") == ["GPU memory"]
    assert checks(star, step % "16GB") == []


def test_cables_that_are_faster_than_pcie() -> None:
    (one,) = found(STAR, fabric="  cable: {rate: 800Gbps}\n")
    assert one.check == "PCIe" and "PCIe carries 512Gbps of payload" in one.what
    assert checks(STAR, fabric="  cable: {rate: 800Gbps}\n  nic: {pcie: {rate: 1Tbps}}\n") == []


def test_flows_that_pass_more_switches_than_hpcc_hears_of() -> None:
    """They are named; those that pass fewer are not."""
    ring = "{ring: {nodes: 16}}"
    flows = "flows: [{from: 0, to: 8, size: 1MB}, {from: 0, to: 1, size: 1MB}]"
    (one,) = found(ring, flows, transport="{cc: {hpcc: {hops: 5}}}")
    assert one.check == "congestion control" and "0->8 (9 switches)" in one.what and "0->1" not in one.what
    assert checks(ring, flows, transport="{cc: hpcc}") == []
