"""What a prompt prints on a terminal that is narrower than a table."""

from __future__ import annotations

from drills.play.folded import folded
from testbed.tables.results import counters, lines

ROWS = [{"rank": r, **{f"counter_{k}": 10**k + r for k in range(8)}} for r in range(3)]
TABLE = "\n".join(lines(counters("nics", ROWS, whole=True)))


def test_what_fits_stays_as_it_is() -> None:
    assert folded(TABLE, 300) == TABLE


def test_a_wide_table_comes_in_parts_and_loses_nothing() -> None:
    shown = folded(TABLE, 50)
    assert max(map(len, shown.split("\n"))) <= 50
    parts = [part.split("\n") for part in shown.split("\n\n")]
    assert len(parts) > 1 and all(part[0].split()[0] == "rank" for part in parts)
    for row in ROWS:
        for part in parts:
            names, values = part[0].split(), part[1 + row["rank"]].split()
            assert values == [str(row[name]) for name in names]
    assert {name for part in parts for name in part[0].split()} == set(ROWS[0])


def test_a_title_stays_above_and_tables_apart() -> None:
    shown = folded(f"NICs of all ranks\n{TABLE}\n\nshort: nothing", 50)
    assert shown.startswith("NICs of all ranks\nrank ") and shown.endswith("\n\nshort: nothing")


def test_long_lines_break_between_words_below_what_they_say() -> None:
    text = "  ticket    What it is.\n  show      " + ", ".join(f"view number {k}" for k in range(20))
    shown = folded(text, 60).split("\n")
    assert max(map(len, shown)) <= 60 and shown[0] == "  ticket    What it is."
    assert all(line.startswith(" " * 12 + "v") or line.startswith(" " * 12) for line in shown[2:])
    assert " ".join(" ".join(shown).split()) == " ".join(text.split())


def test_a_column_that_is_too_wide_is_wrapped_and_nothing_is_lost() -> None:
    text = "time_us  who     message\n300.000  fabric  " + "word " * 40
    shown = folded(text.rstrip(), 60)
    assert max(map(len, shown.split("\n"))) <= 60 and shown.split() == text.split()
