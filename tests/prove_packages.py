"""Proof that every way to install comes to the same figures: `./setup.sh prove packages [--only WAYS] [--keep FOLDER]`.

Each way begins with a clean clone of this commit, and ends with the quickstart's `metrics_sha256`:

- checkout: `./setup.sh run`, and how long it took from nothing, the longest time without a line, and the size of .venv
- wheel: built, installed into an environment of its own, with the experiments of `testbed examples`; the archive of
  its run is verified by the clone
- package: the distribution's package, with all that it depends on, in a root that has nothing else (mmdebstrap)
- image: the OCI image, loaded and run privileged by docker and by podman, each where it is there, with its storage
  beside the clone; where neither is, its root by runc

It fails where one cannot be built or run, has other figures, or .venv is 450 MB or more. What a checkout takes is
printed and judged against 60 s only on a quiet machine (`--quiet`); silence of 5 s or more is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.containers.image import unpack
from tests.parts import privileged_root
from tests.parts.container_engines import ENGINES, EngineError, NoEngine
from tests.prove_hashes import ROOT

MOST_MB, MOST_S, MOST_SILENT_S = 450, 60, 5
_QUICKSTART = (
    "testbed examples /root/study >/dev/null && cd /root/study && testbed run experiments/quickstart.yaml --json"
)


class Failed(Exception):
    """What of a way does not work."""


@dataclass
class Way:
    """`notes`: what was measured on the way. `wrong`: what of that is not as it should be."""

    metrics_sha256: str
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Place:
    """Where all ways are tried: a clean clone, and a folder beside it."""

    clone: Path
    scratch: Path
    quiet: bool = False

    def built(self, pattern: str) -> Path:
        """The newest file of the clone's build folder."""
        found = sorted((self.clone / "build").glob(pattern), key=lambda one: one.stat().st_mtime)
        if not found:
            raise Failed(f"there is no build/{pattern}")
        return found[-1]


def call(command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None) -> str:
    """Its stdout. Raises Failed with the end of what it said."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=clean(env), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return printed(done, " ".join(map(str, command)))


def printed(done: subprocess.CompletedProcess[str], command: str) -> str:
    if done.returncode:
        raise Failed(f"{command} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


def clean(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without this Python's own."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if key not in dropped} | dict(more or {})


def hash_of(stdout: str) -> str:
    try:
        return str(json.loads(stdout)["metrics_sha256"])
    except (ValueError, TypeError, KeyError):
        raise Failed(f"this is no run: {stdout[:1500]}") from None


# The ways


def checkout(place: Place) -> Way:
    """From nothing: the lines that it says are timed as they come."""
    began = said = time.monotonic()
    silent, before = 0.0, ""
    log: list[str] = []
    with (place.scratch / "stdout").open("w+") as out:
        child = subprocess.Popen(
            ["./setup.sh", "run", "--json"], cwd=place.clone, env=clean(), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stderr
        for line in child.stderr:
            now = time.monotonic()
            if now - said > silent:
                silent, before = now - said, line.strip()
            said = now
            log.append(line)
        if child.wait():
            raise Failed(f"./setup.sh run ended with {child.returncode}: {''.join(log)[-1500:]}")
        took = time.monotonic() - began
        silent = max(silent, time.monotonic() - said)
        out.seek(0)
        way = Way(hash_of(out.read()))
    megabytes = int(call(["du", "-sm", ".venv"], place.clone).split()[0])
    way.notes = [
        f"{took:.0f} s from nothing",
        f"silent for {silent:.1f} s at most, before {before!r:.60}",
        f".venv {megabytes} MB",
    ]
    if megabytes >= MOST_MB:
        way.wrong.append(f".venv has {megabytes} MB, and less than {MOST_MB} is wanted")
    if place.quiet and took >= MOST_S:
        way.wrong.append(f"it took {took:.0f} s, and less than {MOST_S} is wanted")
    if place.quiet and silent > MOST_SILENT_S:
        way.wrong.append(f"it said nothing for {silent:.1f} s, and {MOST_SILENT_S} are allowed")
    return way


def wheel(place: Place) -> Way:
    set_up(place)
    python, made = place.clone / ".venv" / "bin" / "python", place.scratch / "wheel"
    call([python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", made, "."], place.clone)
    (file,) = made.glob("*.whl")
    call([python, "-m", "venv", place.scratch / "env"], place.scratch)
    programs = place.scratch / "env" / "bin"
    lock = place.clone / "requirements.lock"
    call([programs / "python", "-m", "pip", "install", "-q", "--no-input", "-c", lock, file], place.scratch)
    testbed = programs / "testbed"
    call([testbed, "examples", place.scratch / "study"], place.scratch)
    study = place.scratch / "study"
    said = call([testbed, "run", "experiments/quickstart.yaml", "--json", "--out", "results/runs/first"], study)
    call([testbed, "archive", "first", "-o", "first.zip"], study)
    verified = call([python.parent / "testbed", "verify", study / "first.zip"], place.scratch).splitlines()[0]
    return Way(hash_of(said), [file.name, f"its archive in the clone: {verified}"])


def package(place: Place) -> Way:
    call(["./setup.sh", "package"], place.clone)
    file = place.built("*.deb")
    root = place.scratch / "package" / "root"
    root.parent.mkdir()
    call(["sh", "install/root.sh", file, root], place.clone)
    return Way(_in_root(root, {}), [file.name])


def image(place: Place) -> Way:
    given = sorted((place.clone / "build").glob("*.deb"))
    call(["./setup.sh", "image", *given[-1:]], place.clone)
    file = place.built("*.oci.tar")
    hashes, notes = {}, [file.name]
    for name, engine in ENGINES.items():
        try:
            with engine(place.scratch / name) as its:
                hashes[name] = hash_of(its.run(file, _QUICKSTART))
        except NoEngine as error:
            notes.append(str(error))
        except EngineError as error:
            raise Failed(f"{name} {error}") from None
    if not hashes:
        its = unpack(file, place.scratch / "image" / "root")
        hashes["runc"] = _in_root(its.rootfs, its.env)
    wrong = [f"the figures differ: {hashes}"] if len(set(hashes.values())) > 1 else []
    return Way(next(iter(hashes.values())), [*notes, f"by {' and '.join(hashes)}"], wrong)


def set_up(place: Place) -> None:
    call(["./setup.sh", "build"], place.clone)


def _in_root(root: Path, env: Mapping[str, str]) -> str:
    return hash_of(printed(privileged_root.run(root, ["sh", "-c", _QUICKSTART], env), _QUICKSTART))


WAYS: dict[str, Callable[[Place], Way]] = {
    "checkout": checkout,
    "wheel": wheel,
    "package": package,
    "image": image,
}


@contextmanager
def places(keep: Path | None, quiet: bool) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="railbed-packages-") as made:
        folder = keep.resolve() if keep else Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        call(["git", "clone", "-q", ROOT, folder / "clone"], ROOT)
        (folder / "scratch").mkdir()
        yield Place(folder / "clone", folder / "scratch", quiet)


def prove(place: Place, ways: Sequence[str], say: Callable[[str], None] = print) -> list[str]:
    """What is wrong."""
    hashes: dict[str, str] = {}
    wrong: list[str] = []
    for name in ways:
        began = time.monotonic()
        try:
            way = WAYS[name](place)
        except Failed as error:
            say(f"{name:9} FAILED     {error}")
            wrong.append(f"{name} failed")
            continue
        hashes[name] = way.metrics_sha256
        wrong += [f"{name}: {one}" for one in way.wrong]
        say(f"{name:9} {way.metrics_sha256[:16]}  {time.monotonic() - began:5.0f} s  {', '.join(way.notes)}")
    if len(set(hashes.values())) > 1:
        wrong.append(f"the figures differ: {hashes}")
    elif hashes:
        say(f"{len(hashes)} of {len(ways)} ways to install come to metrics_sha256 {next(iter(hashes.values()))}")
    return wrong


def names(text: str) -> list[str]:
    """Of a list with commas. Raises argparse.ArgumentTypeError."""
    if unknown := [one for one in text.split(",") if one not in WAYS]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(WAYS)}")
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./setup.sh prove packages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names, default=list(WAYS), metavar="WAY,WAY..")
    parser.add_argument("--quiet", action="store_true", help="nothing else runs here: times are judged")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder that keeps what was made")
    options = parser.parse_args()
    with places(options.keep, options.quiet) as place:
        wrong = prove(place, options.only)
    if wrong:
        sys.exit("prove packages: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
