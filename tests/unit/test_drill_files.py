"""Drill files: what they say, what is wrong in them; answers; places that a seed draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from drills.check.check import check
from drills.sheet import file
from drills.sheet.answer import Claim, parse
from drills.sheet.carried import measured, possible
from drills.sheet.case import Case, healthy_by_seed, seed_of
from drills.sheet.places import Ground, draw_all
from testbed.base.errors import InputError
from testbed.experiment import loads
from tests.pages import drills as page_of_drills
from tests.parts.doc_examples import Block, blocks
from topologies import build

GOOD = """
title: Steps take longer
level: easy
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}}
transport: {cc: dcqcn}
job: {collective: all_reduce, algorithm: ring, size: 64KiB, ranks: all, compute: 20us}
draw: {bad: {any: cable, between: [leaf, spine], carries: job}}
faults:
  - {fault: loss, on: $bad, rate: 0.02}
"""


def of(text: str, seed: str = "7Q4", *, healthy: bool | None = False) -> Case:
    return Case.of(file.loads(text, "d.yaml"), seed, healthy)


def drawn(text: str, seed: str = "7Q4", *, healthy: bool | None = False):
    case = of(text, seed, healthy=healthy)
    return case.draw(possible(case.experiment))


def refused(text: str) -> str:
    with pytest.raises(InputError) as error:
        of(text)
    return f"{error.value.where}: {error.value.what} ({error.value.hint})"


@pytest.mark.parametrize("name", file.catalogue())
def test_every_drill_of_the_catalogue_can_be_drawn(name: str) -> None:
    drill = file.load(name)
    assert drill.id == name and drill.evidence
    Case.of(drill, "1", healthy=False)
    case = Case.of(drill, "7Q4", healthy=False)
    places = case.draw(possible(case.experiment))
    assert len(places.truth) == len(drill.faults)
    for cause in places.truth:
        parse(str(cause), case.experiment.build_fabric())  # the grammar can say it


def test_a_seed_draws_the_same_places_and_another_seed_others() -> None:
    assert drawn(GOOD).places == drawn(GOOD).places
    assert len({drawn(GOOD, seed).places["bad"] for seed in "123456789ABCDEF"}) == 4


def test_the_truth_follows_from_the_faults() -> None:
    (cause,) = drawn(GOOD).truth
    assert cause.kind == "loss"
    assert cause.place.startswith("cable:leaf") and {r.partition(":")[0] for r in cause.resources} == {"cable", "port"}


def test_a_healthy_case_has_the_same_places_and_no_fault() -> None:
    text = GOOD + "benign: [{counter: rx_crc_errors, on: $bad, value: 17}]\n"
    sick, well = drawn(text), drawn(text, healthy=True)
    assert sick.places == well.places and sick.old == well.old
    assert (well.faults, well.truth) == ((), ())
    drill = file.loads(GOOD)
    assert 10 < sum(healthy_by_seed(drill, str(k)) for k in range(100)) < 30  # one in five


def test_faults_begin_when_the_warm_up_ends_unless_they_say_so() -> None:
    (fault,) = drawn(GOOD).faults
    assert fault.at == 300_000
    (fault,) = drawn(GOOD.replace("rate: 0.02", "rate: 0.02, at: 50us")).faults
    assert fault.at == 50_000 and of(GOOD.replace("rate: 0.02", "rate: 0.02, at: 50us")).first_fault_ns == 50_000


def test_drawn_places_become_what_a_parameter_takes() -> None:
    text = GOOD.replace("{any: cable, between: [leaf, spine], carries: job}}", "{any: switch, role: leaf}, "
        "r: {any: nic, at: $bad}, far: {any: nic, away: $bad}, n: {any: value, of: [3]}, "
        "s: {any: switch, role: spine, at: $c}, c: {any: cable, at: $bad, between: [leaf, spine]}}")  # fmt: skip
    text = text.replace("s: {any: switch, role: spine, at: $c}, c: {any: cable, at: $bad, between: [leaf, spine]}",
        "c: {any: cable, at: $bad, between: [leaf, spine]}, s: {any: switch, role: spine, at: $c}")  # fmt: skip
    loop = text.replace("{fault: loss, on: $bad, rate: 0.02}", "{fault: loop, on: $bad, to: $far, neighbour: $s}")
    found = drawn(loop)
    (fault,) = found.faults
    assert fault.on == found.places["bad"] and fault.fault.to == int(found.places["far"].partition(":")[2])
    leaf = 0 if found.places["bad"] == "switch:leaf0" else 1
    assert int(found.places["r"][4:]) // 4 == leaf and int(found.places["far"][4:]) // 4 != leaf
    incast = text.replace("{fault: loss, on: $bad, rate: 0.02}", "{fault: incast, on: $r, senders: [$far], each: $n}")
    (fault,) = drawn(incast).faults
    assert fault.fault.senders == [int(found.places["far"][4:])] and fault.fault.each == 3


def test_places_that_must_differ_do() -> None:
    text = GOOD.replace("carries: job}}", "carries: job}, old: {any: port, role: leaf, facing: spine, not: $bad}}")
    for seed in "12345":
        places = drawn(text, seed).places
        fabric = of(text).experiment.build_fabric()
        assert Ground(fabric, ()).cable(places["old"]) != Ground(fabric, ()).cable(places["bad"])


def test_an_earlier_place_moves_on_if_a_later_one_finds_none() -> None:
    """Only spine1 has a cable that carries: whatever the seed says first, `s` ends there."""
    drill = file.loads(GOOD.replace("{bad: {any: cable, between: [leaf, spine], carries: job}}",
        "{s: {any: switch, role: spine}, bad: {any: cable, at: $s, carries: job}}"))  # fmt: skip
    ground = Ground(of(GOOD).experiment.build_fabric(), {"cable:leaf0-spine1"})
    for seed in "12345678":
        assert draw_all(drill.draw, ground, seed) == {"s": "switch:spine1", "bad": "cable:leaf0-spine1"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[leaf, spine]", "[leaf, core]", "d.yaml:7: draw.bad.between: no cable is between leaf and core "
         "(cables of this fabric are between leaf-nic, leaf-spine)"),
        ("between: [leaf, spine]", "role: leaf", "d.yaml:7: draw.bad.role: `role` says nothing of a cable"),
        ("any: cable", "any: cabel", "d.yaml:7: draw.bad.any: unknown any 'cabel' (did you mean 'cable'?"),
        ("on: $bad", "on: $worse", "d.yaml:9: faults[0].on: $worse is not drawn (drawn are $bad"),
        ("rate: 0.02", "rate: 2", "d.yaml:9: faults[0].rate: 2 is out of bounds (must be at most 1)"),
        ("fault: loss", "fault: los", "d.yaml:9: faults[0].fault: unknown fault 'los' (did you mean 'loss'?"),
        ("fault: loss, on: $bad, rate: 0.02", "fault: straggler, on: $bad, factor: 2",
         "d.yaml:9: faults[0].on: straggler does not strike a cable (it strikes: nic, all)"),
        ("level: easy", "level: simple", "d.yaml:3: level: unknown level 'simple' (known: easy, medium, hard)"),
        ("clos: {leaves: 2", "clos: {leafs: 2", "d.yaml:4: fabric.topology.clos.leafs:"),
        ("size: 64KiB", "size: 64Kibi", "d.yaml:6: job[0]"),
        ("ring", "rign", "d.yaml:6: job[0]"),
        ("cc: dcqcn", "cc: dcqc", "d.yaml:5: transport.cc: "),
        ("title: Steps", "titel: Steps", "d.yaml:2: titel: unknown key 'titel' (did you mean 'title'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(old: str, new: str, said: str) -> None:
    assert old in GOOD
    text = refused(GOOD.replace(old, new))
    assert text.startswith(said), text


def test_a_place_that_carries_nothing_is_refused() -> None:
    """A pair of ranks at one leaf: no uplink has data of theirs."""
    text = GOOD.replace("ranks: all", "ranks: [0, 1]")
    assert refused(text).startswith("d.yaml:7: draw.bad.carries: data of the job pass no such cable (")


def test_where_data_of_a_job_may_pass() -> None:
    text = GOOD.replace("ranks: all", "ranks: [0, 1]").replace(", carries: job", "")
    assert {p for p in possible(of(text).experiment) if p.startswith(("cable", "nic", "switch"))} == {
        "cable:h0-leaf0", "cable:h1-leaf0", "nic:0", "nic:1", "switch:leaf0",
    }  # fmt: skip
    torus = loads(
        "name: t\nfabric: {topology: {torus: {dims: [4, 4]}}}\nworkload: [{flows: [{from: 0, to: 5, size: 1MB}]}]"
    )
    cables = {p for p in possible(torus) if p.startswith("cable:sw")}
    assert cables == {"cable:sw0-0-sw1-0", "cable:sw1-0-sw1-1"}  # dimension order: one way, not both


def test_counters_say_where_data_have_passed() -> None:
    experiment = of(GOOD).experiment
    fabric = experiment.build_fabric()
    ports = [{"node": end.node, "port": end.port, "tx_bytes": 0} for c in fabric.cables for end in (c.a, c.b)]
    busy = fabric.cable("leaf0-spine1")
    for port in ports:
        if (port["node"], port["port"]) == (busy.a.node, busy.a.port):
            port["tx_bytes"] = 1_000_000
        elif port["node"] == "spine0":
            port["tx_bytes"] = 9_000  # acknowledgements
    places = measured(fabric, experiment, ports)
    assert {p for p in places if p.startswith("cable")} == {"cable:leaf0-spine1"}


def test_a_job_with_computation_is_tasks() -> None:
    (step,) = of(GOOD).experiment.workload
    assert step.kind == "tasks" and [t.does for t in step.tasks.tasks] == ["compute", "collective"]
    (plain,) = of(GOOD.replace(", compute: 20us", "")).experiment.workload
    assert plain.kind == "collective" and plain.sizes == [65536] and plain.ranks is None


def test_ranks_of_which_one_is_killed_share_no_process() -> None:
    killed = GOOD.replace("fault: loss, on: $bad, rate: 0.02", "fault: worker_killed, on: $bad").replace(
        "any: cable, between: [leaf, spine]", "any: nic"
    )
    assert of(killed).experiment.workers.ranks_per_process == 1
    assert of(GOOD).experiment.workers.ranks_per_process == "auto"


def test_answers() -> None:
    fabric = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 4})
    assert parse("healthy", fabric).healthy
    found = parse("loss@cable:spine0-leaf0, incast@nic:3", fabric)
    assert found.claims == (Claim("loss", "cable:leaf0-spine0"), Claim("incast", "nic:3"))
    assert parse("loss@nic:1 loss@nic:1", fabric).claims == (Claim("loss", "nic:1"),)
    as_shown = parse("loss@leaf0-spine0 pause_storm@h6 pfc_off@leaf0:3 ecn_off@leaf1", fabric)
    assert [claim.place for claim in as_shown.claims] == ["cable:leaf0-spine0", "nic:6", "port:leaf0:3", "switch:leaf1"]


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("", "an answer is missing", "healthy, or CLASS@PLACE"),
        ("loss", "'loss' names no place", "CLASS@PLACE"),
        ("los@nic:1", "unknown class 'los'", "did you mean 'loss'?"),
        ("loss@cable:leaf0-spine9", "cable:leaf0-spine9: there is no such cable", "leaf0-spine"),
        ("loss@nic:8", "nic:8: there is no rank 8", "ranks 0 to 7"),
        ("loss@leaf9", "leaf9: there is no such target", "cable:A-B"),
        ("healthy loss@nic:1", "either it is healthy or something is wrong", "CLASS@PLACE"),
    ],
)
def test_wrong_answers_say_what_is_allowed(text: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}))
    assert what in error.value.what and hint in error.value.hint


def test_all_that_is_wrong_with_an_answer_is_said_at_once() -> None:
    with pytest.raises(InputError) as error:
        parse("los@nic:1 loss@nic:99", build("star", {"hosts": 4}))
    assert len(error.value.also) == 1


def test_seeds() -> None:
    assert seed_of("7q4") == "7Q4" and seed_of("oil") == "011"
    with pytest.raises(InputError):
        seed_of("no/path")


def test_what_no_seed_can_draw_is_said_once_with_what_was_meant() -> None:
    found = check(file.loads(GOOD.replace("fault: loss", "fault: losss"), "d.yaml"), "7Q4")
    assert found.wrong == ["unknown fault 'losss' (d.yaml:9: faults[0].fault); did you mean 'loss'?"]


def test_an_unknown_drill_names_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        file.load("lost/dirty-optic")
    assert "did you mean 'lost/dirty-optics'?" in error.value.hint
    with pytest.raises(InputError, match="no such file"):
        file.load(str(tmp_path / "none.yaml"))


def test_the_page_for_authors_is_up_to_date() -> None:
    assert page_of_drills.tables() in page_of_drills.PAGE.read_text(), "run python -m tests.pages.drills"


DRILLS = [
    b for page in sorted(page_of_drills.PAGE.parent.glob("*.md")) for b in blocks(page) if b.language == "yaml drill"
]


@pytest.mark.parametrize("block", DRILLS, ids=lambda block: block.place)
def test_a_pages_drill_can_be_drawn(block: Block) -> None:
    assert len(drawn(block.text).truth) == 1
