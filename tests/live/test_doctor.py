"""The doctor on this machine, and on machines that lack something: rights, programs, a running Open vSwitch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware import build
from testbed import doctor
from testbed.base.errors import MachineError
from testbed.doctor import machine, needs
from testbed.doctor.findings import CHECKS, Diagnosis, Examination, Lack

ROOT = Path(__file__).resolve().parents[2]
NAMES = [c.name for c in CHECKS]


def call_doctor(*arguments: str, **kwargs) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, **kwargs)


def as_nobody(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code without root's rights (after the imports, which nobody else may be able to read)."""
    drop = "import os\nfrom testbed import doctor\nfrom testbed.cli import cli\nimport testbed.commands.doctor\n"
    drop += "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
    return subprocess.run([sys.executable, "-c", drop + code], capture_output=True, text=True, cwd=ROOT, timeout=300)


def finding(name: str) -> Diagnosis:
    (check,) = (c for c in CHECKS if c.name == name)
    return check()


def programs(folder: Path, **scripts: str) -> str:
    """A PATH with these programs only (shell scripts by name; an empty one succeeds)."""
    for name, script in scripts.items():
        file = folder / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    return str(folder)


# --- this machine ----------------------------------------------------------


def test_this_machine_can_run():
    doctor.require()
    failed = [f for f in doctor.examine() if f.status == "fail"]
    assert not failed


def test_json_and_exit_code():
    done = call_doctor("--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["possible"] is True
    assert [c["name"] for c in answer["checks"]] == NAMES
    for check in answer["checks"]:
        assert set(check) == {"name", "status", "found", "cost", "mend"}
        assert check["found"]
        assert check["status"] == "ok" or check["cost"]


def test_table_names_every_need():
    done = call_doctor(env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0
    for name in NAMES:
        assert name in done.stdout
    assert "This machine can run it" in done.stdout


def test_leaves_nothing_behind():
    doctor.examine()
    assert not [name for name in os.listdir("/sys/class/net") if name.startswith("rbdoctor")]


# --- machines that lack something ------------------------------------------


def test_somebody_who_is_not_root_is_told_so_and_exits_with_3():
    done = as_nobody("cli.main(['doctor', '--json'])")
    answer = json.loads(done.stdout)
    assert done.returncode == 3 and answer["possible"] is False
    by_name = {c["name"]: c for c in answer["checks"]}
    assert by_name["root"]["status"] == "fail"
    assert by_name["root"]["found"] == "running as uid 65534, not root"
    assert "sudo" in by_name["root"]["mend"]


def test_require_says_only_that_root_is_missing():
    """The rest cannot be judged without it, and would only confuse."""
    done = as_nobody("doctor.require()")
    assert done.stderr.splitlines()[-1] == (
        "testbed.base.errors.MachineError: only root can make network namespaces, TAP devices and bridges: "
        "root: running as uid 65534, not root"
    )


@pytest.mark.parametrize(
    ("lacking", "name", "package"),
    [
        ("ovs-vsctl", "open vswitch", "openvswitch-switch"),
        ("mnexec", "mininet", "mininet"),
        ("ifconfig", "mininet", "net-tools"),
        ("ip", "mininet", "iproute2"),
        ("ovs-vswitchd", "open vswitch", "openvswitch-switch"),
        ("nsenter", "mininet", "util-linux"),
        ("runc", "containers", "runc"),
        ("tini", "containers", "tini"),
    ],
)
def test_a_missing_program_is_named_with_its_package(tmp_path, monkeypatch, lacking, name, package):
    present = {"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"}
    present |= {"mnexec", "ifconfig", "ip", "nsenter", "setpriv", "prlimit", "runc", "tini"} - {lacking}
    present -= {lacking}
    monkeypatch.setenv("PATH", programs(tmp_path, **dict.fromkeys(present, "")))
    found = finding(name)
    assert found.status == "fail"
    assert found.found == f"{lacking} is not installed"
    assert found.mend == f"apt-get install {package}"
    with pytest.raises(MachineError) as caught:
        doctor.require()
    assert caught.value.exit_code == 3
    said = [caught.value.what, *(p.what for p in caught.value.also)]
    assert f"{name}: {lacking} is not installed" in said


def test_open_vswitch_that_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{programs(tmp_path, ovsdb_server='echo no room >&2; exit 1')}:{os.environ['PATH']}")
    found = finding("open vswitch")
    assert found.status == "fail"
    assert found.found.startswith("one of our own does not start: ovsdb-server does not start: no room")


def test_open_vswitch_whose_switch_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{programs(tmp_path, ovs_vswitchd='echo no room >&2; exit 1')}:{os.environ['PATH']}")
    found = finding("open vswitch")
    assert found.status == "fail"
    assert found.found == "one of our own does not start: ovs-vswitchd ends: no room"


def test_open_vswitch_without_the_userspace_datapath(tmp_path, monkeypatch):
    row = """echo '{"data":[["system"]],"headings":["datapath_types"]}'"""
    monkeypatch.setenv("PATH", f"{programs(tmp_path, ovs_vsctl=row)}:{os.environ['PATH']}")
    found = finding("open vswitch")
    assert found.status == "fail" and "no netdev datapath" in found.found


def test_open_vswitch_starts_beside_whatever_the_host_has():
    """The host's is neither needed nor asked: its directory may be empty."""
    hide = 'mkdir -p /run/openvswitch && mount -t tmpfs none /run/openvswitch && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", hide, "sh", sys.executable, "-m", "testbed", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    (found,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "open vswitch"]
    assert found["status"] == "ok" and found["found"].endswith("starts, userspace datapath")


def test_mnexec_that_may_not_make_namespaces(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", programs(tmp_path, mnexec="exit 1", ifconfig="", ip="", nsenter=""))
    assert finding("mininet").found == "mnexec cannot make a network namespace"


def test_fabricd_not_built_stale_or_without_its_libraries(tmp_path, monkeypatch):
    sources = tmp_path / "sources"
    sources.mkdir()
    source = sources / "main.c"
    source.write_text("")
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setattr(build, "FABRICD", tmp_path / "fabricd")
    assert finding("fabricd").found == "not built"

    programs(tmp_path, fabricd="exit 2")
    os.utime(source, (1, 1))
    assert finding("fabricd").status == "ok"

    os.utime(source)
    os.utime(tmp_path / "fabricd", (1, 1))
    assert (finding("fabricd").status, finding("fabricd").found) == ("warn", f"older than {source}")

    missing = "error while loading shared libraries: libjansson.so.4: cannot open shared object file"
    programs(tmp_path, fabricd=f"echo '{missing}' >&2; exit 127")
    assert (finding("fabricd").status, finding("fabricd").found) == ("fail", missing)


def test_optional_programs_only_warn(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", programs(tmp_path, ethtool="", tcpdump="", iperf3="", ping="", cc=""))
    found = finding("programs")
    assert (found.status, found.found) == ("warn", "tshark is not installed")
    assert "decoding captures" in found.cost


def test_few_open_files():
    code = (
        "import resource, json; resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))\n"
        "from testbed.doctor import machine\nfrom testbed.doctor.findings import Lack\n"
        "try: machine.open_files()\nexcept Lack as lack: print(lack.found, '|', lack.cost, '|', lack.fatal)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "at most 1000 a process | about 400 switch ports and NICs fit into a fabric | False\n"


def test_leftovers_of_dead_fabrics(tmp_path, monkeypatch):
    from testbed.machine import ownership

    monkeypatch.setattr(ownership, "RUN_DIR", tmp_path)
    assert finding("leftovers").found == "none"
    (tmp_path / "0bad").mkdir()
    found = finding("leftovers")
    assert (found.status, found.found, found.mend) == ("warn", "of dead fabrics: 0bad", "testbed clean")


def test_controllers_are_found_in_the_mounts():
    assert {"cpu", "memory", "pids"} <= set(machine.cgroup_controllers())


# --- checks in general -----------------------------------------------------


def test_a_check_that_stumbles_does_not_hide_the_others():
    def stumble() -> str:
        raise ZeroDivisionError("oops")

    found = Examination("x", stumble, vital=True)()
    assert found.status == "warn"
    assert found.found == "could not be checked: ZeroDivisionError: oops"


def test_lacks_are_fatal_only_where_said():
    def lack(fatal: bool) -> str:
        raise Lack("this", "that", "so", fatal=fatal)

    assert Examination("x", lambda: lack(True), vital=True)().status == "fail"
    assert Examination("x", lambda: lack(False), vital=True)().status == "warn"


def test_status_fields():
    assert needs.status_field("/proc/self/status", "Name")
    with pytest.raises(KeyError):
        needs.status_field("/proc/self/status", "NoSuchField")
