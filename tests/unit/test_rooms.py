"""The Python packages and the rooms of testbed/ stand on floors (floors.toml): no import runs up, or in circles."""

from __future__ import annotations

import shutil
import tomllib
from functools import cache
from pathlib import Path

from tests.parts.floors import FLOORS, Arrow, circles, floors, room, upward
from tests.parts.imports import imports

ROOT = Path(__file__).parents[2]
TESTBED = ROOT / "testbed"
PACKAGES = list(floors(ROOT))
MOST_FILES = 15
ONE_FOR_EACH = {"commands": "verb"}  # rooms that have as many files as there are of these


@cache
def read(root: Path) -> list[Arrow]:
    return list(imports(root, *PACKAGES))


def in_packages(root: Path) -> list[Arrow]:
    """All imports, with packages as rooms."""
    flat = [(a, *(Path(p).parts for p in (a.user, a.used))) for a in read(root)]
    return [Arrow(f"{u[0]}/{'.'.join(u[1:])}", f"{v[0]}/{'.'.join(v[1:])}", a.by) for a, u, v in flat]


def in_testbed(root: Path) -> list[Arrow]:
    here = "testbed/"
    inside = (a for a in read(root) if a.user.startswith(here) and a.used.startswith(here))
    return [Arrow(a.user.removeprefix(here), a.used.removeprefix(here), a.by) for a in inside]


def rooms(sources: Path) -> set[str]:
    return set(tomllib.loads((sources / FLOORS).read_text())["rooms"])


def test_every_room_has_its_floor() -> None:
    found = {room(str(f.relative_to(TESTBED))) for f in TESTBED.rglob("*.py")}
    assert found == set(floors(TESTBED)) == rooms(TESTBED)
    assert {f.parent.name for f in ROOT.glob("*/__init__.py")} - {"tests"} == set(PACKAGES) == rooms(ROOT)


def test_nothing_runs_up_and_nothing_in_circles() -> None:
    for sources, arrows in ((ROOT, in_packages(ROOT)), (TESTBED, in_testbed(ROOT))):
        assert len(arrows) > 300
        assert [str(a) for a in upward(arrows, floors(sources))] == []
        assert circles([a for a in arrows if room(a.user) != room(a.used)]) == []


def copied(name: str, folder: Path) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, folder / name)


def test_an_import_that_runs_up_is_found_wherever_it_stands(tmp_path: Path) -> None:
    for name in ("base/units.py", "run/attempt.py", "run/run.py", "run/sweep.py", "cli.py"):
        copied(f"testbed/{name}", tmp_path)
    for name in ("topologies/fabric.py", "results/load.py"):
        copied(name, tmp_path)
    units, fabric = tmp_path / "testbed/base/units.py", tmp_path / "topologies/fabric.py"
    lines = units.read_text().count("\n"), fabric.read_text().count("\n")
    with units.open("a") as file:
        file.write("def late() -> None:\n    from testbed.run import run, sweep as swept\n")
    with fabric.open("a") as file:
        file.write("if TYPE_CHECKING:\n    import testbed.cli\n    from results import load\n")
    found = upward(in_testbed(tmp_path), floors(TESTBED))
    by = f"line {lines[0] + 2}"
    assert found == [Arrow("base/units.py", "run/run.py", by), Arrow("base/units.py", "run/sweep.py", by)]
    assert {"base", "run"} <= circles(in_testbed(tmp_path))[0]
    assert [str(a) for a in upward(in_packages(tmp_path), floors(ROOT))] == [
        f"topologies/fabric.py -> results/load.py (line {lines[1] + 3})",
        f"topologies/fabric.py -> testbed/cli.py (line {lines[1] + 2})",
    ]


def test_rooms_are_small() -> None:
    files = [room(str(f.relative_to(TESTBED))) for f in TESTBED.rglob("[!_]*.py")]
    counted = {name: files.count(name) for name in files if name not in ONE_FOR_EACH}
    assert {name: n for name, n in counted.items() if n > MOST_FILES} == {}


def test_tests_share_modules_and_not_each_others_files() -> None:
    arrows = imports(ROOT, "tests")
    assert [str(a) for a in arrows if Path(a.used).name.startswith("test_")] == []
