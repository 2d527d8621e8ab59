"""What is made in Open vSwitch's database is what ovs-vsctl makes of the same bridges."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import MachineError
from testbed.fabric.ovs import Bridge, OpenVSwitch, Spawn
from testbed.machine.ovsdb import Transaction
from testbed.machine.processes import wait_for

pytestmark = pytest.mark.skipif(not shutil.which("ovsdb-server"), reason="needs Open vSwitch's tools")

BRIDGES = [Bridge("sw0", 0x1A, ("t1", "t2", "t3")), Bridge("sw1", 0x1B, ()), Bridge("sw2", 0xFFFFFFFFFFFFFFFE, ("t9",))]
TARGET = "tcp:127.0.0.1:6653"
TABLES = {  # what is compared, by table; references to rows become what those are called
    "Open_vSwitch": ("bridges",),
    "Bridge": ("name", "ports", "controller", "datapath_type", "fail_mode", "protocols", "other_config", "mirrors"),
    "Port": ("name", "interfaces", "tag", "other_config"),
    "Interface": ("name", "type", "ofport_request", "options", "other_config"),
    "Controller": ("target", "connection_mode", "inactivity_probe", "other_config"),
}


def start(command: list[str], **more: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(command[command.index("ovsdb-server") :], **{**more, "env": {**os.environ, **more["env"]}})


@contextmanager
def database(folder: Path, spawn: Spawn = start) -> Iterator[OpenVSwitch]:
    ovs = OpenVSwitch(folder)
    ovs.finish(ovs.make_database())
    server = ovs.start_database(spawn)
    try:
        assert wait_for(ovs.database.exists, 30.0)
        yield ovs
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no ovs-vswitchd that would carry it out."""
    whole = Transaction.__init__
    monkeypatch.setattr(
        Transaction,
        "__init__",
        lambda self, database, operations, *, settle: whole(self, database, operations, settle=False),
    )


def rows(ovs: OpenVSwitch) -> dict[str, Any]:
    """The tables, without what identifies a row."""
    told = {}
    for table in TABLES:
        command = ["ovsdb-client", "-f", "json", "dump", f"unix:{ovs.database}", "Open_vSwitch", table]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        told[table] = [dict(zip(said["headings"], row, strict=True)) for row in said["data"]]
    names = {row["_uuid"][1]: row.get("name", row.get("target")) for each in told.values() for row in each}

    def plain(value: Any) -> Any:
        if isinstance(value, list) and value[:1] == ["uuid"]:
            return names[value[1]]
        if isinstance(value, list) and value[:1] == ["set"]:
            return sorted(plain(one) for one in value[1])
        return sorted(value[1]) if isinstance(value, list) else value

    return {
        table: sorted(json.dumps({key: plain(row[key]) for key in keys}) for row in told[table])
        for table, keys in TABLES.items()
    }


def by_vsctl(ovs: OpenVSwitch) -> None:
    args = []
    for bridge in BRIDGES:
        args += ["--", "add-br", bridge.name, "--", "set", "Bridge", bridge.name, "datapath_type=netdev"]
        args += ["fail_mode=secure", "protocols=OpenFlow13,OpenFlow15", f"other_config:datapath-id={bridge.dpid:016x}"]
        args += ["other_config:disable-in-band=true", "--", "set-controller", bridge.name, TARGET]
        args += ["--", "set", "Controller", bridge.name, "inactivity_probe=0"]
        for number, port in enumerate(bridge.ports, 1):
            args += ["--", "add-port", bridge.name, port, "--", "set", "Interface", port, f"ofport_request={number}"]
    subprocess.run(["ovs-vsctl", "--no-wait", f"--db=unix:{ovs.database}", *args], check=True)


def test_bridges_are_those_that_ovs_vsctl_makes(tmp_path: Path, at_once: None) -> None:
    with database(tmp_path / "ours") as ours, database(tmp_path / "theirs") as theirs:
        ours.finish(ours.create(BRIDGES[:2]))
        ours.finish(ours.create(BRIDGES[2:]))  # the database has its row by then
        ours.finish(ours.set_controller([bridge.name for bridge in BRIDGES], TARGET))
        by_vsctl(theirs)
        assert rows(ours) == rows(theirs)
        assert len(rows(ours)["Interface"]) == 7


def test_what_the_database_refuses_is_an_error(tmp_path: Path, at_once: None) -> None:
    with database(tmp_path / "ovs") as ovs:
        with pytest.raises(MachineError, match="refused: constraint violation.*identical"):
            ovs.finish(ovs.create([BRIDGES[0], BRIDGES[0]]))
        ovs.finish(ovs.create(BRIDGES))


def test_who_waits_hears_when_the_database_is_gone(tmp_path: Path) -> None:
    """Nobody carries it out: it waits, and looks now and then."""
    with database(tmp_path / "ovs") as ovs:
        made = ovs.create(BRIDGES)
        looks: list[int] = []

        def check() -> None:
            looks.append(0)
            if len(looks) == 2:
                raise MachineError("ovs-vswitchd has ended")

        with pytest.raises(MachineError, match="ovs-vswitchd has ended"):
            ovs.finish(made, check)
        made = ovs.create([])
    with pytest.raises(MachineError, match="cannot be asked"):
        ovs.finish(made)
