"""Where a run's wall time went: fabricd's rooms by address, and the table."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hardware.rooms import shares
from testbed.tables.results import of_profile

MAP = """
 .text          0x0000000000000000        0x0 OBJECTS/base/empty.o
 .text          0x0000000000001000       0x20 OBJECTS/base/tap.o
                0x0000000000001000                tap_open
 .text.unlikely
                0x0000000000001020       0x60 OBJECTS/offload/ring/ring.o
 .text          0x0000000000001100      0x100 OBJECTS/loop.o
 .text          0x0000000000001200      0x100 /usr/lib/crt1.o
"""


def binary(folder: Path) -> Path:
    objects = folder / ".fabricd.o"
    objects.mkdir()
    (objects / "map").write_text(MAP.replace("OBJECTS", str(objects)))
    return folder / "fabricd"


def test_rooms_by_address(tmp_path: Path) -> None:
    samples = [[0x1040, 3], [0x1180, 2], [0x1140, 2], [-1, 1], [0x1240, 1], [0x9000, 1]]
    found = shares(samples, binary(tmp_path))
    assert found == pytest.approx({"the loop": 0.4, "offload/ring": 0.3, "libraries": 0.3})


def test_nothing_is_said_without_a_map_or_samples(tmp_path: Path) -> None:
    assert shares([[0x1000, 1]], tmp_path / "fabricd") == {"libraries": 1.0}
    assert shares([]) == {}


def test_table() -> None:
    profile = {
        "stages": {"bring-up": 1.0, "starting the workers": 0.5, "workload": 1.5, "tear-down": 0.25},
        "busy": {"Open vSwitch": 0.5, "fabricd": 2.0},
        "fabricd": {"transport": 1.5, "link": 0.5},
    }
    out = StringIO()
    Console(file=out, width=80).print(of_profile(profile))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert ["bring-up", "1.00"] in rows
    at = rows.index(["fabricd", "2.00", "100%"])
    rooms = [["transport", "1.50", "75%"], ["link", "0.50", "25%"]]
    assert rows[at + 1 : at + 4] == [*rooms, ["Open", "vSwitch", "0.50", "25%"]]
