"""The checks without which no fabric comes up: rights, Open vSwitch, TAP devices, namespaces, containers, fabricd."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from controllers.openflow.revalidation import NotPurged, purge
from testbed.base.errors import MachineError
from testbed.base.text import tail
from testbed.doctor.findings import Lack, NotInstalled, check
from testbed.fabric.ovs import OpenVSwitch

_CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
}
_MEND = "install the distribution's openvswitch-switch, or look at what it said"
INSTALL_AGAIN = "install it again (docs/install.md)"
_ASK_S = 30.0  # for an answer, on a machine that is busy
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def output_of(*command: str, timeout: float = _ASK_S) -> str:
    """Standard output of a command.  Raises OSError or subprocess.SubprocessError."""
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=True, stdin=subprocess.DEVNULL
    )
    return process.stdout


def need_programs(
    packages: Mapping[str, str], cost: str, uses: Mapping[str, str] = MappingProxyType({}), *, fatal: bool = False
) -> None:
    """Raises NotInstalled for all that are not there: program -> its packages. `uses` is added to the cost."""
    lacking = [name for name in packages if shutil.which(name) is None]
    if not lacking:
        return
    found = f"{lacking[0]} is not installed" if len(lacking) == 1 else f"not installed: {', '.join(lacking)}"
    wanted = dict.fromkeys(package for name in lacking for package in packages[name].split())
    raise NotInstalled(found, cost + "; ".join(uses[name] for name in lacking if name in uses), [*wanted], fatal=fatal)


@check("root", vital=True)
def root() -> str:
    if os.geteuid() != 0:
        cost = "only root can make network namespaces, TAP devices and bridges"
        raise Lack(f"running as uid {os.geteuid()}, not root", cost, "sudo testbed ..", fatal=True)
    effective = int(status_field("/proc/self/status", "CapEff"), 16)
    lacking = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    if lacking:
        cost = "root without them cannot make namespaces and devices"
        mend = "in a container: start it privileged, or add these capabilities"
        raise Lack(f"root, but without {', '.join(lacking)}", cost, mend, fatal=True)
    return "root with the capabilities needed"


def status_field(path: str, name: str) -> str:
    """The value of a `name: value` line.  Raises KeyError."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    raise KeyError(name)


@check("open vswitch", vital=True, by_root=True)
def open_vswitch() -> str:
    """Starts an Open vSwitch, as every fabric does; it does not matter whether the host runs one."""
    cost = "every fabric starts an Open vSwitch of its own"
    own = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
    packages = dict.fromkeys(own, "openvswitch-switch") | dict.fromkeys(("nsenter", "setpriv", "prlimit"), "util-linux")
    need_programs(packages, cost, fatal=True)
    try:
        with tempfile.TemporaryDirectory(prefix="rbdoctor-") as folder, _own_ovs(Path(folder) / "ovs") as ovs:
            columns = "--columns=datapath_types"
            answer = output_of(*_ask(ovs, "ovs-vsctl", "--format=json", columns, "list", "Open_vSwitch"))
            datapaths = json.loads(answer)["data"][0][0]
            if "netdev" not in (datapaths[1] if isinstance(datapaths, list) else [datapaths]):
                raise Lack("it has no netdev datapath", "the virtual clock needs it", _MEND, fatal=True)
            version = output_of(*_ask(ovs, "ovs-appctl", "-t", str(ovs.control), "version")).split()[-1]
            purge(ovs.control)
    except NotPurged as error:
        what = f"it does not purge its flow cache: {error}"
        raise Lack(what, "runs with changing routes are doubtful", _MEND) from None
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, MachineError) as error:
        reason = error.what if isinstance(error, MachineError) else getattr(error, "stderr", None) or str(error)
        raise Lack(f"one of our own does not start: {reason.strip()}", cost, _MEND, fatal=True) from None
    return f"version {version} starts, userspace datapath"


@contextmanager
def _own_ovs(directory: Path) -> Iterator[OpenVSwitch]:
    """A running Open vSwitch without bridges, in a network namespace of its own."""
    ovs = OpenVSwitch(directory)
    started: list[subprocess.Popen[bytes]] = []

    def spawn(argv: Sequence[str], *, env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", *argv]
        started.append(subprocess.Popen(command, env={**os.environ, **env}, start_new_session=True, **options))
        return started[-1]

    try:
        ovs.finish(ovs.make_database())
        switch = ovs.start_switch(spawn, ovs.start_database(spawn))

        def check() -> None:
            if switch.poll() is not None:
                raise MachineError(f"ovs-vswitchd ends: {tail(ovs.log)}")

        ovs.finish([ovs.begin()], check)
        yield ovs
    finally:
        for process in started:
            process.kill()
            process.wait()


def _ask(ovs: OpenVSwitch, program: str, *arguments: str) -> list[str]:
    return ["env", f"OVS_RUNDIR={ovs.dir}", program, f"--timeout={_ASK_S:.0f}", *arguments]


@check("tap devices", vital=True, by_root=True)
def tap_devices() -> str:
    cost = "every switch port is a TAP device"
    device = Path("/dev/net/tun")
    if not device.exists():
        there = Path("/sys/class/misc/tun").exists()  # the kernel has it: a container is not shown its device
        make = "mkdir -p /dev/net && mknod /dev/net/tun c 10 200"
        command = ("sh", "-c", make) if there else ("modprobe", "tun")
        mend = make if there else "modprobe tun; in a container: pass /dev/net/tun in"
        raise Lack(f"{device} is missing", cost, mend, fatal=True, command=command)
    try:
        with open(device, "r+b", buffering=0) as tun:  # the TAP goes away with the file
            fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"rbdoctor%d", _IFF_TAP | _IFF_NO_PI))
    except OSError as error:
        mend = "run as root; in a container: add CAP_NET_ADMIN and allow the device"
        raise Lack(f"{device}: {error.strerror}", cost, mend, fatal=True) from None
    return f"{device} works"


@check("mininet", vital=True, by_root=True)
def mininet() -> str:
    cost = "hosts are network namespaces that mnexec makes"
    tools = {"mnexec": "mininet", "ifconfig": "net-tools", "ip": "iproute2", "nsenter": "util-linux"}
    need_programs(tools, cost, fatal=True)
    try:
        output_of("mnexec", "-n", "true")
    except (OSError, subprocess.SubprocessError):
        mend = "allow network and mount namespaces (in a container: start it privileged)"
        raise Lack("mnexec cannot make a network namespace", cost, mend, fatal=True) from None
    return "mnexec makes network namespaces"


@check("containers", vital=True)
def containers() -> str:
    cost = "every worker is a runc container with tini as its init"
    need_programs({"runc": "runc", "tini": "tini"}, cost, fatal=True)
    version = output_of("runc", "--version").split("\n")[0].removeprefix("runc version ")
    if not Path("/proc/sys/kernel/seccomp").exists():
        raise Lack("the kernel has no seccomp", "workers' system calls are not filtered", "use a kernel with seccomp")
    return f"runc {version}, tini, seccomp"


@check("fabricd", vital=True)
def fabricd() -> str:
    from hardware import build
    from hardware.client import CHECKOUT, newer_source

    cost = "it is the emulated hardware"
    mend = "./setup.sh build (or python -m hardware.build)" if CHECKOUT.exists() else INSTALL_AGAIN
    if not build.FABRICD.exists():
        raise Lack("not built", cost, mend, fatal=True)
    if not build.HOLDER.exists():
        raise Lack(f"{build.HOLDER} is not built", "it holds the namespaces of a fabric", mend, fatal=True)
    try:
        started = subprocess.run([str(build.FABRICD)], capture_output=True, text=True, timeout=10)
    except OSError as error:
        raise Lack(f"does not start: {error.strerror}", cost, mend, fatal=True) from None
    if "shared libraries" in started.stderr:
        raise NotInstalled(started.stderr.strip(), cost, ["libjansson4", "libdeflate0"], fatal=True)
    if CHECKOUT.exists() and (newer := newer_source(build.FABRICD, build.SOURCES)):
        raise Lack(f"older than {newer}", "what runs is not what is written there", mend)
    return str(build.FABRICD)


@check("run directory", vital=True, by_root=True)
def run_directory() -> str:
    cost = "what a fabric makes is journaled in /run/railbed before it is made"
    if not os.access("/run", os.W_OK | os.X_OK):
        raise Lack("/run cannot be written", cost, "run as root, with /run writable", fatal=True)
    free = shutil.disk_usage("/run").free
    if free < 16 << 20:
        raise Lack(f"/run has {free >> 20} MiB free", cost, "make room in /run", fatal=True)
    return "/run can be written"
