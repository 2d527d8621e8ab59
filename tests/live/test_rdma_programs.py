"""docs/rdma-programs.md: the distribution's programs in containers, as they are typed there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from hardware.config import Hardware
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from tests.parts.fabricd_fixture import wait_until
from tests.parts.machine import ROOT, TESTBED, traces
from tests.parts.rdma_programs import numbers, require
from tests.parts.timing_model import PS, Model

PAGE = (ROOT / "docs/rdma-programs.md").read_text()
TWO = (ROOT / "experiments/programs/two-hosts.yaml").read_text().replace("clock: real", "clock: virtual")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    require("ib_write_bw", "ibv_devinfo")
    lab = Lab.up(loads(TWO, "two-hosts.yaml"))
    try:
        yield lab
    finally:
        lab.down()
    assert traces(lab.id) == []


def start(lab: Lab, rank: int, argv: Sequence[str]) -> subprocess.Popen[str]:
    command, env = lab.exec_command(rank, ["env", "--", *argv], tty=False)
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_the_nic_is_what_the_fabric_says(lab: Lab) -> None:
    said, _ = start(lab, 1, ["ibv_devinfo", "-v"]).communicate(timeout=60)
    assert "hca_id:\trailbed0" in said
    assert "4X (2)" in said and "100.0 Gbps (128)" in said  # 400 Gb/s
    assert "GID[  0]:\t\t::ffff:10.0.0.2, RoCE v2" in said
    assert "active_mtu:\t\t4096 (5)" in said


def test_every_rank_has_one(lab: Lab) -> None:
    """`exec --all`, as the page has it: the rank stands before each line."""
    command = [*TESTBED, "exec", "--fabric", lab.id, "--all", "--", "ibv_devinfo", "-l"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert sorted(lines) == sorted(
        f"[{rank}] {said}".rstrip() for rank in range(2) for said in ("1 HCA found:", "\trailbed0", "")
    )
    assert "`[0] 1 HCA found:`" in PAGE


def test_its_port_is_down_while_its_cable_is(lab: Lab) -> None:
    lab.fabricd.request("cable", cable="h1-sw0", up=False)
    down, _ = start(lab, 1, ["ibv_devinfo"]).communicate(timeout=60)
    lab.fabricd.request("cable", cable="h1-sw0", up=True)
    up, _ = start(lab, 1, ["ibv_devinfo"]).communicate(timeout=60)
    assert "PORT_DOWN (1)" in down and "PORT_ACTIVE (4)" in up


def test_bandwidth_as_the_page_has_it(lab: Lab) -> None:
    """To a nanosecond of the whole: when the client began is up to whoever typed."""
    lines = [line.split()[2:] for line in PAGE.splitlines() if line.startswith("testbed exec") and "ib_write" in line]
    server = start(lab, 0, lines[0][2:])
    wait_until((lab.dir / "network" / "0-18515").exists, "the server to listen")
    said, _ = start(lab, 1, lines[1][2:]).communicate(timeout=60)
    assert server.wait(60) == 0
    assert numbers(said) == [pytest.approx(row, rel=1e-6) for row in numbers(PAGE)] != []


def test_a_second_is_a_second_whenever_a_program_begins(lab: Lab) -> None:
    """By the fabric's clock, which has gone on for others meanwhile; asleep for so long, and until then."""
    code = "import time as t; a, w = t.monotonic(), t.time(); t.sleep(1); print(t.monotonic() - a, t.time() - w)"
    for _ in range(2):
        said, _ = start(lab, 0, ["python3", "-c", code]).communicate(timeout=60)
        assert [float(word) for word in said.split()] == [pytest.approx(1.0, abs=1e-6)] * 2
        assert start(lab, 1, ["sleep", "1000"]).wait(60) == 0


def test_rping_as_the_page_has_it(lab: Lab) -> None:
    typed = [line.split()[2:] for line in PAGE.splitlines() if line.startswith("testbed exec") and "rping" in line]
    server = start(lab, 0, typed[0][2:])
    wait_until((lab.dir / "network" / "0-7174").exists, "the server to listen")
    said, _ = start(lab, 1, typed[1][2:]).communicate(timeout=60)
    assert server.wait(60) == 0
    lines = [line for line in said.splitlines() if line.startswith("ping data")]
    assert lines == [line for line in PAGE.splitlines() if line.startswith("ping data")] != []


def test_hosts_shells_have_their_nics_too(lab: Lab) -> None:
    """`testbed shell` as it is typed: programs of the hosts, in no container."""
    lines = ["h0 ib_write_bw -F -s 65536 -n 1000 >/dev/null &", "h1 sleep 0.1"]
    lines += ["h1 ib_write_bw -F -s 65536 -n 1000 10.0.0.1"]
    typed = [word for line in lines for word in ("-c", line)]
    done = subprocess.run([*TESTBED, "shell", lab.id, *typed], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert numbers(done.stdout) == [pytest.approx(row, rel=1e-6) for row in numbers(PAGE)]


def test_ucx_chooses_the_nic_and_takes_a_packets_time(lab: Lab) -> None:
    """Its own wire-up by datagrams, then RC: half a round trip of 8 bytes is an inline SEND's."""
    require("ucx_perftest", "ucx_info")
    found, _ = start(lab, 0, ["ucx_info", "-d"]).communicate(timeout=60)
    assert re.findall(r"Transport: (\S+_verbs)\n#\s+Device: (\S+)", found) == [
        ("rc_verbs", "railbed0:1"),
        ("ud_verbs", "railbed0:1"),
    ]
    server = start(lab, 0, ["ucx_perftest", "-t", "tag_lat", "-n", "50", "-w", "5"])
    wait_until((lab.dir / "network" / "0-13337").exists, "the server to listen")
    client = start(lab, 1, ["ucx_perftest", "10.0.0.1", "-t", "tag_lat", "-n", "50", "-w", "5"])
    said, _ = client.communicate(timeout=120)
    assert (server.wait(60), client.returncode) == (0, 0), said
    assert "WARN" not in said and "ERROR" not in said
    count, median, *_ = re.findall(r"Final: +(.*)", said)[0].split()
    model, nbytes = Model(Hardware(), 1), 1 + 8 + 8  # kind of message, tag, data
    expected_ps = model.received(nbytes, 0) - model.pcie_ps(nbytes) - model.pcie  # inline: nothing is fetched
    assert int(count) == 50 and float(median) == pytest.approx(expected_ps / PS / 1000, rel=0.01)
