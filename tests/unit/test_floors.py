"""fabricd's rooms stand on floors (hardware/fabricd/floors.toml): nothing runs up between them, or in circles."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from hardware import build as building
from hardware.build import CFLAGS, FABRICD, SOURCES, build, compile_all
from tests.parts import floors

HEADER_LINES, FILE_LINES, FUNCTION_LINES, ROOM_FILES = 250, 400, 60, 15


@pytest.fixture(scope="module")
def objects() -> Path:
    return build().parent / f".{FABRICD.name}.o"


def test_every_room_has_its_floor() -> None:
    rooms = {floors.room(str(c.relative_to(SOURCES))) for c in SOURCES.rglob("*.c")}
    assert rooms == set(floors.floors(SOURCES)) == set(tomllib.loads((SOURCES / floors.FLOORS).read_text())["rooms"])


def test_nothing_runs_up_and_nothing_in_circles(objects: Path) -> None:
    arrows = [*floors.includes(SOURCES), *floors.calls(objects, SOURCES)]
    assert len(arrows) > 1000
    assert [str(a) for a in floors.upward(arrows, floors.floors(SOURCES))] == []
    assert floors.circles(arrows) == []


def test_an_include_and_a_call_that_run_up_are_found(objects: Path, tmp_path: Path) -> None:
    tree, compiled = tmp_path / "fabricd", tmp_path / "o"
    shutil.copytree(SOURCES, tree)
    shutil.copytree(objects, compiled, ignore=shutil.ignore_patterns("*.d"))
    changed = tree / "link" / "scheduler.c"
    text = changed.read_text().replace('#include "link/port.h"', '#include "link/port.h"\n#include "switch/switch.h"')
    up = "uint64_t up(const struct sw *s);\nuint64_t up(const struct sw *s)\n{\n\treturn buffer_threshold(s);\n}\n"
    changed.write_text(text + up)
    compile_all(["cc", *CFLAGS, f"-I{tree}"], {changed: compiled / "link" / "scheduler.o"})
    arrows = [*floors.includes(tree), *floors.calls(compiled, tree)]
    assert [str(a) for a in floors.upward(arrows, floors.floors(tree))] == [
        "link/scheduler.c -> switch/buffer.c (buffer_threshold)",
        "link/scheduler.c -> switch/switch.h (include)",
    ]
    assert floors.circles(arrows) == [{"link", "fast_path", "switch"}]


def includers(header: str) -> set[str]:
    """The C files that include it, themselves or through other headers."""
    arrows = list(floors.includes(SOURCES))
    found = {header}
    while more := {a.user for a in arrows if a.used in found} - found:
        found |= more
    return {name for name in found if name.endswith(".c")}


@pytest.fixture(scope="module")
def copied(objects: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sources and their objects, elsewhere: files may be touched there."""
    folder = tmp_path_factory.mktemp("floors")
    tree, compiled = folder / "fabricd", folder / "o"
    shutil.copytree(SOURCES, tree)
    shutil.copytree(objects, compiled)
    for file in compiled.rglob("*.d"):
        file.write_text(file.read_text().replace(str(SOURCES), str(tree)))
    return tree, compiled


@pytest.mark.parametrize(
    "header", ["cc/cc.h", "nic/counters.def", "fault/effects.h", "base/bytes.h", "worker/worker.h"]
)
def test_a_changed_header_has_only_those_compiled_again_that_include_it(header: str, copied: tuple[Path, Path]) -> None:
    tree, compiled = copied
    at = {str(c.relative_to(tree)): c for c in tree.rglob("*.c")}

    def old() -> set[str]:
        made = {name: (compiled / name).with_suffix(".o") for name in at}
        return {name for name, target in made.items() if not building._up_to_date(target, [at[name]])}

    assert old() == set()
    before = (tree / header).stat()
    (tree / header).touch()
    assert old() == includers(header) != set(at)
    os.utime(tree / header, ns=(before.st_atime_ns, before.st_mtime_ns))


def lengths(pattern: str, limit: int) -> dict[str, int]:
    counted = {str(f.relative_to(SOURCES)): len(f.read_text().splitlines()) for f in SOURCES.rglob(pattern)}
    return {name: n for name, n in counted.items() if n > limit}


def test_headers_and_files_are_short() -> None:
    assert lengths("*.h", HEADER_LINES) == {}
    assert lengths("*.c", FILE_LINES) == {}


def test_functions_are_short() -> None:
    too_long = {}
    for file in SOURCES.rglob("*.c"):
        for function in re.finditer(r"^[a-z][^\n;={]*?(\w+)\([^;{}]*\)\n\{\n.*?^\}$", file.read_text(), re.M | re.S):
            if (n := function[0].count("\n") + 1) > FUNCTION_LINES:
                too_long[f"{file.relative_to(SOURCES)}: {function[1]}"] = n
    assert too_long == {}


def test_rooms_are_small() -> None:
    files = [floors.room(str(c.relative_to(SOURCES))) for c in SOURCES.rglob("*.c")]
    assert {room: files.count(room) for room in files if files.count(room) >= ROOM_FILES} == {}
