"""A command in a root file system of its own, as `docker run --privileged` runs it, but by runc alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(root: Path, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What it prints, and how it ends. `root` is changed by it; beside it `config.json` is written."""
    bundle = root.parent
    (bundle / "config.json").unlink(missing_ok=True)
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    spec = privileged(json.loads((bundle / "config.json").read_text()), root, command, env or {})
    (bundle / "config.json").write_text(json.dumps(spec))
    name = f"privileged-{uuid4().hex[:12]}"
    try:
        return subprocess.run(
            ["runc", "run", "--bundle", str(bundle), name], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    finally:
        subprocess.run(["runc", "delete", "--force", name], capture_output=True)


def privileged(spec: dict[str, Any], root: Path, command: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """runc's own configuration with what a privileged container has: every capability there is, every device, /sys and
    its control groups to write, no path hidden, no call forbidden. Its network is its own, as any container's."""
    everything = capabilities()
    process = {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": list(command),
        "env": [f"{key}={value}" for key, value in {"PATH": _PATH, "HOME": "/root", **env}.items()],
        "cwd": "/root",
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), everything),
    }
    mounts = [
        {**mount, "options": [option for option in mount.get("options", ()) if option != "ro"]}
        for mount in spec["mounts"]
    ]
    linux = {
        "resources": {"devices": [{"allow": True, "access": "rwm"}]},
        "devices": [{"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200, "fileMode": 0o666}],
        "namespaces": spec["linux"]["namespaces"],
    }
    return {
        "ociVersion": spec["ociVersion"],
        "process": process,
        "root": {"path": str(root), "readonly": False},
        "hostname": "privileged",
        "mounts": mounts,
        "linux": linux,
    }


def capabilities() -> list[str]:
    """All that this process may give away, which in a container of its own is less than the kernel has."""
    status = Path("/proc/self/status").read_text()
    bounding = int(next(line for line in status.splitlines() if line.startswith("CapBnd:")).split()[1], 16)
    return [name for number, name in enumerate(EVERY) if bounding >> number & 1]


_NAMES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
EVERY = tuple(f"CAP_{name}" for name in _NAMES.split())
"""In the order of their numbers (capabilities(7))."""
