"""A user's C file compiled, with the rights of whoever has called us, and kept: what is the same is compiled once.

The compiler sees the file and railbed.h alone, in a folder of its own, as what it makes must follow from these.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from signal import SIGKILL
from subprocess import DEVNULL, PIPE
from tempfile import TemporaryDirectory, mkdtemp, mkstemp

from hardware.build import HERE, SOURCES
from testbed.own.name import BadFile, Name, source
from workloads.own.python import caller

HEADER = SOURCES / "plugin" / "railbed.h"
WALL_S = 60
FLAGS = (
    "-std=c17", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-shared", "-nostartfiles", "-fvisibility=hidden",
    "-fno-math-errno", "-ffp-contract=off", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra",
    "-Wno-missing-field-initializers", "-Wno-unused-parameter", "-Werror=date-time", "-fdiagnostics-color=never",
)  # fmt: skip
_KEPT = HERE / "bin" / "own"
_MOST_BYTES = 16 << 20
_LIMITED = ("/bin/sh", "-c", f'ulimit -v {4 << 20} -f {4 * _MOST_BYTES >> 9} 2>&-; exec "$@"', "sh")


@lru_cache(maxsize=64)
def compiled(name: Name) -> Path:
    """The shared object of a resolved name. Warnings go to stderr. Raises BadFile."""
    content, header = source(name), HEADER.read_bytes()
    compiler = _command()
    if (program := shutil.which(compiler[0])) is None:
        raise BadFile(f"there is no C compiler called {compiler[0]}", "apt-get install gcc libc6-dev")
    about = os.stat(program)
    of = f"{program} {compiler} {about.st_size} {about.st_mtime_ns} {FLAGS}".encode()
    digest = hashlib.sha256(b"\0".join((of, header, content))).hexdigest()
    kept = _KEPT / f"{digest}.so"
    if not kept.exists():
        kept = _keep(_made(name, content, header, compiler), kept)
    return kept


def _command() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise BadFile(f"CC={os.environ['CC']} is no command: {error}") from None


def _made(name: Name, content: bytes, header: bytes, compiler: list[str]) -> bytes:
    user = caller()
    with TemporaryDirectory(prefix="railbed-own-") as folder:
        _write(Path(folder) / HEADER.name, header)
        if user:
            os.chown(folder, *user)
        text = b'#line 1 "' + name.path.replace("\\", "\\\\").replace('"', '\\"').encode() + b'"\n' + content
        command = [
            *_LIMITED, *compiler, *FLAGS, "-I.", "-MMD", "-MF", "includes", "-x", "c", "-", "-o", "own.so", "-lm",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, cwd=folder, start_new_session=True,
            user=user[0] if user else None, group=user[1] if user else None, extra_groups=[] if user else None,
            env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": folder, "LC_ALL": "C"},
        )  # fmt: skip
        try:
            said = process.communicate(text, WALL_S)[1].decode(errors="replace").rstrip()
        except subprocess.TimeoutExpired:
            raise BadFile(f"{name.path}: the compiler does not come to an end within {WALL_S} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, SIGKILL)  # and what it has started
                process.communicate()
        if process.returncode:
            raise BadFile(_first(name, said), "all that the compiler says:\n" + said)
        included = _read(folder, "includes").decode(errors="replace").partition(":")[2].replace("\\\n", " ")
        if others := [f for f in included.split() if os.path.basename(f) not in (HEADER.name, "-", "<stdin>")]:
            hint = f"{HEADER.name} and the system's: what it does must follow from the one file"
            raise BadFile(f"{name.path} includes {others[0]}", hint)
        if said:
            print(said, file=sys.stderr)
        return _read(folder, "own.so")


def _read(folder: str, name: str) -> bytes:
    """What the compiler has written: no link to what its user may not read."""
    try:
        fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadFile(f"the C compiler has left no {name}: {error.strerror}", "what CC names is none?") from None
    with os.fdopen(fd, "rb") as file:
        return file.read(_MOST_BYTES)


def _first(name: Name, said: str) -> str:
    """The first error, with the file's line."""
    errors = re.findall(r"^(.+?: (?:fatal )?error: .+)$", said, re.M)
    return errors[0] if errors else f"{name.path} cannot be compiled"


def _keep(made: bytes, path: Path) -> Path:
    """Where all processes find it; where that cannot be written, for this one."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        fd, unfinished = mkstemp(dir=path.parent)
        os.close(fd)
        try:
            _write(Path(unfinished), made)
            os.replace(unfinished, path)
        except OSError:
            os.unlink(unfinished)
            raise
        return path
    own = Path(mkdtemp(prefix="railbed-own-")) / path.name
    _write(own, made)
    return own


def _write(path: Path, content: bytes) -> None:
    """For others to read, too: the compiler's user, and fabricd's."""
    path.write_bytes(content)
    path.chmod(0o644)
