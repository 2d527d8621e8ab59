"""What a rank's container looks like: the OCI configuration that runc gets.

Its root is empty but for what a worker needs of this machine, read-only: programs and libraries (/usr), our Python, the
code of the workers and a few files of /etc; or it is an image. Its own are /tmp, /run, /dev, the process ids, users,
host name and IPC. It shares nothing with the outside but its host's network namespace and the worker socket.

Users: root inside is nobody outside, where the kernel has user namespaces and others may read our code. Then the
network of the rank's host belongs to that user namespace, and capabilities are good for that network only.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.seccomp import profile

INSIDE = Path("/run/railbed")  # where socket, plan and init are, seen from inside
CHECKOUT = Path(__file__).resolve().parent.parent
# ping and captures; before it looks at packets tcpdump turns into a user of its own, to whom it gives its file
_CAPABILITIES = ["CAP_NET_RAW", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"]
_PIDS = 4096
_PERIOD_US = 100_000
_NOFILE = 20_000

# What a container reads of the kernel's that is none of its business; as containerd has it.
_MASKED = [
    *(f"/proc/{name}" for name in ("acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats")),
    *("/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware", "/sys/devices/virtual/powercap"),
]
_READ_ONLY = [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")]
# What a worker sees of this machine, read-only, as far as it is there.
_FOLDERS = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"]
_ETC = [
    *("alternatives", "bash.bashrc", "ethertypes", "gai.conf", "group", "host.conf", "hosts", "inputrc", "iproute2"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "networks", "nsswitch.conf", "openmpi"),
    *("os-release", "passwd", "profile", "protocols", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf"),
    *("terminfo", "timezone", "wireshark"),
]
# User ids that systemd's list of who uses which leaves free: 4096 times 65536.
_FIRST_ID, _IDS = 0x7000_0000, 65536


@dataclass(frozen=True)
class Limits:
    """What a worker may use: CPUs (None: no limit) and bytes of memory."""

    cpus: float | None = None
    memory_bytes: int = 1 << 30


@dataclass(frozen=True)
class Users:
    """The user namespace of a container, and the first of its users as seen from outside."""

    namespace: Path
    first: int


@dataclass(frozen=True)
class Binds:
    """Files of the fabric that a container sees, read-only except the socket."""

    socket: Path
    plan: Path | None = None
    idle: Path | None = None


def configuration(
    *,
    hostname: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    network_namespace: str,
    users: Users | None,
    control_group: str,
    limits: Limits,
    binds: Binds,
    rootfs: Path | None = None,
) -> dict[str, Any]:
    """config.json of a bundle. `rootfs` None: what is needed of this machine. `users` None: those of this machine."""
    nofile = min(_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    capabilities = dict.fromkeys(("bounding", "effective", "permitted"), _CAPABILITIES)
    return {
        "ociVersion": "1.0.2",
        "hostname": hostname,
        "root": {"path": _covered(users), "readonly": True},
        "process": {
            "args": [str(INSIDE / "init"), "-g", "--", *argv],
            "env": [f"{key}={value}" for key, value in env.items()],
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
            "capabilities": capabilities,
            "noNewPrivileges": True,
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": nofile, "hard": nofile}],
        },
        "mounts": _mounts(binds, rootfs),
        "linux": {
            "namespaces": [
                *({"type": kind} for kind in ("pid", "mount", "uts", "ipc", "cgroup") if _has_namespace(kind)),
                {"type": "network", "path": network_namespace},
                *([{"type": "user", "path": str(users.namespace)}] if users else []),
            ],
            **(_mappings(users.first) if users else {}),
            "cgroupsPath": control_group,
            "resources": _resources(limits),
            "seccomp": profile(),
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }


def _covered(users: Users | None) -> str:
    """The folder over which the first mount goes: one that others may enter, and with nothing above it that we show."""
    return "/var" if users else "rootfs"


def _has_namespace(kind: str) -> bool:
    return Path("/proc/self/ns", {"mount": "mnt"}.get(kind, kind)).exists()


def _resources(limits: Limits) -> dict[str, Any]:
    resources: dict[str, Any] = {
        "memory": {"limit": limits.memory_bytes},
        "pids": {"limit": _PIDS},
        "devices": [{"allow": False, "access": "rwm"}],  # runc adds /dev/null and its like
    }
    if limits.cpus is not None:
        resources["cpu"] = {"period": _PERIOD_US, "quota": max(1000, round(limits.cpus * _PERIOD_US))}
    return resources


def first_id(fabric_id: str) -> int | None:
    """The first user id of a fabric's ranks; None if others than root cannot read what the workers are made of."""
    if not all(_open_to_all(p) for p in (*_own_folders(), Path(sys.executable).resolve())):
        return None
    return _FIRST_ID + int(fabric_id, 16) % 4096 * _IDS


def _open_to_all(path: Path) -> bool:
    """Whether anybody may read it; where it lies does not matter, only itself is shown."""
    wanted = stat.S_IROTH | stat.S_IXOTH
    return path.stat().st_mode & wanted == wanted


def _mappings(first: int) -> dict[str, Any]:
    mapping = [{"containerID": 0, "hostID": first, "size": _IDS}]
    return {"uidMappings": mapping, "gidMappings": mapping}


def _mounts(binds: Binds, rootfs: Path | None) -> list[dict[str, Any]]:
    private = ["nosuid", "nodev"]
    shown = ["rbind", "rprivate", "rro", *private]
    if rootfs:
        mounts = [_mount("/", "bind", str(rootfs), "rbind", "rprivate", *private)]  # read-only when all is mounted
    else:
        mounts = [_mount("/", "tmpfs", "tmpfs", *private, "mode=755", "size=1m")]
        mounts += [_mount(path, "bind", os.path.realpath(path), *shown) for path in _of_machine()]
    mounts += [
        _mount("/proc", "proc", "proc", *private, "noexec"),
        _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k"),
        _mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
        _mount("/dev/shm", "tmpfs", "shm", *private, "noexec", "mode=1777"),
        _mount("/dev/mqueue", "mqueue", "mqueue", *private, "noexec"),
        _mount("/sys", "sysfs", "sysfs", *private, "noexec", "ro"),
        _mount("/tmp", "tmpfs", "tmpfs", *private, "mode=1777"),
        _mount("/run", "tmpfs", "tmpfs", *private, "mode=755", "size=1m"),
        _mount(str(INSIDE / "init"), "bind", _init(), "bind", "ro", *private),
        _mount(str(INSIDE / "worker.sock"), "bind", str(binds.socket), "bind", *private, "noexec"),
    ]
    if binds.plan:
        mounts.append(_mount(str(INSIDE / "plan.json"), "bind", str(binds.plan), "bind", "ro", *private, "noexec"))
    if binds.idle:
        mounts.append(_mount(str(INSIDE / "idle"), "bind", str(binds.idle), "bind", "ro", *private))
    own = [CHECKOUT / "workloads"] if rootfs else _own_folders()
    return mounts + [_mount(str(p), "bind", str(p), *shown) for p in own]


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _of_machine() -> list[str]:
    """What there is of the list above. Links are followed: /bin is /usr/bin, seen in two places."""
    etc = [f"/etc/{name}" for name in _ETC] + [str(p) for p in Path("/etc").glob("python3*")]
    return [path for path in [*_FOLDERS, *sorted(etc)] if os.path.exists(path)]


def _own_folders() -> list[Path]:
    """Our Python and the workers' code, as far as they do not lie in a folder that is shown anyway."""
    wanted = {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT / "workloads", Path(sys.executable).resolve().parent}
    return sorted(_outermost(p for p in wanted if not any(p.is_relative_to(folder) for folder in _FOLDERS)))


def _outermost(paths: Iterable[Path]) -> set[Path]:
    found = set(paths)
    return {p for p in found if not any(p != other and p.is_relative_to(other) for other in found)}


def _init() -> str:
    """tini, statically linked so that it runs in any image."""
    for name in ("tini-static", "tini"):
        if path := shutil.which(name):
            return path
    raise MachineError("tini is not installed", hint="./setup.sh installs it (package tini)")
