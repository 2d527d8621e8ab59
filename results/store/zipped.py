"""Folders as zip files, made and unpacked; what is in one that others have made is not trusted."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from pathlib import Path

MOST_BYTES = 16 << 30
MOST_ENTRIES = 1_000_000


def packed(folder: Path, into: Path) -> None:
    """Makes a zip file of a run's folder, which is removed."""
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    shutil.rmtree(folder, ignore_errors=True)


def unpacked(packed: Path, folder: Path) -> None:
    """The folder again. Raises ValueError for a file that is no such folder, or one of more than MOST_BYTES bytes."""
    try:
        with zipfile.ZipFile(packed) as file:
            entries = file.infolist()
            if sum(entry.file_size for entry in entries) > MOST_BYTES or len(entries) > MOST_ENTRIES:
                raise ValueError(f"it has more than {MOST_BYTES >> 30} GiB, or {MOST_ENTRIES} files")
            file.extractall(folder)  # no more than the sizes above; strips what would lead out of the folder
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(str(error)) from None
