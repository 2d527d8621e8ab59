"""Which folders and files of this machine are mounted into ranks' containers.

These are what every worker needs, and what an experiment binds (`workers.bind`). Each has the same path inside as
outside. A rank may do with it what `others` may.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from topologies.graph.mistake import Mistake

CHECKOUT = Path(__file__).resolve().parents[2]
# Read-only, as far as it is there.
_FOLDERS = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"]
_ETC = [
    *("alternatives", "bash.bashrc", "ethertypes", "gai.conf", "group", "host.conf", "hosts", "inputrc", "iproute2"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "networks", "nsswitch.conf", "openmpi"),
    *("os-release", "passwd", "profile", "protocols", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf"),
    *("terminfo", "timezone", "wireshark"),
]
_OWN = ("/dev", "/proc", "/run", "/sys", "/tmp")  # of each container
_WRITABLE = ":rw"


class CannotBind(Mistake):
    """Why a path cannot be bound, and what to do."""


@dataclass(frozen=True)
class Bind:
    """A folder or file of this machine, seen under its own path."""

    path: Path
    writable: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """`/home/me/data`, or `/home/me/data:rw`, unchecked."""
        return cls(Path(os.path.normpath(text.removesuffix(_WRITABLE))), text.endswith(_WRITABLE))

    def check(self) -> None:
        """Raises CannotBind."""
        if not self.path.is_absolute():
            raise CannotBind(f"{str(self)!r} is not an absolute path", "such as /home/me/data, or /home/me/data:rw")
        if not self.path.exists():
            raise CannotBind(f"there is no {str(self.path)!r}", "a path of this machine; it may have :rw behind it")
        if not self.path.is_dir() and not self.path.is_file():
            raise CannotBind(f"{str(self.path)!r} is neither a folder nor a file", "name a folder or a file")
        for path in dict.fromkeys((self.path, self.path.resolve())):
            _refuse_mounted(path)
        self._refuse_closed()

    def __str__(self) -> str:
        return f"{self.path}{_WRITABLE if self.writable else ''}"

    def _refuse_closed(self) -> None:
        """Raises CannotBind if others lack the permissions."""
        mode = ("rw" if self.writable else "r") + ("x" if self.path.is_dir() else "")
        bits = {"r": stat.S_IROTH, "w": stat.S_IWOTH, "x": stat.S_IXOTH}
        if lacking := [bit for bit in mode if not self.path.stat().st_mode & bits[bit]]:
            verb = "written" if "w" in lacking else "read"
            what = f"{str(self.path)!r} cannot be {verb} by ranks: outside they are a user that owns nothing"
            raise CannotBind(what, f"open it to others: chmod o+{mode} {shlex.quote(str(self.path))}")


def binds(texts: Iterable[str]) -> list[Bind]:
    """An experiment's binds in the order of mounting: folders before their contents."""
    return sorted(map(Bind.of, texts), key=lambda bind: len(bind.path.parts))


def _refuse_mounted(path: Path) -> None:
    """Raises CannotBind if ranks have the path already, or if it would cover a path that they need."""
    own, system = [*map(Path, _OWN)], [*map(Path, system_paths())]
    for mounted in own:
        if path == mounted or (path.is_relative_to(mounted) and mounted != Path("/tmp")):
            raise CannotBind(f"{str(mounted)!r} is each rank's own", "bind a folder that is elsewhere")
    for mounted in (*system, *runtime_folders()):
        if path.is_relative_to(mounted):
            raise CannotBind(f"ranks see {str(mounted)!r} already, read-only", "leave it out")
    for mounted in (*own, *system):
        if mounted.is_relative_to(path):
            raise CannotBind(f"{str(path)!r} would cover {str(mounted)!r} of the ranks", "name a folder below it")


@cache
def system_paths() -> tuple[str, ...]:
    """Folders and files of the operating system that workers need, as far as they are there."""
    etc = [f"/etc/{name}" for name in _ETC] + [str(p) for p in Path("/etc").glob("python3*")]
    return tuple(path for path in [*_FOLDERS, *sorted(etc)] if os.path.exists(path))


@cache
def runtime_folders() -> tuple[Path, ...]:
    """Our Python and the workers' code, as far as they do not lie in a folder that is mounted anyway."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT / "workloads", Path(sys.executable).resolve().parent}
    libraries = (CHECKOUT / "hardware" / "bin" / name for name in ("elements", "turns"))
    folders |= {library for library in libraries if library.exists()}
    system = {*map(Path, _FOLDERS)}
    return tuple(sorted(p for p in folders - system if not (folders | system) & {*p.parents}))
