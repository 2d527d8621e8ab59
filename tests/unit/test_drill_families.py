"""Classes that show the same: how two worlds differ, which differences count, what that makes a family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drills.check.looked import SIGHTS
from drills.check.marks import alike, degree, groups, marks, of_job
from drills.check.probes import of_probes
from drills.check.rivals import _with
from drills.sheet import file
from drills.sheet.carried import possible
from drills.sheet.case import Case
from drills.sheet.families import families, load, write

PLACE = ("cable:leaf0-spine0", "port:leaf0:5", "port:spine0:1")


def world(sent: int = 1000, **views: Any) -> dict[str, Any]:
    """Rows of each view's one table; the job has sent so much."""
    tables = {view.replace("_", " "): {"t": rows} for view, rows in views.items()}
    return {"nics": {"nics": [{"rank": 0, "tx_vport_rdma_unicast_bytes": sent}]}, **tables}


def port(name: str, **columns: Any) -> dict[str, Any]:
    return {"IFACE": name, **columns}


@pytest.mark.parametrize(
    ("was", "now", "mark"),
    [
        (0, 1, "new"),
        (100, 0, "gone"),
        (9, 0, ""),  # of so few none may come by chance: 9 = 3 sqrt(9)
        (100, 199, ""),
        (100, 200, "twice"),
        (100, 51, ""),
        (100, 50, "half"),
        (8, 16, ""),  # 8 <= 3 sqrt(16)
        ("up", "down", "is down"),
        ("400G", "100G", "is another"),
        ("to h3", "to h5", "is another"),
    ],
)
def test_how_a_column_differs(was: Any, now: Any, mark: str) -> None:
    found = marks(world(v=[port("leaf0:5", A=now)]), world(v=[port("leaf0:5", A=was)]), PLACE)
    assert found == ({f"v.t.A {mark} here"} if mark else set())


def test_rows_are_compared_by_what_they_are_of() -> None:
    well = world(v=[port("leaf0:5", A=0), port("leaf1:1", A=0)], drops=[])
    ill = world(
        v=[port("leaf1:1", A=7), port("leaf0:5", A=0)],
        drops=[{"node": "spine0", "port": 1, "reason": "crc", "count": 3}],
    )
    assert marks(ill, well, PLACE) == {"v.t.A new elsewhere", "drops.t.crc new here"}
    assert marks(well, ill, PLACE) == {"drops.t.crc gone here"}  # and 7 may be none by chance
    assert marks(ill, well, ("nic:1",)) == {"v.t.A new elsewhere", "drops.t.crc new elsewhere"}


@pytest.mark.parametrize(
    ("row", "struck", "where"),
    [
        ({"rank": 3}, "nic:3", "here"),
        ({"rank": 3}, "nic:2", "elsewhere"),
        ({"NIC": "h3 (rank 3)"}, "nic:3", "here"),
        ({"Switch": "leaf0"}, "switch:leaf0", "here"),
        ({"Port": "leaf0:4", "TxQ": "UC3"}, "switch:leaf0", "here"),
        ({"Port": "leaf0:4"}, "port:leaf0:4", "here"),
        ({"Port": "leaf0:4"}, "port:leaf0:5", "elsewhere"),
    ],
)
def test_where_a_row_is(row: dict[str, Any], struck: str, where: str) -> None:
    assert marks(world(v=[{**row, "A": 5}]), world(v=[{**row, "A": 0}]), (struck,)) == {f"v.t.A new {where}"}


def test_traffic_is_compared_for_the_same_work() -> None:
    """At half the speed everything is half, which is one thing and not many; who gets none gets none."""
    well = world(v=[port("leaf0:1", RX_OK=1000, A=1000), port("leaf0:2", RX_OK=1000, A=1000)])
    slow = world(500, v=[port("leaf0:1", RX_OK=500, A=1000), port("leaf0:2", RX_OK=500, A=1000)])
    dead = world(500, v=[port("leaf0:1", RX_OK=1000, A=1000), port("leaf0:2", RX_OK=0, A=500)])
    assert marks(slow, well, PLACE) == set()
    assert marks(dead, well, PLACE) == {f"v.t.{m} elsewhere" for m in ("RX_OK twice", "RX_OK gone", "A half")}


def test_what_says_it_again_does_not_count() -> None:
    well = world(v=[port("leaf0:1", RX_BPS="5 GB/s", RX_UTIL="5%")], job=[{"step": "1", "wrong": 0}])
    ill = world(v=[port("leaf0:1", RX_BPS="N/A", RX_UTIL="9%")], job=[{"step": "2", "wrong": 8}])
    assert marks(ill, well, PLACE) == set()
    row = {"rank": 3, "host_us": 1.4, "wait_us": 5.0, "compute_us": 0.0}
    assert marks(world(r=[{**row, "host_us": 4.2, "wait_us": 50.0}]), world(r=[row]), ("nic:3",)) == {
        "r.t.host_us twice here"
    }


def test_more_or_less_is_no_other_class() -> None:
    plain, deep, rare = frozenset(["v.t.A new here"]), "queues.t.UC3 new here", "v.t.B twice elsewhere"
    assert [degree(mark) for mark in (*plain, deep, rare, "job stopped", "job worse")] == [
        False,
        True,
        True,
        True,
        False,
    ]
    many = frozenset(f"v.t.{k} twice here" for k in range(8))
    assert alike(plain | many | {rare}, plain | many | {rare})
    assert alike(plain | many | {rare}, plain | many), "8 of 9 in common"
    assert not alike(plain | many | {rare, deep, "job stopped"}, plain | many), "8 of 11"
    assert not alike(plain | {rare}, plain), "none of one"
    assert not alike(plain | many, plain | many | {"v.t.B new here"}), "that is no degree"
    assert not alike(frozenset(), frozenset()), "what shows nothing is like no other"


def test_classes_are_alike_if_and_only_if_a_group_has_both() -> None:
    def of(*numbers: int) -> frozenset[str]:
        return frozenset(["x new here", *(f"v.t.{k} twice here" for k in numbers)])

    a, b, c = of(*range(10)), of(*range(9)), of(*range(8))  # 9/10, 8/9; 8/10
    d = of(*range(7))  # 7/8 of c, 7/9 of b
    assert alike(c, d) and not alike(b, d) and not alike(a, d)
    found = groups({"a": a, "b": b, "c": c, "d": d, "e": frozenset(), "f": frozenset(["y new here"])})
    assert found == [["a", "b", "c"], ["c", "d"], ["f"]]
    assert families([("cable", found)])["cable", "c"] == {"a", "b", "c", "d"}
    assert families([("cable", found)])["cable", "d"] == {"c", "d"}
    assert families([("cable", [["c", "d"]]), ("cable", found)])["cable", "d"] == {"c", "d"}, "nor lost by another"


def test_the_job_and_probes_are_marks() -> None:
    assert of_job("same") == set() and of_job("slower") == of_job("unsteady") == {"job worse"}
    assert of_job("stopped") == {"job worse", "job stopped"} and of_job("wrong") == {"job wrong"}
    well: dict[str, float | None] = {"0-1": 2.0, "1-0": 2.0, "0-2": 4.0, "2-0": None}
    assert of_probes({"0-1": 2.8, "1-0": 2.0, "0-2": 4.0, "2-0": None}, well) == set()
    assert of_probes({"0-1": 3.0, "1-0": None, "0-2": 4.0, "2-0": None}, well) == {
        "probe mesh.some longer", "probe mesh.some lost",
    }  # fmt: skip
    assert of_probes({"0-1": 9.0, "1-0": 9.0, "0-2": 9.0}, well) == {"probe mesh.most longer"}


def test_a_family_was_together_somewhere_and_apart_nowhere() -> None:
    worlds = [
        ("cable", [["a", "b", "c"], ["d"]]),
        ("cable", [["b"], ["c"], ["d", "e"]]),
        ("switch", [["a", "d"]]),
    ]
    assert families(worlds) == {
        ("cable", "a"): {"a", "b", "c"}, ("cable", "b"): {"a", "b"}, ("cable", "c"): {"a", "c"},
        ("cable", "d"): {"d", "e"}, ("cable", "e"): {"d", "e"},
        ("switch", "a"): {"a", "d"}, ("switch", "d"): {"a", "d"},
    }  # fmt: skip


def test_what_was_found_is_kept_by_world_and_read_by_sight(tmp_path: Path) -> None:
    kept = tmp_path / "families.yaml"
    assert load("wjh true", kept) == {}
    write("a/b", "switch:s", {"wjh true": [["d", "e"]], "asic golden": []}, kept)
    write("a/b", "cable:x", {"wjh true": [["a", "b"]], "asic golden": [["a", "b", "c"]]}, kept)
    assert set(load("wjh true", kept)) == {("cable", "a"), ("cable", "b"), ("switch", "d"), ("switch", "e")}
    assert load("asic golden", kept)["cable", "c"] == {"a", "b", "c"}
    write("a/b", "cable:x", {"wjh true": [["a"], ["b"]], "asic golden": []}, kept)
    assert set(load("wjh true", kept)) == {("switch", "d"), ("switch", "e")}, "measured anew"
    assert load("asic golden", kept) == {}


def test_the_struck_world_is_the_healthy_one_but_for_the_fault() -> None:
    """Old counters and other tenants are at the places that the drill's own world has."""
    drill = file.load("ecn/never-marks")
    struck, well = Case.of(_with(drill, "ecn_off", "switch:leaf0"), "7Q4", False), Case.of(drill, "7Q4", True)
    carries = possible(well.experiment)
    assert struck.draw(carries).benign == well.draw(carries).benign != ()
    assert [str(cause) for cause in struck.draw(carries).truth] == ["ecn_off@switch:leaf0"]


def test_the_catalogues_families_hold_for_one_kind_of_place() -> None:
    for sight in SIGHTS:
        known = load(sight)
        assert known["cable", "loss"] == {"loss", "burst_loss", "drop_every"}
        assert known["cable", "delay"] == {"delay", "long_cable"}
        assert ("nic", "straggler") not in known
        assert (("switch", "pfc_off") in known) == sight.endswith("golden"), "the configuration tells them apart"
