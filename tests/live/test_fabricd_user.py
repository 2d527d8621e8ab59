"""Whoever took over a fabricd would be nobody on this machine: a user of the fabric's own, without any right."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from testbed.containers.bundle import fabricd_id, first_id
from tests.parts.machine import cli, told
from tests.parts.standing import HELD, REAL, standing

CACHED = """
name: cached
fabric: {topology: {star: {hosts: 2}}}
control: {fast_path: {sample: 4}}
workload: [{collective: all_reduce, sizes: [64KiB]}]
"""


@pytest.mark.parametrize("text", [HELD, REAL], ids=["held", "real"])
def test_with_either_clock_it_is_a_user_of_its_fabrics_who_may_nothing(text: str, tmp_path: Path) -> None:
    with standing(text, tmp_path) as record:
        fabricd = record.processes["fabricd"].pid
        for thread in os.listdir(f"/proc/{fabricd}/task"):
            status = dict(re.findall(r"(\w+):[\t ]*(.*)", Path(f"/proc/{fabricd}/task/{thread}/status").read_text()))
            user = fabricd_id(record.id)
            assert status["Uid"].split() == status["Gid"].split() == [str(user)] * 4
            assert status["Groups"] == ""
            assert {int(status[kind], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
            assert status["NoNewPrivs"] == "1"
        ids = first_id(record.id)
        assert ids is not None
        assert ids + 65534 < user < ids + 65536  # containers have those below
        owned = [path for path in record.dir.rglob("*") if not path.is_symlink() and path.stat().st_uid == user]
        assert owned == []  # so it can change nothing that the testbed trusts
        output = tmp_path / "closed" / "port.pcapng"
        output.parent.mkdir(mode=0o500)
        os.chown(output.parent, 1000, 1000)
        told("capture", "sw0:1", "--for", "1us", "-o", str(output), "--fabric", record.id)
        assert output.stat().st_size > 0


def test_it_still_speaks_to_its_open_vswitch(tmp_path: Path) -> None:
    (tmp_path / "cached.yaml").write_text(CACHED)
    cli("run", str(tmp_path / "cached.yaml"), "--out", str(tmp_path / "run"))
    counted = json.loads((tmp_path / "run" / "counters.json").read_text())["fidelity"]
    assert counted["fast_hops"] > 0 and counted["fast_checked"] > 0
