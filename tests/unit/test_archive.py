"""Archives of runs: what goes in, and what is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from results.store.folder import StoreError
from results.store.load import LIVE
from testbed.base.errors import InputError
from testbed.base.progress import Progress
from testbed.run.archive import MANIFEST, archive, verify
from tests.parts.stored_runs import operation, stored, stored_sweep


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return archive(stored(tmp_path / "some", [operation(2000.0)]), tmp_path / "some.zip")


def test_an_archive_names_its_runs_and_every_file(tmp_path: Path, made: Path) -> None:
    with zipfile.ZipFile(made) as file:
        manifest = json.loads(file.read(MANIFEST))
        names = {entry.filename for entry in file.infolist() if not entry.is_dir()}
    assert manifest["runs"] == {".": {"metrics_sha256": "0"}} and manifest["kind"] == "run"
    assert names == {*manifest["files"], MANIFEST, "README.txt"}
    swept = stored_sweep(tmp_path / "sweep", [({"seed": 1}, 2000.0), ({"seed": 2}, "no"), ({"seed": 3}, 2500.0)])
    with zipfile.ZipFile(archive(swept, tmp_path / "sweep.zip")) as file:
        runs = json.loads(file.read(MANIFEST))["runs"]
    assert runs == {"point-0": {"metrics_sha256": "2000.0"}, "point-2": {"metrics_sha256": "2500.0"}}


def test_what_cannot_be_done_again_is_not_archived(tmp_path: Path) -> None:
    live = stored(tmp_path / "live", [operation(2000.0)])
    (live / LIVE).write_text("{}")
    with pytest.raises(StoreError, match="on a fabric that was up"):
        archive(live, tmp_path / "live.zip")
    failed = stored(tmp_path / "failed", [])
    (failed / "state.json").write_text('{"state": "failed"}')
    with pytest.raises(StoreError, match="has not come to its end"):
        archive(failed, tmp_path / "failed.zip")
    assert not (tmp_path / "live.zip").exists() and not (tmp_path / "failed.zip").exists()


def _changed(made: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    other = made.with_name("changed.zip")
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            new.writestr(entry.filename, change(data) if entry.filename == name else data)
        if name not in old.namelist():
            new.writestr(name, change(b""))
    return other


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("experiment.yaml", lambda data: data.replace(b"400Gbps", b"401Gbps"), "yaml is not what was archived"),
        ("more.txt", lambda _: b"more", "more.txt is not in its manifest"),
        (MANIFEST, lambda data: data.replace(b'"summary.json"', b'"summary.jso"'), "summary.jso"),
        (MANIFEST, lambda _: b"[]", "no archive of a run"),
        (MANIFEST, lambda _: b'{"archive": 1}', "no archive of a run"),
        (MANIFEST, lambda data: data.replace(b'"archive": 1', b'"archive": 2'), "no archive that this version knows"),
        ("../out.txt", lambda _: b"out", "not in its manifest"),
    ],
)  # fmt: skip
def test_an_archive_that_was_changed_is_refused(
    made: Path, name: str, change: Callable[[bytes], bytes], what: str
) -> None:
    with pytest.raises(InputError, match=what):
        verify(_changed(made, name, change), Progress())
    assert not (made.parent / "out.txt").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no zip"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match="no archive of a run"):
        verify(tmp_path / "x.zip", Progress())
    with pytest.raises(InputError, match="no such file"):
        verify(tmp_path / "y.zip", Progress())
