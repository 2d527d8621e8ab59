"""Ranks' containers: what they may do, what they see, and their limits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from testbed.containers.seccomp import profile
from testbed.fabric.bringup import FABRICD_BYTES
from testbed.fabric.lab import Lab
from tests.parts.machine import ROOT
from tests.parts.rank_container import folder as folder
from tests.parts.rank_container import inside, python, shell, worker
from tests.parts.rank_container import lab as lab
from workloads.verbs import wire

# Makes a system call; prints its result and errno.
SYSCALL = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.syscall({}), ctypes.get_errno())"
x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are x86_64's")


# -- privileges


# For raw sockets, and for tcpdump to become another user: CHOWN, SETGID, SETUID, NET_RAW.
CAPABILITIES = 1 << 0 | 1 << 6 | 1 << 7 | 1 << 13


def test_the_only_capabilities_are_those_of_a_capture(lab: Lab) -> None:
    status = dict(re.findall(r"(\w+):\t(.*)", inside(lab, "cat", "/proc/self/status")))
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert int(status[kind], 16) == CAPABILITIES
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_the_first_process_has_no_more_than_that(lab: Lab) -> None:
    status = dict(re.findall(r"(\w+):\t(.*)", inside(lab, "cat", "/proc/1/status")))
    assert int(status["CapEff"], 16) == CAPABILITIES
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize(
    "forbidden",
    [
        "echo 1 > /proc/sys/net/core/somaxconn",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo c > /proc/sysrq-trigger",
        "mount -t tmpfs none /tmp",
        "umount /run",
        "unshare --net true",
        "unshare --user true",
        "nsenter --target 1 --net true",
        "touch /anywhere",
        f"touch {ROOT}/workloads/anywhere",
        "mknod /tmp/disk b 259 0",
        "hostname other",
        "ip link add x type veth",
        "ip address add 10.9.9.9/8 dev lo",
        "dmesg",
        "date --set @0",
        "chroot / true",
        "test -e /etc/shadow",
        "test -e /root/.bashrc",
        "test -e /home",
        "test -e /var/lib",
        f"test -e {ROOT}/testbed",
        "test -s /proc/kcore",
        "test -e /run/openvswitch",
        "ls /sys/fs/cgroup/*/*",
    ],
)
def test_what_cannot_be_done(lab: Lab, forbidden: str) -> None:
    shell(lab, f"if ({forbidden}) 2>/dev/null; then exit 1; fi")


def test_root_inside_is_nobody_outside(lab: Lab) -> None:
    """And the network is that nobody's own, so that its captures need no right over this machine."""
    outside, count = shell(lab, "cat /proc/self/uid_map").split()[1:]
    assert int(outside) >= 0x7000_0000
    assert int(count) == 65535
    with worker(lab, 0, "sleep", "600") as (w, _):
        assert os.stat(f"/proc/{w.pid}").st_uid == int(outside)
        assert os.stat(lab.worker_dir(0) / "sock").st_uid == int(outside)


def test_without_user_namespaces_it_is_root_with_few_rights(lab: Lab) -> None:
    bare = dataclasses.replace(lab.containers, ids=None)
    os.chown(lab.worker_dir(3) / "sock", 0, 0)
    out = lab.dir / "bare.out"
    with out.open("wb") as stdout:
        w = bare.start(
            3, ["sh", "-c", "cat /proc/self/uid_map /etc/shadow; ls /root /run/railbed"], stdout=stdout, stderr=stdout
        )
        assert w.wait() != 0
    said = out.read_text()
    assert said.split()[:3] == ["0", "0", "4294967295"]
    assert said.count("No such file or directory") == 2
    assert said.split()[-5:] == ["init", "lib", "network", "nics", "worker.sock"]


def test_what_it_sees_is_what_it_was_given(lab: Lab, folder: Path) -> None:
    """Every mount is the kernel's own, empty at the start, or a listed folder that is only for reading."""
    writable = {"/tmp", "/run", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/proc", str(folder / "data/out")}
    writable |= {"/run/railbed/worker.sock", "/run/railbed/network"}
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "tty", "random", "urandom")}
    own = {
        str(ROOT / "workloads"),
        *(str(ROOT / "hardware/bin" / name) for name in ("elements", "turns")),
        sys.prefix,
        str(folder / "data"),
        str(folder / "notes"),
    }
    for line in shell(lab, "cat /proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        point, options, kind = before.split()[4], before.split()[5].split(","), after.split()[0]
        if point in writable | devices or before.split()[3] == "/null":
            continue
        assert "ro" in options, line
        listed = point.startswith(("/usr", "/bin", "/sbin", "/lib", "/etc/", "/run/railbed/")) or point in own
        assert (listed and "nosuid" in options) or kind in ("tmpfs", "proc", "sysfs", "devtmpfs"), line


def test_what_an_experiment_binds_is_seen_and_nothing_beside_it(lab: Lab, folder: Path) -> None:
    assert shell(lab, f"cd {folder}; ls . data; cat data/all notes").split() == [
        *(".:", "data", "notes", "data:", "all", "mine", "out"),
        *("data/all", "notes"),
    ]
    for forbidden in ("cat data/mine", "touch data/new", "echo >> data/all", "echo >> notes", "touch new", "rm notes"):
        shell(lab, f"cd {folder}; if ({forbidden}) 2>/dev/null; then exit 1; fi")
    shell(lab, f"cd {folder}/data/out; cat old; echo by a rank > new; cp /bin/true .; chmod 4755 true")
    written = folder / "data" / "out" / "new"
    assert written.read_text() == "by a rank\n" and written.stat().st_uid >= 0x7000_0000
    mounts = [line.split() for line in shell(lab, "cat /proc/self/mountinfo").splitlines()]
    options = {
        m[4]: {"ro", "rw", "nosuid", "nodev"} & {*m[5].split(",")} for m in mounts if m[4].startswith(str(folder))
    }
    assert options == {
        f"{folder}/data": {"ro", "nosuid", "nodev"},
        f"{folder}/data/out": {"rw", "nosuid", "nodev"},
        f"{folder}/notes": {"ro", "nosuid", "nodev"},
    }


def test_sockets_of_this_machine_cannot_be_reached(lab: Lab) -> None:
    """Neither by a path, nor by a name without one, nor by an address."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        path, abstract = f"{folder}/sock", f"rb-{secrets.token_hex(6)}"
        for name in (path, "\0" + abstract):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()
        tcp = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        source = (
            "import socket\n"
            f"for family, to in ((socket.AF_UNIX, {path!r}), (socket.AF_UNIX, chr(0) + {abstract!r}),"
            f" (socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]}))):\n"
            "  try: socket.socket(family).connect(to); print('reached', to)\n"
            "  except OSError as e: print(type(e).__name__)"
        )
        assert python(lab, source).split() == ["FileNotFoundError", "ConnectionRefusedError", "ConnectionRefusedError"]


# -- captures from inside


def capture(lab: Lab, start: str, ready: str, result: str) -> list[str]:
    """What a program says that captures two packets of the loopback, a ping and its answer, once it is `ready`."""
    script = (
        f"{start} 2>/tmp/log & while kill -0 $! && ! grep -q '{ready}' /tmp/log; do sleep 0.05; done; "
        f"ping -qc1 127.0.0.1 >/dev/null; wait; {result}"
    )
    return shell(lab, script).splitlines()


@pytest.mark.skipif(not shutil.which("tcpdump"), reason="needs tcpdump")
def test_tcpdump_inside_a_rank(lab: Lab) -> None:
    """It becomes another user, and gives its file to that."""
    file = "/tmp/seen.pcap"
    said = capture(lab, f"tcpdump -nni lo -c 2 -w {file} icmp", "listening", f"tcpdump -nnr {file} 2>/dev/null")
    assert ["echo request" in said[0], "echo reply" in said[1], len(said)] == [True, True, 2]


@pytest.mark.skipif(not shutil.which("tshark"), reason="needs tshark")
def test_tshark_inside_a_rank(lab: Lab) -> None:
    said = capture(lab, "tshark -lni lo -c 2 -f icmp >/tmp/seen", "Capture started", "cat /tmp/seen")
    assert ["request" in said[0], "reply" in said[1], len(said)] == [True, True, 2]


def test_devices_of_the_machine_cannot_be_opened(lab: Lab) -> None:
    """Those of RDMA are /dev/null."""
    assert shell(lab, "ls /dev | sort").split() == [
        *("fd", "full", "infiniband", "mqueue", "null", "ptmx", "pts", "random"),
        *("shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"),
    ]
    assert shell(lab, "cd /dev/infiniband; stat -c '%n %t %T' *").split("\n")[:2] == ["rdma_cm 1 3", "uverbs0 1 3"]


@x86_64
@pytest.mark.parametrize(
    ("call", "arguments"),
    [("unshare", "0x40000000"), ("keyctl", "0, -3, 0"), ("bpf", "0, 0, 0"), ("perf_event_open", "0, 0, -1, -1, 0")],
)
def test_system_calls_that_are_not_allowed(lab: Lab, call: str, arguments: str) -> None:
    number = {"unshare": 272, "keyctl": 250, "bpf": 321, "perf_event_open": 298}[call]
    assert python(lab, SYSCALL.format(f"{number}, {arguments}")).split() == ["-1", "1"]


FAMILIES_THERE = """
import errno, socket
made, refused = set(), set()
for family in range(46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(family, kind).close()
            made.add(family)
        except OSError as error:
            if error.errno == errno.EPERM:
                refused.add((family, kind))
print(sorted(made))
print(sorted(family for family in range(46) if sum(one == family for one, _ in refused) == 4))
"""


def test_sockets_of_the_families_that_programs_need_and_of_no_other(lab: Lab) -> None:
    """AF_UNIX, AF_INET, AF_INET6, AF_NETLINK (addresses), AF_PACKET (tcpdump)."""
    made, refused = (json.loads(line) for line in python(lab, FAMILIES_THERE).splitlines())
    allowed = {int(getattr(socket, name)) for name in ("AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET")}
    assert set(made) == allowed
    assert set(refused) == set(range(46)) - allowed
    assert python(lab, "import socket; print(len(socket.socketpair()))") == "2\n"


@x86_64
def test_new_namespaces_by_clone_are_not_allowed_and_threads_are(lab: Lab) -> None:
    assert python(lab, SYSCALL.format("56, 0x10000000 | 17, 0, 0, 0, 0")).split() == ["-1", "1"]
    threads = "import threading as t; x = t.Thread(target=lambda: print('ran')); x.start(); x.join()"
    assert python(lab, threads) == "ran\n"


@x86_64
def test_a_call_of_another_architecture_ends_the_process(lab: Lab) -> None:
    # mov eax, 20 (getpid of 32-bit programs); int 0x80; ret
    code = r"b'\xb8\x14\0\0\0\xcd\x80\xc3'"
    program = (
        "import ctypes, mmap, os; m = mmap.mmap(-1, 4096, prot=7); m.write({}); "
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m))); "
        "child = os.fork(); child or os._exit(call() > 0); print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert int(python(lab, program.format(code))) == -signal.SIGSYS


def test_the_profile_names_no_call_twice() -> None:
    groups = json.loads((ROOT / "testbed" / "containers" / "seccomp.json").read_text())
    names = [name for group in groups.values() for name in group]
    assert len(names) == len(set(names))
    for dangerous in (
        "mount",
        "setns",
        "unshare",
        "ptrace",
        "bpf",
        "keyctl",
        "init_module",
        "reboot",
        "io_uring_setup",
    ):
        assert dangerous not in names
    assert profile()["defaultAction"] == "SCMP_ACT_ERRNO"


# -- what it sees


def test_namespaces_are_its_own_but_the_hosts_network(lab: Lab) -> None:
    mine = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "mnt", "uts", "ipc", "net", "cgroup")}
    theirs = dict(
        line.split("=") for line in shell(lab, "cd /proc/self/ns; for k in *; do echo $k=$(readlink $k); done").split()
    )
    assert {kind for kind in mine if mine[kind] == theirs[kind]} == set()
    assert theirs["net"] == os.readlink(f"/proc/{lab.hosts['h0'].pid}/ns/net")
    assert theirs["user"] != os.readlink("/proc/self/ns/user")


def test_ranks_of_one_host_share_its_network_and_nothing_else(lab: Lab) -> None:
    seen = [shell(lab, "readlink /proc/self/ns/net /proc/self/ns/ipc", rank=rank).split() for rank in (0, 1, 2)]
    assert seen[0][0] == seen[1][0] != seen[2][0]
    assert len({ipc for _, ipc in seen}) == 3


def test_name_and_environment(lab: Lab) -> None:
    assert inside(lab, "hostname", rank=3) == "h1-1\n"
    env = dict(line.split("=", 1) for line in inside(lab, "env", rank=3).splitlines())
    assert (env["RAILBED_RANK"], env["RAILBED_RANKS"], env["RAILBED_NAME"]) == ("3", "4", "h1.1")
    assert env["RAILBED_SOCKET"] == "/run/railbed/worker.sock"
    assert "RAILBED_FABRIC" not in env


def test_of_run_it_sees_its_socket_and_what_rdma_programs_need(lab: Lab) -> None:
    assert shell(lab, "find /run -path /run/mount -prune -o -print | sort").split() == [
        "/run",
        "/run/railbed",
        "/run/railbed/idle",
        "/run/railbed/init",
        "/run/railbed/lib",
        "/run/railbed/lib/libibverbs.so.1",
        "/run/railbed/lib/librailbed-time.so",
        "/run/railbed/lib/librdmacm.so.1",
        "/run/railbed/network",
        "/run/railbed/nics",
        "/run/railbed/worker.sock",
    ]


def test_processes_outside_are_not_seen(lab: Lab) -> None:
    commands = shell(lab, "cat /proc/[0-9]*/comm").split()
    assert {"init", "idle"} <= set(commands) <= {"init", "idle", "sh", "cat"}


def test_the_worker_socket_leads_to_fabricd(lab: Lab) -> None:
    source = (
        "import os, socket, struct; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.connect(os.environ['RAILBED_SOCKET']); s.send(struct.pack('<HHIII', 1, 16, 0, 0x31574252, VERSION));"
        "kind, _, length, version, rank, ranks = struct.unpack_from('<HHIIII', s.recv(4096)); print(kind, rank, ranks)"
    ).replace("VERSION", str(wire.VERSION))
    assert python(lab, source, rank=2).split() == ["1", "2", "4"]


def test_our_python_and_our_code_work_inside(lab: Lab) -> None:
    source = (
        "import sys, numpy, workloads.registry, workloads.verbs; print(sys.executable, workloads.registry.__file__)"
    )
    assert python(lab, source).split() == [sys.executable, str(ROOT / "workloads" / "registry.py")]


def test_the_plan_is_there_if_it_was_written(lab: Lab) -> None:
    (lab.worker_dir(0) / "plan.json").write_text('{"rank": 0}')
    with worker(lab, 0, "sh", "-c", "cat $RAILBED_PLAN; echo > $RAILBED_PLAN") as (w, out):
        assert w.wait() != 0
    assert out.read_text().startswith('{"rank": 0}')
    assert (lab.worker_dir(0) / "plan.json").read_text() == '{"rank": 0}'


# -- limits


def test_memory_is_limited(lab: Lab) -> None:
    with worker(lab, 3, sys.executable, "-c", "x = b'x' * (600 << 20); print(len(x))") as (w, out):
        assert w.wait() == -signal.SIGKILL
    assert out.read_text() == ""


def test_fabricd_has_a_limit_of_its_own(lab: Lab) -> None:
    """Not the machine's memory, but its own and the workers'."""
    pid = lab.record.processes["fabricd"].pid
    group = next(Path("/sys/fs/cgroup").glob(f"*/railbed-{lab.id}/fabricd/memory.limit_in_bytes"), None) or next(
        Path("/sys/fs/cgroup").glob(f"railbed-{lab.id}/fabricd/memory.max")
    )
    assert int(group.read_text()) == FABRICD_BYTES + 4 * (256 << 20)
    assert str(pid) in (group.parent / "cgroup.procs").read_text().split()


def test_cpu_time_is_limited(lab: Lab) -> None:
    spin = (  # the machine's own clock: the program's is the fabric's
        "import time\ndef now(): return float(open('/proc/uptime').read().split()[0])\nbegin = now()\n"
        "while time.process_time() < 0.6: pass\nprint(time.process_time() / (now() - begin), flush=True)"
    )
    assert float(python(lab, spin, rank=2)) < 0.75


def test_open_files(lab: Lab) -> None:
    assert shell(lab, "ulimit -n; ulimit -Hn").split() == ["20000", "20000"]
