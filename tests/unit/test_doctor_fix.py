"""`testbed doctor --fix`: what it would do, what it does, and when it does nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed import doctor
from testbed.base.errors import InputError, MachineError
from testbed.cli import cli
from testbed.commands.doctor import command
from testbed.doctor import fix, needs
from testbed.doctor.findings import Diagnosis

ROOT = Path(__file__).parents[2]
RUNC = Diagnosis("containers", "fail", "not installed: runc, tini", "no ranks", "apt-get ..", ("runc", "tini"))
AGAIN = Diagnosis("programs", "warn", "tini is not installed", "less", "apt-get ..", ("tini", "tshark"))
LOOP = Diagnosis("loopback", "fail", "127.0.0.1: down", "", "", command=("ip", "link", "set", "lo", "up"))
DEVICE = Diagnosis("tap devices", "fail", "missing", "", "", command=("sh", "-c", "mknod x c 10 200"))
SLOW = Diagnosis("clock", "warn", "late", "slow", "wait")
FINE = Diagnosis("containers", "ok", "runc")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine of root's with an apt-get of ours, which writes down what it is called with."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / "apt-get").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    (tmp_path / "debconf-set-selections").write_text("#!/bin/sh\nexit 1\n")  # as if another held its lock
    for name in ("apt-get", "debconf-set-selections"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def found(monkeypatch: pytest.MonkeyPatch, *examinations: list[Diagnosis]) -> None:
    """What the doctor finds, the first time and later."""
    answers = iter(examinations)
    monkeypatch.setattr(doctor, "examine", lambda: next(answers))


def test_a_plan_names_each_package_once_and_commands_as_they_are_typed(root: Path) -> None:
    steps = fix.plan([FINE, RUNC, AGAIN, LOOP, DEVICE, SLOW])
    assert [step.shown for step in steps] == [
        "apt-get update; apt-get install --no-install-recommends runc tini tshark",
        "ip link set lo up",
        "mknod x c 10 200",
    ]
    assert fix.plan([FINE, SLOW]) == []


def test_without_apt_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no apt-get here") as told:
        fix.plan([RUNC])
    assert told.value.hint.endswith(": runc tini")
    assert len(fix.plan([LOOP])) == 1


def test_it_installs_and_looks_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, [RUNC], [FINE])
    done = CliRunner().invoke(cli, ["doctor", "--fix", "--yes"])
    assert done.exit_code == 0 and "This machine can run it" in done.stdout, (done.output, done.exception)
    asked = (root / "asked").read_text().splitlines()
    assert asked[0].endswith(" update") and asked[1].endswith(" install --no-install-recommends runc tini")


def test_nobody_is_asked_where_nobody_is_there_and_nothing_is_done(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, [RUNC])
    with pytest.raises(InputError, match="nobody is there to say yes"):
        CliRunner().invoke(command, ["--fix"], catch_exceptions=False)
    assert not (root / "asked").exists()


def test_who_says_no_gets_the_table(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, [RUNC])
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    done = CliRunner().invoke(cli, ["doctor", "--fix"], input="n\n")
    assert done.exit_code == 3 and "testbed doctor --fix" in done.stdout and not (root / "asked").exists()


def test_what_fails_is_named(root: Path) -> None:
    (root / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    (step,) = fix.plan([RUNC])
    with pytest.raises(MachineError, match="it ended with 100") as told:
        step.carry_out()
    assert "runc tini" in told.value.where and "universe" in told.value.hint


def test_fix_needs_root_and_yes_needs_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="only root"):
        CliRunner().invoke(command, ["--fix"], catch_exceptions=False)
    with pytest.raises(InputError, match="--yes answers"):
        CliRunner().invoke(command, ["--yes"], catch_exceptions=False)


def test_a_device_that_the_kernel_has_and_a_container_lacks_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    (tap,) = (c for c in doctor.findings.CHECKS if c.name == "tap devices")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for there, typed in ((True, "mknod /dev/net/tun"), (False, "modprobe tun")):
        seen = {"/dev/net/tun": False, "/sys/class/misc/tun": there}
        monkeypatch.setattr(needs.Path, "exists", lambda path, seen=seen: seen[str(path)])
        assert typed in " ".join(tap().command)


def test_what_the_doctor_installs_the_set_up_installs_too() -> None:
    """Names of packages stand in install/ for a machine that has no Python yet, and at each check."""
    command = ["sh", str(ROOT / "install" / "packages.sh")]
    needed, more = (
        set(subprocess.run([*command, *lists], capture_output=True, text=True, check=True).stdout.split())
        for lists in (["needed"], ["useful", "rdma"])
    )
    named: set[str] = set()
    sources = "".join((ROOT / "testbed" / "doctor" / f"{name}.py").read_text() for name in ("needs", "machine"))
    for mapping in re.findall(r"(?:tools|packages) = \{(.*?)\}", sources, re.S):
        named |= {word for value in re.findall(r': "([^"]*)"', mapping) for word in value.split()}
    assert {"mininet", "tshark", "gcc"} <= named
    assert named <= needed | more
    said = {word for text in re.findall(r'"([^"]*)"', sources) for word in text.split()}
    assert (needed | more) - said == {"procps"}, "that is for ps and pkill in hosts, which no check needs"
