"""What a file that a command has made may take the place of: another file, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results.store.folder import StoreError
from results.store.replaced import replaceable


def test_a_file_may_be_replaced_and_what_a_link_leads_to(tmp_path: Path) -> None:
    file, link = tmp_path / "made.zip", tmp_path / "link.zip"
    assert replaceable(file) == file
    file.write_text("before")
    link.symlink_to(file)
    assert replaceable(file) == replaceable(link) == file


@pytest.mark.parametrize("what", ["device", "link to a device", "pipe", "folder"])
def test_nothing_else_is(tmp_path: Path, what: str) -> None:
    """As root, a file that is moved to /dev/null takes it away from the whole machine."""
    place = tmp_path / "there"
    match what:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "link to a device":
            place.symlink_to("/dev/null")
        case _:
            place = Path("/dev/null")
    with pytest.raises(StoreError, match="is no file, and it stays"):
        replaceable(place)


def test_a_folder_that_is_not_there_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no folder"):
        replaceable(tmp_path / "none" / "made.zip")
