"""Drills that a seed makes: what it draws is the same each time and can be drawn; what is measured of signatures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from drills.check.check import ENOUGH
from drills.check.probes import MESH
from drills.check.symptom import symptom
from drills.make import measure, new, signs
from drills.make.new import NoDrill
from drills.make.signatures import drill_of, struck, table
from drills.make.sketch import CHECKED, plain, sketch
from drills.make.stock import FAMILIES, HINTS, RECIPES, SETTINGS
from drills.sheet import file
from drills.sheet.answer import parse
from drills.sheet.carried import possible
from drills.sheet.case import ALPHABET, Case
from drills.sheet.drill import LEVELS
from drills.sheet.families import sight_name
from drills.sheet.score import Conduct, score
from drills.sheet.truth import Cause
from testbed.base.errors import InputError
from testbed.commands.drill import command

seeds = st.text(alphabet=ALPHABET, min_size=1, max_size=12)
PLAIN = "wjh true"


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([None, *LEVELS]), st.sampled_from([None, *FAMILIES]))
def test_a_seed_draws_a_drill_that_can_be_drawn_and_always_the_same(seed: str, level: str, family: str) -> None:
    if (level, family) == ("easy", "controller"):
        with pytest.raises(InputError, match="comes and goes"):
            sketch(seed, level, family)
        return
    its = sketch(seed, level or ("medium" if family == "controller" else None), family)
    level = its.aim if family == "controller" else level
    text = its.text("Steps take longer", "", its.aim, ["`show job`"])
    assert sketch(seed, level, family).text("Steps take longer", "", its.aim, ["`show job`"]) == text
    assert level in (None, its.aim) and family in (None, its.recipes[0].family)
    drill = file.loads(text, "made.yaml")
    case = Case.of(drill, seed, healthy=False)
    drawn = case.draw(possible(case.experiment))
    assert [cause.kind for cause in drawn.truth] == [recipe.fault for recipe in its.recipes]
    assert len({cause.place for cause in drawn.truth}) == len(drawn.truth)
    assert drill.asks_to_fix == all(recipe.mends for recipe in its.recipes)
    assert (its.aim == "easy") <= (not its.twists and len(its.recipes) == 1)
    assert any(recipe.pulses for recipe in its.recipes) == ("comes and goes" in its.twists)


def test_other_seeds_draw_other_drills() -> None:
    drawn = [sketch(f"{k}C") for k in range(200)]
    assert len({one.text("A job hangs", "", one.aim, []) for one in drawn}) > 190
    assert {one.setting.name for one in drawn} == {*SETTINGS} and {one.aim for one in drawn} == {*LEVELS}
    assert {recipe.family for one in drawn for recipe in one.recipes} == {*FAMILIES} == {*HINTS}
    assert any(len(one.recipes) == 2 for one in drawn)


def test_places_of_a_file_do_not_depend_on_its_name() -> None:
    text = sketch("7Q4").text("A job hangs", "", "easy", [])
    cases = [Case.of(file.loads(text, "d.yaml", id=name), "7Q4", healthy=False) for name in ("a", "b")]
    one, other = (case.draw(possible(case.experiment)).places for case in cases)
    assert one == other


@pytest.mark.parametrize("name", SETTINGS)
def test_the_table_has_what_can_strike_a_setting(name: str) -> None:
    there = []
    for key in struck(name):
        try:
            Case.of(drill_of(plain(SETTINGS[name], RECIPES[key])), CHECKED, healthy=False)
        except InputError:
            continue
        there.append(key)
    assert {sight: sorted(rows) for sight, rows in table(name).items()} == {
        sight_name(sight): sorted(there) for sight in signs.SIGHTS
    }, f"python -m drills.make.signatures {name}"


def test_a_golden_configuration_shows_less() -> None:
    true, golden = table("lossless")[PLAIN]["pfc_off"], table("lossless")["wjh golden"]["pfc_off"]
    assert golden < true and any(column.startswith("pfc config") for column in true - golden)


def test_the_table_has_what_probes_show() -> None:
    """All that a longer cable changes is how long messages take."""
    for sight in map(sight_name, signs.SIGHTS):
        for key in ("long_cable", "jitter"):
            assert any(column.startswith(f"{MESH}.") for column in table("ring")[sight][key]), (sight, key)
        assert not any(column.startswith(f"{MESH}.") for column in table("ring")[sight]["silent_corruption"])


def columns(*names: str) -> frozenset[str]:
    return frozenset(f"{name}.t.c" for name in names)


ROWS = {
    "loss": columns("job", "interfaces errors", "nics", "drops"),
    "corrupt_uplink": columns("job", "interfaces errors", "nics"),
    "reduced_rate": columns("job", "interfaces status"),
    "jitter": columns("job", "probe mesh"),
    "long_cable": columns("job", "probe mesh"),
}


def test_difficulty_counts_what_the_first_looks_leave_and_the_views_that_are_needed() -> None:
    places = {"loss": 3, "corruption": 5, "reduced_rate": 12, "jitter": 1, "long_cable": 4}
    loss = measure.measured(ROWS["loss"], "loss", ROWS, places.__getitem__)
    assert (loss.classes, loss.hypotheses, loss.rivals) == (("loss", "corruption"), 8, ())
    assert loss.views == ("drops",)
    rate = measure.measured(ROWS["reduced_rate"], "reduced_rate", ROWS, places.__getitem__)
    assert (rate.classes, rate.views, rate.rivals) == (("reduced_rate",), ("interfaces status",), ())
    assert measure.difficulty([rate], 0) == round(math.log2(12), 3)
    assert measure.difficulty([rate, loss], 2) == round(math.log2(12) + math.log2(8) + 1 + 2, 3)
    jitter = measure.measured(ROWS["jitter"], "jitter", ROWS, places.__getitem__)
    assert jitter.rivals == ("long_cable",) and jitter.hypotheses == 5
    assert [measure.level_of(x) for x in (0, 1.9, 2, 3.9, 4)] == ["easy", "easy", "medium", "medium", "hard"]


def test_rivals_of_the_family_do_not_count() -> None:
    assert measure.beyond(["long_cable"], "jitter", "cable", {}, ROWS) == [], "at whole sight they are alike"
    less = {**ROWS, "long_cable": columns("job", "lldp neighbors")}
    assert measure.beyond(["long_cable"], "jitter", "cable", {}, less) == ["long_cable"]
    known = {("cable", "jitter"): frozenset({"jitter", "long_cable"})}
    assert measure.beyond(["long_cable"], "jitter", "cable", known, less) == []
    assert measure.beyond(["long_cable"], "jitter", "switch", known, less) == ["long_cable"], "at another place"


def test_the_first_looks_leave_the_places_that_they_name_or_all_that_a_class_can_strike() -> None:
    case = Case.of(drill_of(plain(SETTINGS["ring"], RECIPES["loss"])), CHECKED, healthy=False)
    ground = measure.Ground(case.experiment.build_fabric(), ())
    end = ground.fabric.cable_by_name["leaf0-spine1"].a
    port = f"port:{end.node}:{end.port}"

    def left(kind: str, named: set[str], narrow: bool = True) -> int:
        return measure.places_left(kind, ground, named, narrow)

    assert left("loss", {port}) == 2, "the cable, and its switch"
    assert left("loss", {"nic:3"}) == 1, "the NIC's own cable"
    assert left("loss", {"nic:3", port}) == 2, "ports tell where, NICs who suffers"
    assert left("loss", {"nic:3"}, narrow=False) == 12 + 4, "it is elsewhere: 12 cables, 4 switches"
    assert left("straggler", {"nic:3"}) == 1 and left("straggler", set(), narrow=False) == 8
    assert left("dead_ecmp_member", {port}) == 2, "both ends of the cable"
    assert left("ecn_off", {port}) == 1 and left("polarised_hash", {port}) == 1
    used = measure.Ground(ground.fabric, ("cable:leaf0-spine1", "cable:h0-leaf0", "switch:leaf0"))
    assert measure.places_left("loss", used, set(), narrow=False) == 3


def test_a_row_names_a_place_by_more_than_the_speed_of_the_job() -> None:
    nics = {"nics": {"nics": [{"rank": k, "tx_bytes_phy": 9, "out_of_sequence": 0} for k in range(3)]}}
    faster = {"nics": {"nics": [{"rank": k, "tx_bytes_phy": 5, "out_of_sequence": int(k == 1)} for k in range(3)]}}
    assert signs.named(faster, nics) == {"nic:1"}
    down = {"interfaces status": {"status": [{"Interface": "leaf0:1", "Oper": "down"}]}}
    up = {"interfaces status": {"status": [{"Interface": "leaf0:1", "Oper": "up"}]}}
    assert signs.named(down, up) == {"port:leaf0:1"}
    one, other = ({"job": {"job": [{"step": "0..4", "slowest_rank": rank}]}} for rank in (2, "-"))
    assert signs.named(one, other) == {"nic:2"} and signs.named(other, one) == set()


@pytest.mark.parametrize(
    ("ill", "job"),
    [
        ([(0, 100, 0), (100, 100, 0), (200, 100, 0), (300, 100, 0)], "same"),
        ([(0, 100, 0), (100, 150, 0), (250, 150, 0)], "slower"),
        ([(0, 100, 0), (100, 100, 0), (200, 170, 0)], "unsteady"),
        ([(0, 100, 0)], "stopped"),
        ([(0, 100, 0), (100, 100, 3), (200, 100, 0)], "wrong"),
    ],
)
def test_what_has_become_of_the_job(ill: list[tuple[float, float, int]], job: str) -> None:
    well = [(100.0 * k, 100.0, 0) for k in range(4)]
    assert symptom(ill, well, 100.0) == job


def test_what_no_view_tells_apart_is_refused_before_a_world_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    its = sketch("7Q4", "easy", "stragglers")
    key = its.recipes[0].key
    other = next(k for k, r in RECIPES.items() if r.fault != its.recipes[0].fault)
    same = {PLAIN: {key: columns("job"), other: columns("job")}}
    monkeypatch.setattr(new, "table", lambda name: same)
    new._must_be_unique(its, drill_of(its))  # alike at whole sight: a family
    monkeypatch.setattr(measure, "indistinct", lambda rows: [])
    with pytest.raises(NoDrill, match=f"not unique: no permitted view tells {RECIPES[key].fault} from"):
        new._must_be_unique(its, drill_of(its))
    monkeypatch.setattr(new, "table", lambda name: {PLAIN: {key: frozenset()}})
    with pytest.raises(NoDrill, match="not activated"):
        new._must_be_unique(its, drill_of(its))


@pytest.mark.parametrize(
    ("speed", "answer", "left"),
    [(2.0, "loss@cable:leaf0-spine0", True), (1.0, "loss@cable:leaf0-spine0", False), (1.0, "healthy", None)],
)
def test_mending_is_not_asked_for_where_it_brings_nothing(
    speed: float, answer: str, left: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = plain(SETTINGS["ring"], RECIPES["loss"])
    drill = drill_of(its)
    fabric = Case.of(drill, CHECKED, healthy=False).experiment.build_fabric()
    truth = (Cause("loss", ("cable:leaf0-spine0",)),)
    course = Conduct(t_ns=5e7, tau_ns=1e6, speed=speed, speed_fault=1.0, speed_mended=2.0)
    given = parse(answer, fabric)
    ending = SimpleNamespace(answer=given, conduct=course, score=score(given, truth, course))
    ill = SimpleNamespace(ending=ending, fabric=fabric, families={}, stage=SimpleNamespace(drawn=SimpleNamespace(
        truth=truth)), case=SimpleNamespace(drill=drill))  # fmt: skip
    wrong = [] if ending.score.total >= ENOUGH else ["too few points"]
    monkeypatch.setattr(new, "solve", lambda game: "healthy")
    monkeypatch.setattr(new, "answers", lambda game: {"thresholds": "healthy"})
    monkeypatch.setattr(new, "solved", lambda game, checked: vars(checked).update(wrong=wrong, score=1.0))
    found = new.MadeDrill("7Q4")
    if left is None:
        with pytest.raises(NoDrill, match="not solvable: too few points"):
            new._must_be_solved(drill, None, ill, found)  # type: ignore[arg-type]
        return
    assert new._must_be_solved(drill, None, ill, found) == left  # type: ignore[arg-type]
    assert found.players["thresholds"].score == 0.0 and (left or found.score == pytest.approx(90.0))
    assert "fix" in its.keys["question"] and its.without_mending().keys["question"] == ["healthy", "where", "what"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "7Q4", "--family", "pcf"], "unknown family 'pcf'"),
        (["--seed", "U"], "is no seed"),
        (["--seeds", "3", "-o", "x.yaml"], "--seeds writes no file"),
        (["--seed", "7Q4", "-o", "/nowhere/x.yaml"], "there is no such folder"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(words: list[str], said: str) -> None:
    result = CliRunner().invoke(command, ["new", *words])
    assert result.exit_code and said in str(result.exception)


@pytest.mark.parametrize("refused", ["", "not solvable: the solver gets 3 points"])
def test_one_seed_is_one_json_object_that_tells_nothing(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = new.MadeDrill("7Q4", "easy", "easy", 1.0, "ring", ("loss",), ("show nics",), 90.0, "a text", refused)
    monkeypatch.setattr(new, "made", lambda *_: its)
    monkeypatch.setattr("testbed.base.errors.require_root", lambda: None)
    one = CliRunner().invoke(command, ["new", "--seed", "7Q4", "--json", "-o", str(tmp_path / "d.yaml")])
    assert one.exit_code == (2 if refused else 0) and isinstance(one.exception, SystemExit | None)
    told = json.loads(one.stdout)
    assert told["seed"] == "7Q4" and told["passes"] == (not refused) and not {"aim", "classes", "views"} & set(told)
    many = CliRunner().invoke(command, ["new", "--seed", "7Q4", "--json", "--seeds", "1"])
    assert json.loads(many.stdout)["classes"] == ["loss"]


def test_the_world_that_was_measured_can_be_started_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = new.MadeDrill("7Q4", "easy", "easy", 1.0, "ring", ("loss",), ("show nics",), 90.0, "a text")
    monkeypatch.setattr(new, "made", lambda *_: its)
    monkeypatch.setattr("testbed.base.errors.require_root", lambda: None)
    out = tmp_path / "d.yaml"
    printed = CliRunner().invoke(command, ["new", "--seed", "7Q4", "-o", str(out)]).stdout
    assert f"testbed drill start {out} --seed 7Q4  #" in printed  # places are drawn by the seed


def test_a_file_and_a_folder_of_that_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").touch()
    for out, said in ((tmp_path, "there is a folder of"), (tmp_path / "d.yaml", "there is a file of")):
        result = CliRunner().invoke(command, ["new", "--seed", "7Q4", "-o", str(out)])
        assert said in str(result.exception)
    result = CliRunner().invoke(command, ["new", "--seed", "7Q4", "-o", str(tmp_path / "none" / "d.yaml")])
    assert "no such folder" in str(result.exception)


def test_what_is_set_and_who_sends_tells_classes_apart_whatever_else_they_share() -> None:
    shared = frozenset(f"nics.nics.c{k}" for k in range(20))
    assert signs.resemble(shared, shared | {"queues.queues.depth"})
    for telling in (
        "nic.pcie.bandwidth",
        "ecn config.ecn.green_min_threshold",
        "traffic.traffic.others",
        "flows.flows.gone",
    ):
        assert not signs.resemble(shared, shared | {telling}), telling
        one, other = columns("job", "nics", "drops"), columns("job", "nics", "queues")
        assert not signs.resemble(one | {telling}, other | {telling}), "what they share of it makes them no more alike"


def test_traffic_of_others_shows_if_it_is_new_however_much_it_is() -> None:
    def seen(*pairs: tuple[int, int], bytes_: int = 1) -> dict[str, dict[str, list[dict[str, object]]]]:
        rows = [{"rank": a, "peer": b, "tenant": "other", "tx_bytes": bytes_} for a, b in pairs]
        job: list[dict[str, object]] = [{"rank": 0, "peer": 1, "tenant": "job", "tx_bytes": bytes_}]
        return {"traffic": {"traffic": job + rows}}

    others = frozenset(["traffic.traffic.others"])
    assert signs.of_others(seen((2, 3)), seen()) == others
    assert signs.of_others(seen((2, 3), bytes_=9), seen((2, 3))) == frozenset()
    assert signs.of_others({}, {}) == frozenset()
    assert others <= signs.signed(seen((2, 3)), seen(), "same")


def test_longer_steps_are_one_sign_whether_some_are_or_all() -> None:
    assert signs.signed({}, {}, "unsteady") == signs.signed({}, {}, "slower") != signs.signed({}, {}, "stopped")


def test_what_shows_nothing_is_refused_before_a_world_is_played() -> None:
    """Short of a configuration that is shown, nothing tells a watchdog that never steps in."""
    its = plain(SETTINGS["lossless"], RECIPES["short_watchdog"])
    new._must_be_unique(its, drill_of(its))
    golden = replace(its, keys={**its.keys, "views": {"drops": "wjh", "config": "golden"}})
    with pytest.raises(NoDrill, match="not activated: short_watchdog"):
        new._must_be_unique(golden, drill_of(golden))


def test_a_configuration_is_golden_only_if_all_that_is_wrong_is_told_by_something_else() -> None:
    drawn = [sketch(f"{k}G") for k in range(400)]
    golden = [one for one in drawn if one.keys["views"]["config"] == "golden"]
    assert golden and all(recipe.configured for one in golden for recipe in one.recipes)


def test_no_recipe_is_refused_for_what_it_is() -> None:
    """Each can be told from all others in its settings, at the least sight that it is drawn with."""
    for key, recipe in RECIPES.items():
        for name in recipe.settings:
            its = plain(SETTINGS[name], recipe)
            config = "golden" if recipe.configured else "true"
            for drops in ("wjh", "counters"):
                one = replace(its, keys={**its.keys, "views": {"drops": drops, "config": config}})
                try:
                    new._must_be_unique(one, drill_of(one))
                except NoDrill as why:
                    pytest.fail(f"{key} in {name}, {drops} {config}: {why}")
