"""A disk that is full: the path is named, what was written stays, and the run is marked as failed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.client import FabricdError
from results.store.folder import RunFolder, StoreError
from testbed.base.errors import MACHINE_CANNOT, UserError
from testbed.experiment import Experiment, loads
from testbed.run import run as running
from testbed.run.outcome import RunFailed
from tests.parts.fabricd_fixture import bare_fabric
from tests.parts.fake_lab import FakeLab
from tests.parts.machine import here
from tests.parts.small_run import EXPERIMENT, whole
from workloads.verbs import wire


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"), (disk / "full").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_run_whose_disk_fills_up_is_kept_and_marked_failed(small: Path, tmp_path: Path) -> None:
    def up(experiment: Experiment) -> FakeLab:
        fill(small)
        return FakeLab(experiment.build_fabric(), tmp_path, whole)

    with pytest.raises(RunFailed, match="cannot be written: No space left on device") as told:
        running.run(loads(EXPERIMENT), small / "run", up=up)  # type: ignore[arg-type]
    assert str(small / "run.") in told.value.where
    assert told.value.folder == small / "run.failed"
    state = json.loads((small / "run.failed" / "state.json").read_text())
    assert state["state"] == "failed"
    assert "No space left" in state["error"]["what"]
    assert (small / "run.failed" / "experiment.yaml").stat().st_size > 0


def test_a_run_on_a_full_disk_is_refused_and_leaves_nothing(small: Path) -> None:
    fill(small)
    with pytest.raises(StoreError, match="cannot be written: No space left on device") as told:
        RunFolder.create("run", small / "run")
    assert told.value.where == str(small / "run")
    assert os.listdir(small) == ["full"]


def test_a_run_for_whose_first_file_there_is_no_room_says_where(small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8k", str(small)], check=True)
    with pytest.raises(UserError, match="the run cannot be written: No space left on device") as told:
        running.run(loads(EXPERIMENT), small / "run")
    assert (told.value.where, told.value.hint) == (str(small / "run"), "make room, or use --out")
    assert os.listdir(small) == []


def test_a_sweep_for_whose_first_file_there_is_no_room_says_so(small: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8k", str(small)], check=True)
    (tmp_path / "sweep.yaml").write_text(EXPERIMENT + "sweep: {seed: [1, 2]}\n")
    done = here("run", str(tmp_path / "sweep.yaml"), "--out", str(small / "sweep"))
    assert done.returncode == MACHINE_CANNOT
    assert "error: the run cannot be written: No space left on device\n" in done.stderr


def test_a_file_that_there_is_no_room_to_write_anew_stays_what_it_was(small: Path) -> None:
    folder = RunFolder.create("run", small / "run")
    folder.write_json("sweep.json", {"points": [1]})
    fill(small)
    with pytest.raises(OSError, match="No space left"):
        folder.write_json("sweep.json", {"points": list(range(10_000))})
    assert json.loads((folder.path / "sweep.json").read_text()) == {"points": [1]}
    assert not (folder.path / "sweep.json.new").exists()


def test_captures_and_samples_that_are_not_whole_say_so_with_their_path(small: Path) -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        pair = f.pair(0, 1, 1 << 20)
        capture, samples = small / "port.pcapng", small / "samples"
        f.fabricd.request("capture", port=f"sw0:{f.port_to('sw0', 'h0')}", path=str(capture))
        f.fabricd.request("sample", path=str(samples), period_ns=100)
        pair.park()
        pair.a.wait(1, wire.FOREVER, pair.write(1 << 20))
        with pytest.raises(FabricdError, match=f"capture {capture} is not whole: No space left on device"):
            f.fabricd.request("capture_stop", path=str(capture))
        with pytest.raises(FabricdError, match=f"samples {samples} are not whole: No space left on device"):
            f.fabricd.request("sample_stop")
        pair.done()
        assert f.fabricd.request("status")["ok"]
