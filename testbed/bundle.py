"""What a rank's container looks like: the OCI configuration that runc gets.

Its root is this machine's `/`, read-only, or an image; its own are /tmp, /run, /dev, the process ids, host name and
IPC. It shares nothing with the outside but its host's network namespace and the worker socket.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.seccomp import profile

INSIDE = Path("/run/railbed")  # where socket, plan and init are, seen from inside
CHECKOUT = Path(__file__).resolve().parent.parent
_CAPABILITIES = ["CAP_NET_RAW"]  # ping
_PIDS = 4096
_PERIOD_US = 100_000
_NOFILE = 20_000

# What a container reads of the kernel's that is none of its business; as containerd has it.
_MASKED = [
    *(f"/proc/{name}" for name in ("acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats")),
    *("/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware", "/sys/devices/virtual/powercap"),
]
_READ_ONLY = [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")]
# Secrets of this machine that root may read even without capabilities.
_SECRETS = ["/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers", "/root/.ssh"]
_HIDDEN = (Path("/tmp"), Path("/run"), Path("/dev"), Path("/var/run"))


@dataclass(frozen=True)
class Limits:
    """What a worker may use: CPUs (None: no limit) and bytes of memory."""

    cpus: float | None = None
    memory_bytes: int = 1 << 30


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
    control_group: str,
    limits: Limits,
    binds: Binds,
    rootfs: Path | None = None,
) -> dict[str, Any]:
    """config.json of a bundle. `rootfs` None: this machine's root."""
    nofile = min(_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    capabilities = dict.fromkeys(("bounding", "effective", "permitted"), _CAPABILITIES)
    return {
        "ociVersion": "1.0.2",
        "hostname": hostname,
        "root": {"path": str(rootfs or "rootfs"), "readonly": True},
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
            ],
            "cgroupsPath": control_group,
            "resources": _resources(limits),
            "seccomp": profile(),
            "maskedPaths": _MASKED + _existing_secrets(rootfs),
            "readonlyPaths": _READ_ONLY,
        },
    }


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


def _existing_secrets(rootfs: Path | None) -> list[str]:
    if rootfs is not None:
        return []
    keys = [str(p) for p in Path("/etc/ssh").glob("ssh_host_*_key")]
    return [path for path in [*_SECRETS, *keys] if os.path.exists(path)]


def _mounts(binds: Binds, rootfs: Path | None) -> list[dict[str, Any]]:
    private = ["nosuid", "nodev"]
    mounts = [] if rootfs else [_mount("/", "bind", "/", "rbind", "rprivate", "rro")]
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
    return mounts + [_mount(str(p), "bind", str(p), "rbind", "rro", *private) for p in _program_folders(rootfs)]


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _program_folders(rootfs: Path | None) -> list[Path]:
    """Folders with our Python and our code that would not be seen otherwise: below /tmp, say, or from an image."""
    if rootfs is not None:
        return [CHECKOUT]
    wanted = {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT, Path(sys.executable).resolve().parent}
    return sorted(_outermost(p for p in wanted if any(p.is_relative_to(hidden) for hidden in _HIDDEN)))


def _outermost(paths: Iterable[Path]) -> set[Path]:
    found = set(paths)
    return {p for p in found if not any(p != other and p.is_relative_to(other) for other in found)}


def _init() -> str:
    """tini, statically linked so that it runs in any image."""
    for name in ("tini-static", "tini"):
        if path := shutil.which(name):
            return path
    raise MachineError("tini is not installed", hint="./setup.sh installs it (package tini)")
