"""Where a page, or tables for a paper, may be written."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.base.errors import InputError

PAGE = click.Path(dir_okay=False, path_type=Path)


def checked(out: Path) -> None:
    """Raises InputError for a file that is neither, or whose folder is not there."""
    if out.suffix.lower() not in (".html", ".md", ".tex"):
        raise InputError(f"{str(out)!r}: a page is .html, its tables are .md or .tex", "command line: --out")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {str(out.parent)!r}", "command line: --out")
