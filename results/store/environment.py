"""A run's environment: versions, kernel, machine, seed, and the commit of the source if it is known."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("railbed", "mininet", "os-ken", "numpy", "pandas", "pyarrow", "networkx", "pydantic", "click", "rich")
_TOOLS = {"ovs": ("ovs-vsctl", "--version"), "runc": ("runc", "--version")}
SOURCE = Path(__file__).resolve().parents[2]
PACKAGED = "results/COMMIT"
"""Where a package, which is no checkout, has the commit that it was built from."""
_COMMIT = ("git", "rev-parse", "HEAD")
_CHANGES = ("git", "status", "--porcelain", "--untracked-files=no")


def environment(seed: int) -> dict[str, Any]:
    """Plain data for environment.json. What cannot be found out is None."""
    commit, tools = _asked()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "seed": seed,
        "commit": commit,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "tools": dict(tools),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _system(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name"),
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
    }


@cache
def begin() -> tuple[dict[str, _Command], dict[str, _Command]]:
    """Begins to ask git and the tools, which answer while something else is done; `environment` waits for them."""
    return _git(), {name: _Command(command) for name, command in _TOOLS.items()}


def commit() -> str | None:
    """Of the source that this process runs: of the checkout, with `+changes` if files differ, or of the package."""
    return _commit(_git())


def _git() -> dict[str, _Command]:
    if not (SOURCE / ".git").exists():
        return {}
    return {"commit": _Command(_COMMIT, SOURCE), "changes": _Command(_CHANGES, SOURCE)}


@cache  # the code that this process has loaded does not change: once for all runs of a sweep
def _asked() -> tuple[str | None, dict[str, str | None]]:
    """The commit of the source, and the tools' versions."""
    git, tools = begin()
    return _commit(git), {name: command.first_line() for name, command in tools.items()}


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class _Command:
    """A command, begun: several at a time take no longer than one."""

    def __init__(self, command: Sequence[str], cwd: Path | None = None) -> None:
        self._process: subprocess.Popen[str] | None = None
        quiet = subprocess.DEVNULL
        with suppress(OSError):
            self._process = subprocess.Popen(
                command, cwd=cwd, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True
            )

    def first_line(self) -> str | None:
        """Of its output; None if it fails."""
        if self._process is None:
            return None
        with self._process as process:
            try:
                output, _ = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
        return None if process.returncode else output.split("\n", 1)[0].strip()


def _commit(asked: Mapping[str, _Command]) -> str | None:
    """What the checkout says, or what setup.py has written into the package; None if neither does."""
    if not asked:
        with suppress(OSError):
            return (SOURCE / PACKAGED).read_text().strip() or None
        return None
    commit, changed = asked["commit"].first_line(), asked["changes"].first_line()
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
