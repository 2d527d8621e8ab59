"""Rows of the table of docs/rdma-programs.md in containers, on both clocks; `./setup.sh prove programs` tries all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parts.perftest_table import CLOCKS, PAGE, results_of, rewritten, table
from tests.parts.rdma_programs import require

SOME = ("ib_write_bw -q 4", "ib_write_bw -R", "ib_send_lat -R", "ib_read_lat -e", "ib_write_bw -e")
"""Several queue pairs; by the connection manager; with completion events; and one that is refused."""


@pytest.mark.parametrize("clock", CLOCKS)
def test_rows_are_as_the_page_has_them(clock: str, tmp_path: Path) -> None:
    require("ib_write_bw")
    rows = [row for row in table(PAGE.read_text()) if row.command in SOME]
    assert len(rows) == len(SOME)
    assert results_of(rows, clock, tmp_path / "run") == [getattr(row, clock) for row in rows]


def test_what_is_found_otherwise_is_said_and_written() -> None:
    page = 'a\n| `ib_a -e` | yes | no | perftest: "never" |\n| `ib_b` |  |  | |\nb'
    refused, new = table(page)
    assert (refused.command, refused.sentence, new.sentence) == ("ib_a -e", "never", "")
    figures = " 65536 5 1.0 1.0 0.1\n"
    assert refused.result([0], figures) == "yes" and refused.result([1], "it is never so") == "no"
    assert new.result([1], "no such device") == "? no such device" and new.result([None], "").startswith("?")
    assert refused.result([0], "nothing measured") == "? nothing measured"
    found = {"ib_a -e": ("no", "yes"), "ib_b": ("yes", "yes")}
    assert rewritten(page, found) == 'a\n| `ib_a -e` | no | yes | perftest: "never" |\n| `ib_b` | yes | yes | |\nb'
