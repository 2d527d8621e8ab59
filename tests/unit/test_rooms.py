"""The Python packages and their rooms stand on floors (floors.toml of each): no import runs up, or in circles."""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from tests.parts import floors as house
from tests.parts.floors import FLOORS, Arrow, circles, floors, room, upward
from tests.parts.imports import imports

ROOT = Path(__file__).parents[2]
TESTBED = ROOT / "testbed"
PACKAGES = [name for name in floors(ROOT) if "/" not in name]
package = partial(house.package, raised=floors(ROOT))
MOST_FILES = 14
FUNCTION_LINES = 60
ONE_FOR_EACH = {  # rooms that have as many files as there are of these
    "testbed/commands": "verb",
    "testbed/experiment/steps": "kind of step",
    "drills/solve": "family of drills",
    "topologies/kinds": "kind of topology",
    "topologies/drawing": "kind of topology",
}


@cache
def read(root: Path) -> list[Arrow]:
    return list(imports(root, *PACKAGES))


def inside(root: Path, package: str) -> list[Arrow]:
    """The imports within a package."""
    here = f"{package}/"
    own = (a for a in read(root) if a.user.startswith(here) and a.used.startswith(here))
    return [Arrow(a.user.removeprefix(here), a.used.removeprefix(here), a.by) for a in own]


def in_testbed(root: Path) -> list[Arrow]:
    return inside(root, "testbed")


def rooms(sources: Path) -> set[str]:
    return set(tomllib.loads((sources / FLOORS).read_text())["rooms"])


def files(package: str) -> list[str]:
    """Python files, by their path in the package; what runs have left in results/ is none of them."""
    found = (f.relative_to(ROOT / package) for f in (ROOT / package).rglob("*.py"))
    return [str(f) for f in found if (package, f.parts[0]) not in (("results", "runs"), ("results", "bench"))]


def test_every_package_and_every_room_has_its_floor() -> None:
    assert {f.parent.name for f in ROOT.glob("*/__init__.py")} - {"tests"} == set(PACKAGES) == rooms(ROOT)
    for package in PACKAGES:
        assert {room(f) for f in files(package)} == set(floors(ROOT / package)) == rooms(ROOT / package), package


def test_no_package_imports_one_above_or_beside_it() -> None:
    arrows = read(ROOT)
    assert len(arrows) > 500
    assert [str(a) for a in upward(arrows, floors(ROOT), package)] == []
    assert circles(arrows, package) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_room_imports_one_above_or_beside_it(package: str) -> None:
    arrows = inside(ROOT, package)
    assert arrows
    assert [str(a) for a in upward(arrows, floors(ROOT / package))] == []
    assert circles(arrows) == []


def copied(name: str, folder: Path) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, folder / name)


def test_an_import_that_runs_up_is_found_wherever_it_stands(tmp_path: Path) -> None:
    for name in ("base/units.py", "run/notes.py", "run/run.py", "run/sweep.py", "cli.py"):
        copied(f"testbed/{name}", tmp_path)
    for name in ("topologies/graph/fabric.py", "results/store/load.py"):
        copied(name, tmp_path)
    units, fabric = tmp_path / "testbed/base/units.py", tmp_path / "topologies/graph/fabric.py"
    lines = units.read_text().count("\n"), fabric.read_text().count("\n")
    with units.open("a") as file:
        file.write("def late() -> None:\n    from testbed.run import run, sweep as swept\n")
    with fabric.open("a") as file:
        file.write("if TYPE_CHECKING:\n    import testbed.cli\n    from results.store import load\n")
    found = upward(in_testbed(tmp_path), floors(TESTBED))
    by = f"line {lines[0] + 2}"
    assert found == [Arrow("base/units.py", "run/run.py", by), Arrow("base/units.py", "run/sweep.py", by)]
    assert {"base", "run"} <= circles(in_testbed(tmp_path))[0]
    assert [str(a) for a in upward(read(tmp_path), floors(ROOT), package)] == [
        f"topologies/graph/fabric.py -> results/store/load.py (line {lines[1] + 3})",
        f"topologies/graph/fabric.py -> testbed/cli.py (line {lines[1] + 2})",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_are_small(package: str) -> None:
    counted = Counter(room(f) for f in files(package) if not Path(f).name.startswith("_"))
    large = {name: n for name, n in counted.items() if n > MOST_FILES}
    assert large.keys() <= {name.removeprefix(f"{package}/") for name in ONE_FOR_EACH}, large


Function = ast.FunctionDef | ast.AsyncFunctionDef


def own_lines(function: Function) -> int:
    """Of a function: without its docstring (of a command it is its help), and without functions and classes in it."""

    def within(node: ast.AST) -> Iterator[ast.stmt]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.ClassDef):
                yield child
            else:
                yield from within(child)

    others: list[ast.stmt] = list(within(function))
    if ast.get_docstring(function) is not None:
        others.append(function.body[0])
    return lines_of(function) - sum(map(lines_of, others))


def lines_of(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_are_short(package: str) -> None:
    long = {
        f"{name}:{node.lineno} {node.name}": own_lines(node)
        for name in files(package)
        for node in ast.walk(ast.parse((ROOT / package / name).read_text()))
        if isinstance(node, Function) and own_lines(node) > FUNCTION_LINES
    }
    assert long == {}


def test_a_functions_own_lines() -> None:
    lines = [
        "def f():",
        '    """Two',
        '    lines."""',
        "    def g():",
        "        return 1",
        "    class C:",
        "        x = 1",
    ]
    (function,) = ast.parse("\n".join([*lines, "    return g"])).body
    assert isinstance(function, ast.FunctionDef)
    assert own_lines(function) == 2


def test_tests_share_modules_and_not_each_others_files() -> None:
    arrows = imports(ROOT, "tests")
    assert [str(a) for a in arrows if Path(a.used).name.startswith("test_")] == []
