"""`show experiment` works out the thresholds that fabricd acts on, and says where they are in each other's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.experiment import Experiment, loads
from testbed.plan import thresholds


def experiment(fabric: str, more: str = "") -> Experiment:
    return loads(f"name: x\nfabric: {{{fabric}}}\n{more}", "x.yaml")


def test_thresholds_by_hand() -> None:
    e = experiment(
        "topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}, host_cable: {rate: 100Gbps}, "
        "switch: {buffer: 1MB, reserve: 1KB, headroom: 10KB, xon_offset: 2KB, alpha: 0.5}"
    )
    host, uplink, spine = thresholds.rows(e)
    shared = 1_000_000 - 3 * 2 * 11_000  # of a leaf: three ports, two lossless classes
    alone, everybody = 1000 + shared * 0.5 / 1.5, 1000 + shared * 0.5 / (1 + 6 * 0.5)
    assert (host["ports"], uplink["ports"], spine["ports"]) == ("leaf0,leaf1:1-2", "leaf0,leaf1:3", "spine0:1-2")
    assert (host["xoff_alone"], host["xoff_all"]) == (int(alone), int(everybody))
    assert host["xon_alone"] == 1000 + int((shared * 0.5 - 2000) / 1.5)
    assert (host["kmin"], uplink["kmin"], spine["kmin"]) == (400_000, 800_000, 800_000)
    (nic,) = thresholds.nic_rows(e)
    assert nic["nics"] == "h0,h1,h2,h3" and nic["xoff"] - nic["xon"] == 2 * 4096


@pytest.mark.parametrize(
    ("fabric", "said"),
    [
        ("topology: {star: {hosts: 8}}", []),
        (  # 8 ports, 2 classes: 2 MB less 16 x 66 615 B is shared, 1/9 of it one port's; 5 ports bring 5/13 of it
            "topology: {star: {hosts: 8}}, switch: {buffer: 2MB, ecn: {kmin: 300KB, kmax: 1MB}}",
            [
                "sw0: ECN lies above PFC: queues of class 3-4 at port 1-8 are marked from 300 KB on, but whoever has "
                "brought 107.8 KB is paused; ECN comes first only where 4 ports or more feed a queue"
            ],
        ),
        (
            "topology: {star: {hosts: 2}}, switch: {buffer: 1MB}",
            [
                "sw0: ECN lies above PFC: queues of class 3-4 at port 1-2 are marked from 800 KB on, but whoever has "
                "brought 85.5 KB is paused; PFC always comes first"
            ],
        ),
        (
            "topology: {star: {hosts: 2}}, switch: {buffer: 1MB, pfc: false}",
            [
                "sw0: ECN lies above the end of the queue: queues of class 3-4 at port 1-2 are marked from 800 KB on, "
                "and hold 111.1 KB at most"
            ],
        ),
        ("topology: {star: {hosts: 2}}, switch: {buffer: 1MB, ecn: null}", []),
        (  # less 14 x 66 615 B and, at the slower cable, 2 x 29 245 B; there Kmin is 400 KB, below a ninth of it
            "topology: {star: {hosts: 8}}, cables: {'nic:0': {rate: 100Gbps}}, switch: {buffer: 6.5MB}",
            [
                "sw0: ECN lies above PFC: queues of class 3-4 at port 2-8 are marked from 800 KB on, but whoever has "
                "brought 616.1 KB is paused; ECN comes first only where 2 ports or more feed a queue"
            ],
        ),
        (
            "topology: {star: {hosts: 8}}, switch: {buffer: 1MB}",
            [
                "sw0: headroom and reserve of 8 ports are 1.066 MB together, the buffer has 1 MB: "
                "enlarge fabric.switch.buffer"
            ],
        ),
    ],
)  # fmt: skip
def test_thresholds_that_are_in_each_others_way_are_named(fabric: str, said: list[str]) -> None:
    assert list(thresholds.warnings(experiment(fabric))) == said


def test_the_command_shows_them_as_comments_and_warns_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("name: x\nfabric: {topology: {star: {hosts: 2}}, switch: {buffer: 1MB}}\n")
    shown = CliRunner().invoke(cli, ["show", "experiment", str(file)])
    assert "# sw0:1-2  host  400Gbps  500ns  62.62 KB" in shown.stdout
    assert shown.stderr.startswith("warning: sw0: ECN lies above PFC")
    (tmp_path / "again.yaml").write_text(shown.stdout)
    again = CliRunner().invoke(cli, ["show", "experiment", str(tmp_path / "again.yaml"), "--json"])
    plain = CliRunner().invoke(cli, ["show", "experiment", str(file), "--json"])
    assert json.loads(again.stdout) == json.loads(plain.stdout)
