"""A root file system started as `docker run --privileged` would: by runc, with namespaces of its own and all rights."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OPTIONS = ["nosuid", "noexec", "nodev"]
_DEV = ["nosuid", "strictatime", "mode=755", "size=65536k"]
_PTS = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]


def _capabilities() -> list[str]:
    """All that this process has."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    have = int(status["CapBnd"], 16)
    names = subprocess.run(["capsh", f"--decode={have:x}"], capture_output=True, text=True, check=True).stdout
    return [name.upper() for name in names.strip().partition("=")[2].split(",")]


def _groups() -> list[dict[str, Any]]:
    """The control groups as they are here, for those that are made inside."""
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mounts = [line[1] for line in lines if line[2] in ("cgroup", "cgroup2")]
    top = ["/sys/fs/cgroup"] if "/sys/fs/cgroup" in mounts else sorted(mounts)
    cover = [] if top == ["/sys/fs/cgroup"] else [
        {"destination": "/sys/fs/cgroup", "type": "tmpfs", "source": "tmpfs", "options": [*_OPTIONS, "mode=755"]}
    ]  # fmt: skip
    return cover + [{"destination": one, "type": "bind", "source": one, "options": ["rbind", "rw"]} for one in top]


def _configuration(rootfs: Path, command: Sequence[str], env: Sequence[str], cwd: str, binds: Sequence[str],
                   network: bool) -> dict[str, Any]:  # fmt: skip
    capabilities = _capabilities()
    kinds = ("pid", "mount", "uts", "ipc", *(() if network else ("network",)))
    return {
        "ociVersion": "1.0.2",
        "hostname": "box",
        "root": {"path": str(rootfs), "readonly": False},
        "process": {
            "args": list(command),
            "env": [*(env or [f"PATH={_PATH}"]), "HOME=/root"],
            "cwd": cwd,
            "user": {"uid": 0, "gid": 0},
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted", "inheritable"), capabilities),
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 20000, "hard": 20000}],
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": _DEV},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": _PTS},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": _OPTIONS},
            {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=755"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": _OPTIONS},
            *_groups(),
            *({"destination": one, "type": "bind", "source": one, "options": ["rbind", "ro"]} for one in binds),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in kinds],
            "resources": {"devices": [{"allow": True, "access": "rwm"}]},
        },
    }


def run(
    rootfs: Path,
    command: Sequence[str],
    *,
    env: Sequence[str] = (),
    cwd: str = "/root",
    binds: Sequence[str] = (),
    network: bool = False,
    bundle: Path,
) -> subprocess.CompletedProcess[str]:
    """What the command says. With `network` this machine's is its own; `binds` are seen read-only."""
    name = f"rbproof-{os.getpid()}-{secrets.token_hex(3)}"
    bundle.mkdir(parents=True, exist_ok=True)
    config = _configuration(rootfs.absolute(), command, env, cwd, binds, network)
    (bundle / "config.json").write_text(json.dumps(config))
    try:
        return subprocess.run(
            ["runc", "run", "--bundle", str(bundle), name], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    finally:
        subprocess.run(["runc", "delete", "--force", name], capture_output=True)
