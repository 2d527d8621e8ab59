"""Proof: what docs/rdma-programs.md says of perftest's programs, option by option, is so on both clocks.

`./setup.sh prove programs [--only WORD] [--write]`. Each row of its table is run at two hosts with the real clock and
with the virtual one: it prints figures and ends with 0, or is refused with the sentence that the row has. `--write`
writes what was found to the page. A new row needs no more than its command.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.parts.perftest_table import CLOCKS, PAGE, results_of, rewritten, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="./setup.sh prove programs", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose command has it, such as 'UD'")
    parser.add_argument("--write", action="store_true", help="write what was found to the page")
    options = parser.parse_args()
    page = PAGE.read_text()
    rows = [row for row in table(page) if options.only in row.command]
    with tempfile.TemporaryDirectory() as folder:
        found = [results_of(rows, clock, Path(folder) / clock) for clock in CLOCKS]
    results = {row.command: (real, virtual) for row, real, virtual in zip(rows, *found, strict=True)}
    moved = [row for row in rows if results[row.command] != (row.real, row.virtual)]
    for row in rows:
        real, virtual = results[row.command]
        more = "  the page says otherwise" if row in moved else ""
        print(f"{row.command:32} real {real:4} virtual {virtual:4}{more}")
    print(f"{len(rows)} rows on both clocks, {len(moved)} other than the page has them")
    if options.write:
        PAGE.write_text(rewritten(page, {row.command: (row.real, row.virtual) for row in table(page)} | results))
    return bool(moved)


if __name__ == "__main__":
    sys.exit(main())
