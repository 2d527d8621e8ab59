"""Builds fabricd, the holder and libraries from their C sources: `python -m hardware.build [--sanitize]`.

Needs nothing but the standard library, because setup.py runs it before anything is installed.  Every `.c` file in the
rooms (folders) of `fabricd/` belongs to it, and its object is in a folder of the same name.  The compiler records which
headers a file includes (-MMD): an object is made again only if its source, one of these headers or this file is newer.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "fabricd"
FABRICD = HERE / "bin" / "fabricd"
SANITIZED = HERE / "bin" / "fabricd-sanitized"
HOLDER_SOURCES = HERE / "holder"
HOLDER = HERE / "bin" / "holder"
ELEMENTS_SOURCES = HERE / "elements"
ELEMENTS = HERE / "bin" / "elements"
TURNS_SOURCES = HERE / "turns"
TURNS = HERE / "bin" / "turns"
BUFFERS_SOURCES = HERE / "buffers"
BUFFERS = HERE / "bin" / "buffers"
VERBS_SOURCES = HERE / "verbs"
EMULATED_SOURCES = HERE / "emulated"
RDMACM_SOURCES = HERE / "rdmacm"
PROGRAMS = HERE / "bin" / "programs"  # what programs in containers load
VERBS = PROGRAMS / "libibverbs.so.1"
EMULATED = PROGRAMS / "librailbed-time.so"
RDMACM = PROGRAMS / "librdmacm.so.1"

CFLAGS = ["-std=c17", "-D_GNU_SOURCE", "-pthread", "-O2", "-g", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
SANITIZE = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
FIXED = ["-no-pie"]  # a third of what the sanitized fabricd's start takes is to move its code and data elsewhere
LIBRARIES = ["-Wl,--as-needed", "-ljansson", "-ldeflate", "-lm"]
# Of a folder of sources: more flags to compile it, and to link it ({beside}: the folder of what is made).
FLAGS = {
    "elements": (["-fPIC", "-O3", f"-I{SOURCES}"], ["-shared"]),
    "buffers": (["-fPIC"], ["-shared"]),
    "turns": (["-fPIC", f"-I{VERBS_SOURCES}", f"-I{SOURCES}"], ["-shared"]),
    "verbs": (
        ["-fPIC", f"-I{SOURCES}"],
        ["-shared", "-Wl,-soname,libibverbs.so.1", f"-Wl,--version-script={VERBS_SOURCES}/libibverbs.map"],
    ),
    "emulated": (["-fPIC", f"-I{VERBS_SOURCES}"], ["-shared", "{beside}/libibverbs.so.1", "-Wl,-rpath,$ORIGIN"]),
    "rdmacm": (
        ["-fPIC", f"-I{VERBS_SOURCES}"],
        ["-shared", "{beside}/libibverbs.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,-soname,librdmacm.so.1"]
        + [f"-Wl,--version-script={RDMACM_SOURCES}/librdmacm.map"],
    ),
}
OTHERS = {
    HOLDER: HOLDER_SOURCES,
    ELEMENTS: ELEMENTS_SOURCES,
    TURNS: TURNS_SOURCES,
    BUFFERS: BUFFERS_SOURCES,
    VERBS: VERBS_SOURCES,
    EMULATED: EMULATED_SOURCES,
    RDMACM: RDMACM_SOURCES,
}


class BuildError(Exception):
    """fabricd cannot be built; the text says why and what to install."""


def build_all() -> list[Path]:
    """Build every program that a fabric needs; return their paths.  Raises BuildError."""
    return [build(), *(build(to, sources=sources) for to, sources in OTHERS.items())]


def build(
    output: Path | None = None, *, sanitize: bool = False, sources: Path = SOURCES, objects: Path | None = None
) -> Path:
    """Build fabricd unless it is up to date; return its path.  Raises BuildError.

    `objects` is the folder for object files (default: a hidden one beside `output`).
    """
    output = output or (SANITIZED if sanitize else FABRICD)
    objects = objects or objects_of(output)
    try:
        return _build(output, sanitize, sources, objects)
    except OSError as error:
        raise BuildError(_not_writable(error)) from None


def objects_of(output: Path) -> Path:
    """The folder for the object files of a program or library."""
    return (HERE / "bin" if output.parent == PROGRAMS else output.parent) / f".{output.name}.o"


def _not_writable(error: OSError) -> str:
    """What could not be written, and what to do if the checkout belongs to another user."""
    what = f"cannot write {error.filename}: {error.strerror}"
    owner = HERE.stat().st_uid
    if not isinstance(error, PermissionError) or os.geteuid() in (0, owner):
        return what
    return f"{what}; the checkout belongs to {_user(owner)}: use sudo, or a checkout of your own"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _build(output: Path, sanitize: bool, sources: Path, objects: Path) -> Path:
    more, linked = FLAGS.get(sources.name, ([], []))
    flags = CFLAGS + (SANITIZE if sanitize else []) + more
    c_files = sorted(sources.rglob("*.c"))
    if not c_files:
        raise BuildError(f"there are no C sources in {sources}")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise BuildError(f"there is no C compiler called {compiler[0]}: apt-get install gcc libc6-dev")
    objects.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(objects / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once would write the same objects
        made = compile_all([*compiler, *flags, f"-I{sources}"], {c: _object(c, sources, objects) for c in c_files})
        linked = [flag.replace("{beside}", str(output.parent)) for flag in linked] + (FIXED if sanitize else [])
        _link([*compiler, *flags], made, linked, output, objects / "linked")
    return output


def _object(source: Path, sources: Path, objects: Path) -> Path:
    return (objects / source.relative_to(sources)).with_suffix(".o")


def compile_all(command: list[str], targets: Mapping[Path, Path], recipe: Path = Path(__file__)) -> list[Path]:
    """Compile each source to its object, unless that is newer than all it was made from.  Raises BuildError."""

    def compile_one(source: Path, target: Path) -> Path:
        if not _up_to_date(target, [Path(__file__), recipe, source]):
            target.parent.mkdir(parents=True, exist_ok=True)
            _run([*command, "-MMD", "-MF", str(_includes(target)), "-c", str(source), "-o", str(target)])
        return target

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(compile_one, targets.keys(), targets.values()))


def _includes(target: Path) -> Path:
    return target.with_suffix(".d")


def _up_to_date(target: Path, inputs: list[Path]) -> bool:
    """Is the object newer than its inputs and the headers that its source included when it was compiled last?"""
    if not target.exists() or not _includes(target).exists():
        return False
    named = _includes(target).read_text().replace("\\\n", " ").partition(":")[2]
    all_inputs = [*inputs, *(Path(p.replace("\\ ", " ")) for p in re.split(r"(?<!\\)\s+", named.strip()) if p)]
    return all(p.exists() and _is_newer(target, p.stat().st_mtime_ns) for p in all_inputs)


def _link(compiler: list[str], objects: list[Path], flags: list[str], output: Path, listed: Path) -> None:
    wanted = " ".join([*map(str, objects), *flags])  # a source that was removed leaves no newer file behind
    inputs = [*objects, *(Path(flag.rpartition("=")[2]) for flag in flags)]
    newest = max(path.stat().st_mtime_ns for path in inputs if path.is_file())
    if _is_newer(output, newest) and _text(listed) == wanted:
        return
    unfinished = output.with_name(f".{output.name}.new")
    link_map = f"-Wl,-Map={listed.with_name('map')}"  # hardware.rooms reads it
    _run([*compiler, *map(str, objects), *flags, *LIBRARIES, link_map, "-o", str(unfinished)])
    unfinished.replace(output)  # a running fabricd keeps its old file
    listed.write_text(wanted)


def _is_newer(target: Path, than_ns: int) -> bool:
    return target.exists() and target.stat().st_mtime_ns > than_ns


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return
    hint = ""
    if "infiniband" in done.stderr or "rdma/" in done.stderr:
        hint = "\nmissing headers? apt-get install libibverbs-dev librdmacm-dev"
    if "jansson" in done.stderr or "deflate" in done.stderr:
        hint = "\nmissing headers or libraries? apt-get install libjansson-dev libdeflate-dev"
    raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.rstrip()}{hint}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hardware.build", description="Build fabricd, the holder and libraries for ranks."
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="only fabricd, with ASan and UBSan, as fabricd-sanitized"
    )
    options = parser.parse_args(arguments)
    try:
        print(build(sanitize=True) if options.sanitize else "\n".join(map(str, build_all())))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
