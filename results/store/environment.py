"""A run's environment: versions, kernel, machine, seed, and the commit of the source if it is known."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("railbed", "mininet", "os-ken", "numpy", "pandas", "pyarrow", "networkx", "pydantic", "click", "rich")
_TOOLS = {"ovs": ("ovs-vsctl", "--version"), "runc": ("runc", "--version")}


def environment(seed: int) -> dict[str, Any]:
    """Plain data for environment.json. What cannot be found out is None."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "seed": seed,
        "commit": _commit(Path(__file__).resolve().parents[2]),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "tools": {name: _first_line(command) for name, command in _TOOLS.items()},
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _system(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name"),
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(command: Sequence[str], cwd: Path | None = None) -> str | None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n", 1)[0].strip()


def _commit(source: Path) -> str | None:
    """The commit of the source, with `+changes` behind it if files differ from it; None outside a git repository."""
    if not (source / ".git").exists():
        return None
    commit = _first_line(("git", "rev-parse", "HEAD"), source)
    changed = _first_line(("git", "status", "--porcelain", "--untracked-files=no"), source)
    return f"{commit}+changes" if commit and changed else commit


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _field(path: Path, name: str) -> str | None:
    """The value of the first `name: value` line of a /proc file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name) and ":" in line), None)
