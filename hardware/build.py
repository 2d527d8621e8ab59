"""Builds fabricd from its C sources: `python -m hardware.build [--sanitize]`.

Needs nothing but the standard library, because setup.py runs it before anything is installed.  Only what is older
than its source, a header or this file is compiled again.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "fabricd"
FABRICD = HERE / "bin" / "fabricd"
SANITIZED = HERE / "bin" / "fabricd-sanitized"

CFLAGS = ["-std=c17", "-D_GNU_SOURCE", "-pthread", "-O2", "-g", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
SANITIZE = ["-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LIBRARIES = ["-ljansson", "-ldeflate", "-lm"]


class BuildError(Exception):
    """fabricd cannot be built; the text says why and what to install."""


def build(
    output: Path | None = None, *, sanitize: bool = False, sources: Path = SOURCES, objects: Path | None = None
) -> Path:
    """Build fabricd unless it is up to date; return its path.  Raises BuildError.

    `objects` is the folder for object files (default: a hidden one beside `output`).
    """
    output = output or (SANITIZED if sanitize else FABRICD)
    objects = objects or output.parent / f".{output.name}.o"
    flags = CFLAGS + (SANITIZE if sanitize else [])
    c_files = sorted(sources.glob("*.c"))
    if not c_files:
        raise BuildError(f"there are no C sources in {sources}")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise BuildError(f"there is no C compiler called {compiler[0]}: apt-get install gcc libc6-dev")
    objects.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(objects / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once would write the same objects
        _link(compiler, flags, _compile_all(compiler, flags, c_files, objects), output)
    return output


def _compile_all(compiler: list[str], flags: list[str], c_files: list[Path], objects: Path) -> list[Path]:
    headers = [*c_files[0].parent.glob("*.h"), Path(__file__)]
    newest_header = max(h.stat().st_mtime_ns for h in headers)

    def compile_one(source: Path) -> Path:
        target = objects / f"{source.stem}.o"
        if not _is_newer(target, max(source.stat().st_mtime_ns, newest_header)):
            _run([*compiler, *flags, "-c", str(source), "-o", str(target)])
        return target

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(compile_one, c_files))


def _link(compiler: list[str], flags: list[str], objects: list[Path], output: Path) -> None:
    wanted = " ".join(o.name for o in objects)
    listed = objects[0].parent / "linked"  # a source that was removed leaves no newer file behind
    if _is_newer(output, max(o.stat().st_mtime_ns for o in objects)) and _text(listed) == wanted:
        return
    unfinished = output.with_name(f".{output.name}.new")
    _run([*compiler, *flags, *map(str, objects), *LIBRARIES, "-o", str(unfinished)])
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
    if "jansson" in done.stderr or "deflate" in done.stderr:
        hint = "\nmissing headers or libraries? apt-get install libjansson-dev libdeflate-dev"
    raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.rstrip()}{hint}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hardware.build", description="Build fabricd.")
    parser.add_argument("--sanitize", action="store_true", help="with AddressSanitizer and UBSan, as fabricd-sanitized")
    options = parser.parse_args(arguments)
    try:
        print(build(sanitize=options.sanitize))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
