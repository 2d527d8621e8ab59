"""Files that are made whole beside their place, and then take it: what may be replaced so."""

from __future__ import annotations

from pathlib import Path

from results.store.folder import StoreError


def replaceable(path: Path) -> Path:
    """Where a file that is made may be moved to: behind links, and never in the place of a device, pipe or folder.

    Raises StoreError.
    """
    place = path.resolve()
    if not place.parent.is_dir():
        raise StoreError(f"there is no folder {str(path.parent)!r}", str(path), "name one that is there")
    if place.exists() and not place.is_file():
        raise StoreError("there is something here that is no file, and it stays", str(path), "name a file")
    return place
