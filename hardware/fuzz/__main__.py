"""Builds and runs the fuzzers, all at once: `python -m hardware.fuzz [--seconds N | --inputs N] [TARGET ...]`.

Needs clang with libFuzzer (Debian: clang).  What breaks a target is kept in hardware/bin/fuzz/TARGET-*; a target's
program there runs such a file again.  What was found to reach new code is kept, too, and is where the next call starts.
With --inputs nothing is left to chance: a fixed number from a fixed seed, starting from the written seeds alone.  For
so few, compiling would take longer than running: the programs, in hardware/bin/fuzz/quick, are the harness around the
objects of the build with sanitizers.  These do not tell which inputs reach new code.  That matters in the long run; 400
inputs reach as much of it so (1,984 branches of the worker's protocol, 3,351 of rings; 1,931 and 3,321 where they do).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hardware import build as product
from hardware.build import CFLAGS, LIBRARIES, SANITIZE, SANITIZED, SOURCES, BuildError, compile_all
from hardware.fuzz.seeds import DICTIONARY, SEEDS

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "bin" / "fuzz"
REPLACED = {"main.c", "tap.c"}  # the harness has its own
HARNESS = ["harness.c", "tap.c"]
LIMITS = ["-max_len=8192", "-timeout=120", "-rss_limit_mb=2048", "-print_final_stats=1"]


def build(output: Path, *, quick: bool = False) -> None:
    """Compile every target that is older than its sources.  Raises BuildError.

    `quick`: around the objects of fabricd with sanitizers.
    """
    compiler = shutil.which("clang")
    if compiler is None:
        raise BuildError("the fuzzers need clang: apt-get install clang")
    output.mkdir(parents=True, exist_ok=True)
    ours = [s for s in sorted(SOURCES.rglob("*.c")) if s.name not in REPLACED]
    harness = [HERE / name for name in HARNESS]
    mains = {target: HERE / f"fuzz_{target}.c" for target in SEEDS}
    flags = [compiler, *CFLAGS, *SANITIZE, f"-I{SOURCES}"]
    compile_c = [*flags, "-fsanitize=fuzzer-no-link"]
    if quick:
        product.build(sanitize=True)
        shared = [_object(s, SOURCES, product.objects_of(SANITIZED)) for s in ours]
    else:
        shared = compile_all(compile_c, {s: _object(s, SOURCES, output / "fabricd") for s in ours}, Path(__file__))
    plain = [*harness, *mains.values()]
    objects = dict(
        zip(plain, compile_all(compile_c, {s: _object(s, HERE, output / "fuzz") for s in plain}), strict=True)
    )
    for target, main_file in mains.items():
        program = output / target
        mine = [*shared, *(objects[s] for s in harness), objects[main_file]]
        if not program.exists() or program.stat().st_mtime_ns <= max(o.stat().st_mtime_ns for o in mine):
            fuzzer = ["-fsanitize=fuzzer", *map(str, mine), *LIBRARIES]
            _run([*flags, *fuzzer, "-o", str(program)])


def _object(source: Path, folder: Path, objects: Path) -> Path:
    return (objects / source.relative_to(folder)).with_suffix(".o")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.rstrip()}")


def corpus(target: str, within: Path) -> Path:
    """The folder of inputs that a target starts from, with its seeds in it."""
    folder = within / f"corpus-{target}"
    folder.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS[target]()):
        (folder / f"seed-{number:03}").write_bytes(seed)
    return folder


def fuzz(target: str, output: Path, bound: Sequence[str], within: Path) -> subprocess.CompletedProcess[str]:
    """Run one target, as long as libFuzzer's options in `bound` say; its log is in the answer's stderr."""
    command = [str(output / target), *LIMITS, *bound, f"-artifact_prefix={output / target}-"]
    if target in DICTIONARY:
        words = output / f"{target}.dict"
        words.write_text("".join(f'"{word}"\n' for word in DICTIONARY[target] if word.replace("_", "").isalnum()))
        command.append(f"-dict={words}")
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=4:malloc_context_size=8"}
    return subprocess.run(
        [*command, str(corpus(target, within))], capture_output=True, text=True, errors="replace", env=environment
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hardware.fuzz", description="Fuzz fabricd.")
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--seconds", type=int, default=60, help="how long (all targets run at the same time)")
    how_long.add_argument("--inputs", type=int, help="how many inputs a target, from a fixed seed: always the same")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(SEEDS)}; default: all")
    options = parser.parse_args(arguments)
    targets = options.targets or list(SEEDS)
    if unknown := set(targets) - set(SEEDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    output = OUTPUT if options.inputs is None else OUTPUT / "quick"
    try:
        build(output, quick=options.inputs is not None)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    bound = [f"-max_total_time={options.seconds}"] if options.inputs is None else ["-seed=1", f"-runs={options.inputs}"]
    with ThreadPoolExecutor(len(targets)) as pool, tempfile.TemporaryDirectory() as fresh:
        within = OUTPUT if options.inputs is None else Path(fresh)
        results = dict(zip(targets, pool.map(lambda t: fuzz(t, output, bound, within), targets), strict=True))
    where = "" if options.inputs is None else " of the harness"
    for target, done in results.items():
        lines = done.stderr.splitlines()
        runs = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), "?")
        coverage = next((line.split("cov:")[1].split()[0] for line in reversed(lines) if "cov:" in line), "?")
        print(
            f"{target}: {'ok' if done.returncode == 0 else 'BROKEN'}, {runs} inputs, {coverage} branches{where} reached"
        )
        if done.returncode:
            print("\n".join(lines[-80:]), file=sys.stderr)
    return int(any(done.returncode for done in results.values()))


if __name__ == "__main__":
    sys.exit(main())
