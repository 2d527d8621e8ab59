"""What a rank's container looks like: the OCI configuration that runc gets.

Its root is an image, or has only what a worker needs of this machine, read-only: programs and libraries (/usr), our
Python, the workers' code and a few files of /etc (machine/mounts.py). An experiment may bind more. A container has its
own /tmp, /run, /dev, process ids, users, host name and IPC. It shares its host's network namespace and the worker
socket with the outside, and nothing else.

Users: root inside is nobody outside, where the kernel has user namespaces and others may read our code. Then the
network of the rank's host belongs to that user namespace, and capabilities are valid for that network only.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from testbed.base.errors import MachineError
from testbed.containers import programs
from testbed.containers.seccomp import profile
from testbed.machine.mounts import CHECKOUT, Bind, runtime_folders, system_paths
from testbed.machine.ownership import id_range

INSIDE = Path("/run/railbed")  # a container's socket, plan and init
SOCKETS = INSIDE / "workers"  # the sockets of the ranks that share a container: RANK/sock
# ping and captures; before it looks at packets tcpdump turns into a user of its own, to whom it gives its file
_CAPABILITIES = ["CAP_NET_RAW", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"]
_PIDS = 4096
CPU_PERIOD_US = 100_000
_NOFILE = 20_000

# Kernel files that a container has no business with; the list is containerd's.
_MASKED = [
    *(f"/proc/{name}" for name in ("acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats")),
    *("/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware", "/sys/devices/virtual/powercap"),
]
_READ_ONLY = [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")]
_COVERED = ("/var", "/srv", "/opt", "/mnt", "/media", "/boot")
# User ids that systemd's list of uid ranges leaves free: ID_RANGES times 65536. The last of each is its fabricd's.
_FIRST_ID, _IDS = 0x7000_0000, 65536


@dataclass(frozen=True)
class Limits:
    """What a worker may use: CPUs (None: no limit) and bytes of memory, and as many that it shares with its NIC."""

    cpus: float | None = None
    memory_bytes: int = 1 << 30

    def of(self, workers: int) -> Limits:
        """What so many may use together."""
        return Limits(self.cpus and self.cpus * workers, self.memory_bytes * workers)


@dataclass(frozen=True)
class Users:
    """The user namespace of a container, and the first of its users as seen from outside."""

    namespace: Path
    first: int


@dataclass(frozen=True)
class Binds:
    """Files of the fabric that a container sees, read-only except sockets; `more` are the experiment's.

    `sockets` are those of all ranks of a container that several share. `fabric` is its directory, of which RDMA
    programs see something.
    """

    socket: Path
    sockets: Mapping[int, Path] = field(default_factory=dict)
    plan: Path | None = None
    idle: Path | None = None
    fabric: Path | None = None
    more: Sequence[Bind] = ()


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
    mounts = _mounts(binds, rootfs)
    return {
        "ociVersion": "1.0.2",
        "hostname": hostname,
        "root": {"path": _covered(users, mounts), "readonly": True},
        "process": {
            "args": [str(INSIDE / "init"), "-g", "--", *argv],
            "env": [f"{key}={value}" for key, value in env.items()],
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
            "capabilities": capabilities,
            "noNewPrivileges": True,
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": nofile, "hard": nofile}],
        },
        "mounts": mounts,
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


def _covered(users: Users | None, mounts: Sequence[Mapping[str, Any]]) -> str:
    """The folder over which the root is mounted: one that others may enter, and below which nothing is mounted.

    runc would take such a path for one inside the new root.
    """
    if users is None:
        return "rootfs"
    for name in _COVERED:
        used = any(Path(mount["destination"]).is_relative_to(name) for mount in mounts)
        if not used and os.path.isdir(name) and _open_to_all(Path(name)):
            return name
    raise MachineError(f"ranks see something in each of {', '.join(_COVERED)}", hint="bind less with workers.bind")


def _has_namespace(kind: str) -> bool:
    return Path("/proc/self/ns", {"mount": "mnt"}.get(kind, kind)).exists()


def _resources(limits: Limits) -> dict[str, Any]:
    resources: dict[str, Any] = {
        "memory": {"limit": 2 * limits.memory_bytes},
        "pids": {"limit": _PIDS},
        "devices": [{"allow": False, "access": "rwm"}],  # runc adds /dev/null and its like
    }
    if limits.cpus is not None:
        resources["cpu"] = {"period": CPU_PERIOD_US, "quota": cpu_quota_us(limits.cpus)}
    return resources


def cpu_quota_us(cpus: float) -> int:
    """Of a period of control groups; the kernel takes no less than a millisecond."""
    return max(1000, round(cpus * CPU_PERIOD_US))


def first_id(fabric_id: str) -> int | None:
    """The first user id of a fabric's ranks; None if only root can read the workers' code."""
    readable = all(_open_to_all(p) for p in (*runtime_folders(), Path(sys.executable).resolve()))
    return _FIRST_ID + id_range(fabric_id) * _IDS if readable else None


def fabricd_id(fabric_id: str) -> int:
    """The user and group that a fabric's fabricd becomes: the last of its range, which no container has."""
    return _FIRST_ID + (id_range(fabric_id) + 1) * _IDS - 1


def _open_to_all(path: Path) -> bool:
    """Whether anybody may read it. The folders above do not matter: only the path itself is mounted."""
    bits = stat.S_IROTH | stat.S_IXOTH
    return path.stat().st_mode & bits == bits


def _mappings(first: int) -> dict[str, Any]:
    mapping = [{"containerID": 0, "hostID": first, "size": _IDS - 1}]
    return {"uidMappings": mapping, "gidMappings": mapping}


def _mounts(binds: Binds, rootfs: Path | None) -> list[dict[str, Any]]:
    private = ["nosuid", "nodev"]
    read_only = ["rbind", "rprivate", "rro", *private]
    if rootfs:
        mounts = [_mount("/", "bind", str(rootfs), "rbind", "rprivate", *private)]  # read-only when all is mounted
    else:
        mounts = [_mount("/", "tmpfs", "tmpfs", *private, "mode=755", "size=1m")]
        mounts += [_mount(path, "bind", os.path.realpath(path), *read_only) for path in system_paths()]
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
    for rank, socket in binds.sockets.items():
        mounts.append(_mount(str(SOCKETS / str(rank) / "sock"), "bind", str(socket), "bind", *private, "noexec"))
    if binds.plan:
        mounts.append(_mount(str(INSIDE / "plan.json"), "bind", str(binds.plan), "bind", "ro", *private, "noexec"))
    if binds.idle:
        mounts.append(_mount(str(INSIDE / "idle"), "bind", str(binds.idle), "bind", "ro", *private))
    for inside, outside, options in programs.mounts(binds.fabric) if binds.fabric else ():
        mounts.append(_mount(str(inside), "bind", str(outside), "bind", *options, "nosuid"))
    # The user's, with options that hold for all mounts below, too. Our own come last: later mounts cover earlier ones.
    for bind in binds.more:
        how = ("rbind", "rprivate", "rnosuid", "rnodev", "rw" if bind.writable else "rro")
        mounts.append(_mount(str(bind.path), "bind", str(bind.path.resolve()), *how))
    own: Sequence[Path] = [CHECKOUT / "workloads"] if rootfs else runtime_folders()
    return mounts + [_mount(str(p), "bind", str(p), *read_only) for p in own]


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


@cache
def _init() -> str:
    """tini, statically linked so that it runs in any image."""
    for name in ("tini-static", "tini"):
        if path := shutil.which(name):
            return path
    raise MachineError("tini is not installed", hint="./setup.sh installs it (package tini)")
