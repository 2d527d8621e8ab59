"""The gallery: every entry is whole, and the page and pictures are made from what is kept."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from railbed.gallery import Curve, Entry, Made, Value, entries
from railbed.gallery import __main__ as command
from railbed.gallery.kept import FIGURES, keep, kept
from railbed.gallery.page import PAGE, PICTURES, page
from railbed.gallery.picture import draw
from testbed.base.errors import InputError
from tests.prove_gallery import moved

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


ENTRIES = {path.stem for path in (ROOT / "experiments" / "papers").glob("*.py")}


def one(name: str) -> Entry:
    return entries((name,))[0]


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_an_entry_is_whole(name: str) -> None:
    entry = one(name)
    model = entry.experiment().model
    assert (model.seed, model.clock.mode) == (1, "virtual"), "ours come out on every machine"
    assert entry.paper and entry.where and (entry.link == "" or entry.link.startswith("https://"))
    assert len(entry.why.split()) >= 15, "a paragraph on why they differ"
    made = kept()[name]
    assert list(made.values) == [value.about for value in entry.values]
    assert bool(made.curves) == bool(entry.axes)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_picture_is_that_of_what_is_kept(name: str, tmp_path: Path) -> None:
    draw(one(name), kept()[name], tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_bytes() == (PICTURES / f"{name}.svg").read_bytes()
    assert (tmp_path / "picture.svg").stat().st_size < 60_000


def test_the_page_is_that_of_what_is_kept() -> None:
    assert PAGE.read_text() == page(entries(), kept())
    assert set(kept()) == ENTRIES == {path.stem for path in PICTURES.glob("*")}, "nothing is left of what went"


def test_every_experiment_there_is_of_an_entry() -> None:
    used = {entry.path.resolve() for entry in entries()}
    assert {path.resolve() for path in (ROOT / "experiments" / "papers").glob("*.yaml")} <= used


def test_a_ratio_is_ours_to_the_published_or_to_the_nearer_end_of_a_band() -> None:
    assert Value("rate", 20).ratio(10) == 0.5
    band = Value("gain", (15, 36), "%")
    assert [band.ratio(ours) for ours in (7.5, 15, 20, 36, 72)] == [0.5, 1, 1, 1, 2]


def test_a_row_says_what_was_published_and_what_came_out() -> None:
    entry = replace(one(min(ENTRIES)), name="x", values=(Value("gain", (15, 36), "%", "up to "),))
    text = page([entry], {"x": Made({"gain": 72.0}, ())})
    assert "| [x](#x) | gain | up to 15 to 36 % | 72 % | 2.00 |" in text


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    made = {"b": Made({"x": 1.5}, (Curve("here", ((1.0, 2.0), (2.0, 3.5))),)), "a": Made({'"y"': 2e-9}, ())}
    keep(made, tmp_path / "figures.json")
    assert kept(tmp_path / "figures.json") == made
    keep(kept(), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == FIGURES.read_bytes()


def test_a_name_that_is_none_is_told_with_those_there_are() -> None:
    with pytest.raises(InputError) as told:
        entries(("multicst",))
    assert "multicst" in str(told.value) and re.search(r"there are .*multicast-traffic", told.value.hint)


def test_elsewhere_it_says_where_entries_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="experiments/papers"):
        entries()


def test_one_made_again_leaves_the_others_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, again = kept(), Made({"first": 1.0}, ())
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    entry = replace(one("conspirator"), values=(Value("first", 2),))
    known = [entry if each.name == "conspirator" else each for each in entries()]
    monkeypatch.setattr(command, "entries", lambda names=(): [e for e in known if not names or e.name in names])
    monkeypatch.setattr(command, "make", lambda _: again)
    monkeypatch.setattr("sys.argv", ["gallery", "conspirator"])
    command.main()
    assert kept() == {**before, "conspirator": again}
    assert "| [conspirator](#conspirator) | first | 2 | 1 | 0.50 |" in PAGE.read_text()
    assert [path.name for path in PICTURES.iterdir()] == ["conspirator.svg"]
    assert capsys.readouterr().out == "conspirator: first: 1, ratio 0.50\n"


def test_what_has_moved_is_named() -> None:
    was = Made({"x": 1.5, "y": 2.0}, (Curve("here", ((1.0, 2.0),)),))
    now = Made({"x": 1.5, "y": 2.5}, (Curve("here", ((1.0, 2.5),)),))
    assert list(moved(was, was)) == []
    assert list(moved(was, now)) == ["y: 2.0 is 2.5 now", "its line here is another"]
