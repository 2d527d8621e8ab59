"""Bytecode of the code that ranks run.

A container sees the code and cannot write: what has changed since it was compiled last would be compiled anew by every
worker, at each start.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path


def keep_compiled(folder: Path) -> None:
    """Compiles what has changed below a folder, if that can be written."""
    changed = [source for source in folder.rglob("*.py") if source.is_file() and not _is_compiled(source)]
    if changed:
        import py_compile

        with suppress(OSError):  # then the others cannot be written, either
            for source in changed:
                # by time, whatever SOURCE_DATE_EPOCH wants: `_is_compiled` looks for that
                by_time = py_compile.PycInvalidationMode.TIMESTAMP
                with suppress(FileNotFoundError):
                    py_compile.compile(str(source), quiet=2, invalidation_mode=by_time)


def _is_compiled(source: Path) -> bool:
    """Whether Python would take the bytecode (PEP 552: of a source of this time and size)."""
    try:
        info = source.stat()
        fields = (0, int(info.st_mtime) & 0xFFFF_FFFF, info.st_size & 0xFFFF_FFFF)
        with open(cache_from_source(str(source)), "rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return head == MAGIC_NUMBER + b"".join(number.to_bytes(4, "little") for number in fields)
