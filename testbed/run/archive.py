"""A run or sweep in one file, as artifact evaluations ask for it; and the same once more, figure by figure.

The archive is a zip file of the folder, files of the user's own included, with a manifest: what was called, by which
version, the hash of all figures of each run, and the hash of each file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from results.store.folder import StoreError
from results.store.load import LIVE, Run, find, read_object
from results.store.replaced import replaceable
from results.store.sweeps import SWEEP, Sweep
from results.store.zipped import packed, unpacked
from testbed.base.errors import InputError

if TYPE_CHECKING:
    from testbed.base.progress import Progress
    from testbed.experiment import Experiment

MANIFEST, README, FORM = "ARCHIVE.json", "README.txt", 1
_OWN = re.compile(r"(?P<path>.+)#sha256:(?P<digest>[0-9a-f]{64})")
_OWN_FOLDERS = ("controls", "algorithms")  # of a run, where copies of a user's own files are (own_files.py)


@dataclass(frozen=True)
class Compared:
    """A run of the archive, and the same now. `differ`: figure -> (as archived, now)."""

    name: str
    same: bool
    differ: Mapping[str, tuple[Any, Any]]
    error: str = ""


@dataclass(frozen=True)
class Verified:
    name: str
    runs: list[Compared]
    exact: bool
    """Whether figures have to be the same: on the virtual clock."""
    archived_by: str
    now: str

    @property
    def good(self) -> bool:
        """Whether nothing is other than it should be."""
        return all(not run.error and (run.same or not self.exact) for run in self.runs)


def archive(run: str | Path, out: str | Path | None = None) -> Path:
    """Packs a run or sweep into `out` (default: NAME.zip, here). Raises StoreError for what cannot be done again."""
    folder = find(run)
    file = Path(out) if out is not None else Path(f"{folder.name}.zip")
    place = replaceable(file)
    runs = {name: one for name, one in _runs(folder) if (one.path / "state.json").exists()}
    if Run(folder).state["state"] != "complete":
        raise StoreError("it has not come to its end", str(folder), "archive one that is complete (`testbed runs`)")
    if any((one.path / LIVE).exists() for one in runs.values()):
        what = "it was done on a fabric that was up: its file alone does not lead to its figures"
        raise StoreError(what, str(folder), "run its file by itself: `testbed run FILE`")
    environment = Run(folder).environment
    manifest = {
        "archive": FORM,
        "name": Run(folder).name,
        "kind": "sweep" if (folder / SWEEP).exists() else "run",
        "command": environment.get("command", []),
        "railbed": {"version": environment.get("packages", {}).get("railbed"), "commit": environment.get("commit")},
        "runs": {name: {"metrics_sha256": one.summary.get("metrics_sha256")} for name, one in runs.items()},
    }
    with TemporaryDirectory() as scratch:
        copy = Path(scratch, "archive")
        shutil.copytree(folder, copy)
        manifest["files"] = {str(path.relative_to(copy)): _sha256(path) for path in _files(copy)}
        (copy / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        (copy / README).write_text(_README.format(**manifest))
        made = Path(scratch, "archive.zip")
        packed(copy, made)
        shutil.move(made, place)
    return file


_README = """{name}: a {kind} of Railbed, with all that it was made of and all that it measured.

To do it again and compare every figure:  testbed verify THIS_FILE

experiment.yaml   what was run, every default written out
environment.json  versions, kernel and machine
summary.json      figures, and the hash of all of them (of a sweep: of each point)
metrics/          tables (Parquet)
{manifest}      SHA-256 of each file, and the hashes of the figures
""".replace("{manifest}", MANIFEST)


def verify(file: str | Path, progress: Progress, points: int | None = None) -> Verified:
    """Runs what is in an archive once more. `points`: of a sweep so many of them, the first ones.

    Raises InputError for what is no archive, or was changed; MachineError without root.
    """
    from results.store import environment

    with TemporaryDirectory() as scratch:
        folder, again = Path(scratch, "archive"), Path(scratch, "again")
        manifest = _opened(Path(file), folder)
        experiment = _experiment(folder, str(file))
        before = {name: run for name, run in _runs(folder) if name in manifest["runs"]}
        if points is not None:
            before = dict(list(before.items())[:points])
        runs = list(_compared(experiment, before, again, progress))
        by, now = manifest["railbed"], environment.environment(experiment.seed)
        return Verified(
            *(manifest["name"], runs, experiment.clock.mode == "virtual", _version(by["version"], by["commit"])),
            now=_version(now["packages"]["railbed"], now["commit"]),
        )


def _version(version: str | None, commit: str | None) -> str:
    return f"{version or '?'} ({(commit or 'no commit')[:12]})"


def _runs(folder: Path) -> Iterator[tuple[str, Run]]:
    """By name: of a sweep the points that have one, of a run itself."""
    if not (folder / SWEEP).exists():
        yield ".", Run(folder)
        return
    for point in Sweep(folder).points:
        if "run" in point and "error" not in point:
            yield point["run"], Run(folder / point["run"])


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (MANIFEST, README))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opened(file: Path, folder: Path) -> dict[str, Any]:
    """Unpacks it; its manifest, which every file fits."""
    if not file.is_file():
        raise InputError("there is no such file", str(file), "testbed archive RUN makes one")
    try:
        unpacked(file, folder)
        manifest = read_object(folder / MANIFEST)
        files, runs = dict(manifest["files"]), dict(manifest["runs"])
        known = isinstance(manifest["railbed"], dict) and manifest["archive"] == FORM and runs
    except (ValueError, KeyError, TypeError, OSError, StoreError) as error:
        why = f"{file}: {error}" if not isinstance(error, StoreError) else str(file)
        raise InputError("this is no archive of a run", why, "testbed archive RUN makes one") from None
    if not known:
        raise InputError("this is no archive that this version knows", str(file), "use the version that has made it")
    found = {str(path.relative_to(folder)): _sha256(path) for path in _files(folder)}
    for name in sorted(found.keys() ^ files.keys()):
        raise InputError(f"{name} is {'missing' if name in files else 'not in its manifest'}", str(file), _CHANGED)
    for name, digest in found.items():
        if files[name] != digest:
            raise InputError(f"{name} is not what was archived", str(file), _CHANGED)
    return manifest


_CHANGED = "the archive was changed, or did not arrive whole"


def _experiment(folder: Path, name: str) -> Experiment:
    """The experiment, whose own files are those in the archive."""
    from ruamel.yaml import YAML

    from testbed.experiment import loads

    written = YAML(typ="safe").load(folder / "experiment.yaml")
    own = [path for part in _OWN_FOLDERS for path in sorted(folder.rglob(f"{part}/*"))]
    kept = {_sha256(path): path for path in own if path.is_file()}

    def here(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: here(one) for key, one in value.items()}
        if isinstance(value, list):
            return [here(one) for one in value]
        match = _OWN.fullmatch(value) if isinstance(value, str) else None
        return f"{kept[match['digest']]}#sha256:{match['digest']}" if match and match["digest"] in kept else value

    return loads(json.dumps(here(written)), f"{name}: experiment.yaml", folder)


def _compared(experiment: Experiment, before: Mapping[str, Run], again: Path, progress: Progress) -> Iterator[Compared]:
    from testbed.run.outcome import RunFailed
    from testbed.run.run import run
    from testbed.run.sweep import at

    if experiment.sweep:
        progress.points(len(before))
    for name, archived in before.items():
        one = experiment
        if experiment.sweep:
            one = at(experiment, int(name.rpartition("-")[2]))
            progress.point(name)
        try:
            made = Run(run(one, again / name.replace(".", "run"), progress).folder)
        except RunFailed as failed:
            yield Compared(name, False, {}, str(failed))
        else:
            same = made.summary.get("metrics_sha256") == archived.summary.get("metrics_sha256")
            yield Compared(name, same, {} if same else dict(_differ(archived.figures, made.figures)))
        if experiment.sweep:
            progress.point_done()


def _differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for key in dict.fromkeys((*before, *now)):
        old, new = before.get(key), now.get(key)
        both_nan = isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new)
        if old != new and not both_nan:
            yield key, (old, new)
