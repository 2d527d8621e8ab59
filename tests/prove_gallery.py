"""Proof: the figures of papers are those that docs/gallery.md shows, byte by byte.

`./setup.sh prove gallery [NAME..]`. Every entry is run, and what has moved since it was kept is printed. (The page and
its pictures are made from what is kept, which tests hold: `./setup.sh gallery` writes both.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from railbed.gallery import Made, entries, make
from railbed.gallery.kept import kept


def moved(before: Made, now: Made) -> Iterator[str]:
    for about, value in now.values.items():
        if value != before.values.get(about):
            yield f"{about}: {before.values.get(about)} is {value} now"
    curves = {curve.label: curve.points for curve in before.curves}
    yield from (f"its line {c.label} is another" for c in now.curves if curves.get(c.label) != c.points)


def main() -> int:
    asked, stored, bad = entries(tuple(sys.argv[1:])), kept(), 0
    for entry in asked:
        began = time.monotonic()
        told = list(moved(stored[entry.name], make(entry))) if entry.name in stored else ["it was never made"]
        print(f"{entry.name}: {'; '.join(told) or 'as kept'} ({time.monotonic() - began:.1f} s)", flush=True)
        bad += bool(told)
    print(f"{len(asked)} entries, {bad} moved")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
