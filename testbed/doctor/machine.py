"""The checks of what makes runs slow, small or doubtful: limits, memory, clock, load, programs, leftovers."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from hardware.build import EMULATED, VERBS
from hardware.client import CHECKOUT
from testbed.doctor.findings import Lack, check
from testbed.doctor.needs import INSTALL_AGAIN, need_programs
from testbed.machine.memory import available_bytes

_STEAL_SECONDS = 0.2
_SLEEPS = 40


@check("kernel datapath")
def kernel_datapath() -> str:
    if Path("/sys/module/openvswitch").exists():
        return "the kernel has Open vSwitch's module"
    modules = Path("/lib/modules", os.uname().release)
    if any(modules.glob("kernel/net/openvswitch/openvswitch.ko*")):
        return "the kernel has Open vSwitch's module (not loaded)"
    return "none: the userspace datapath serves both clocks"


@check("programs")
def programs() -> str:
    cost = "fabrics work; what uses it does not: "
    packages = {
        "ethtool": "ethtool", "tcpdump": "tcpdump", "tshark": "tshark", "iperf3": "iperf3", "ping": "iputils-ping",
        "cc": "gcc libc6-dev",
    }  # fmt: skip
    uses = {
        "ethtool": "TCP and UDP on hosts' kernel interfaces",
        "tcpdump": "captures from inside hosts",
        "tshark": "decoding captures",
        "iperf3": "throughput of ordinary programs",
        "ping": "ping from hosts",
        "cc": "controls and choices of your own, in C",
    }
    need_programs(packages, cost, uses)
    return ", ".join(packages)


@check("rdma programs")
def rdma_programs() -> str:
    cost = "fabrics work; what uses it does not: "
    for library in (VERBS, EMULATED):
        if not library.exists():
            mend = "./setup.sh build" if CHECKOUT.exists() else INSTALL_AGAIN
            raise Lack(f"{library} is not built", cost + "unmodified RDMA programs", mend)
    uses = {
        "ib_write_bw": "the usual tests of RDMA (docs/rdma-programs.md)",
        "ibv_devinfo": "looking at an emulated NIC from inside",
        "rping": "programs that connect by the connection manager",
    }
    need_programs({"ib_write_bw": "perftest", "ibv_devinfo": "ibverbs-utils", "rping": "rdmacm-utils"}, cost, uses)
    return "perftest, ibverbs-utils and rdmacm-utils, on our libibverbs and librdmacm"


@check("python")
def python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    try:
        requirements = metadata.requires("railbed") or []
    except metadata.PackageNotFoundError:
        what = f"{version}, but Railbed is not installed in it"
        raise Lack(what, "dependencies unknown", "./setup.sh build") from None
    lacking = [name for name in map(_name_if_needed, requirements) if name and not _installed(name)]
    if lacking:
        mend = "./setup.sh build" if CHECKOUT.exists() else INSTALL_AGAIN
        raise Lack(f"{version} without {', '.join(lacking)}", "runs will fail", mend)
    return f"{version} with all dependencies"


def _name_if_needed(requirement: str) -> str | None:
    """The package's name; None if it belongs to an extra or to another version of Python."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return name.group() if name and ";" not in requirement else None


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@check("cgroups", vital=True, by_root=True)
def cgroups() -> str:
    cost, mend = "workers cannot be confined", "mount /sys/fs/cgroup; in a container: writable"
    where = cgroup_controllers()
    if not where:
        raise Lack("no cgroups", cost, mend, fatal=True)
    for mount in sorted({mount for _, mount in where.values()}):
        try:
            group = Path(tempfile.mkdtemp(prefix="railbed-doctor-", dir=mount))
            group.rmdir()
        except OSError as error:
            raise Lack(f"no group can be made in {mount}: {error.strerror}", cost, mend, fatal=True) from None
    lacking = [name for name in ("cpu", "memory", "pids") if name not in where]
    if lacking:
        cost = f"limits of workers on {', '.join(lacking)} have no effect"
        raise Lack(f"no controller for {', '.join(lacking)}", cost, "enable them on the kernel's command line")
    return ", ".join(f"{name} ({where[name][0]})" for name in ("cpu", "memory", "pids"))


def cgroup_controllers() -> dict[str, tuple[str, str]]:
    """Controller -> `v1` or `v2`, as mounted here, and where."""
    controllers_at: dict[str, tuple[str, str]] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split(" ")
        if kind == "cgroup":
            named = [name for name in options.split(",") if name in ("cpu", "memory", "pids")]
            controllers_at |= dict.fromkeys(named, ("v1", mount))
        elif kind == "cgroup2":
            controllers = Path(mount, "cgroup.controllers")
            has = controllers.read_text().split() if controllers.exists() else []
            controllers_at |= dict.fromkeys([*has, "unified"], ("v2", mount))
    return controllers_at


@check("open files")
def open_files() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        cost = f"about {max(0, hard - 200) // 2} switch ports and NICs fit into a fabric"
        raise Lack(f"at most {hard} a process", cost, "raise the hard limit: ulimit -Hn 20000", fatal=hard < 256)
    return f"{soft} a process, up to {'any number' if hard == resource.RLIM_INFINITY else hard}"


@check("socket buffers")
def socket_buffers() -> str:
    default = int(Path("/proc/sys/net/core/rmem_default").read_text())
    if default < 212_992:
        cost = "Open vSwitch may lose frames that wait for it, and runs are flagged"
        raise Lack(f"{default} bytes by default", cost, "sysctl net.core.rmem_default=212992")
    return f"{default} bytes by default"


@check("memory")
def memory() -> str:
    free = (available_bytes() or 0) >> 20
    if free < 2048:
        cost = "a few small workers fit (a rank takes about 100 MiB and its buffers)"
        raise Lack(f"{free} MiB free", cost, "end other programs, or run on a larger machine", fatal=free < 256)
    return f"{free / 1024:.1f} GiB free"


@check("disk")
def disk() -> str:
    places = dict.fromkeys((str(Path.cwd()), tempfile.gettempdir()))
    free = {place: shutil.disk_usage(place).free >> 20 for place in places}
    for place, mib in free.items():
        if mib < 1024:
            mend = "make room, name another folder with --out, or another one for temporary files with TMPDIR"
            raise Lack(f"{mib} MiB free in {place}", "runs and captures may not fit", mend)
    return ", ".join(f"{mib / 1024:.0f} GiB free in {place}" for place, mib in free.items())


@check("clock")
def clock() -> str:
    source_file = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    source = source_file.read_text().strip() if source_file.exists() else "unknown"
    late_us = _late_us()
    state = f"{source}, timers {late_us:.0f} us late"
    cost = "with the real clock events run late: it needs a larger dilation (the virtual clock does not care)"
    if source in ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"):
        raise Lack(state, cost, "use a machine whose clock source is tsc or its hypervisor's")
    if late_us > 1000:
        raise Lack(state, cost, "end other programs; use a kernel with high-resolution timers")
    return state


def _late_us() -> float:
    """How late a timer of 100 us is, in us; exceeded by one in ten."""
    late = []
    for _ in range(_SLEEPS):
        due = time.monotonic_ns() + 100_000
        time.sleep(100e-6)
        late.append(time.monotonic_ns() - due)
    return sorted(late)[len(late) * 9 // 10] / 1000


@check("load")
def load() -> str:
    processors = len(os.sched_getaffinity(0))
    one_minute = os.getloadavg()[0]
    steal = _steal_percent()
    state = f"{one_minute:.1f} on {processors} processor{'s' * (processors != 1)}, {steal:.0f} % stolen"
    cost = "runs take longer; with the real clock their figures may be doubtful (with the virtual clock not)"
    if processors < 2:
        raise Lack(state, cost, "give the machine a second processor")
    if one_minute > processors or steal > 5:
        raise Lack(state, cost, "end other programs, or wait")
    return state


def _steal_percent() -> float:
    def sample() -> tuple[int, int]:
        ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(ticks), ticks[7] if len(ticks) > 7 else 0

    before, stolen_before = sample()
    time.sleep(_STEAL_SECONDS)
    after, stolen_after = sample()
    return 100 * (stolen_after - stolen_before) / max(1, after - before)


@check("loopback", vital=True)
def loopback() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=2).close()
            return "127.0.0.1 connects"
    except OSError as error:
        cost = "switches reach their controller over it"
        up = ("ip", "link", "set", "lo", "up")
        what = f"127.0.0.1: {error.strerror or error}"
        raise Lack(what, cost, " ".join(up), fatal=True, command=up) from None


@check("leftovers", by_root=True)
def leftovers() -> str:
    from testbed.machine import ownership

    dead = [record.id for record in ownership.fabrics() if record.state == "dead"]
    if dead:
        cost = "bridges, namespaces and files of killed runs take up room"
        raise Lack(f"of dead fabrics: {', '.join(dead)}", cost, "testbed clean")
    return "none"
