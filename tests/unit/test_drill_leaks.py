"""What the proof of leaks takes for the same: a fabric's id may stand in any number, by chance."""

from __future__ import annotations

import pytest

from tests.prove_drill_leaks import _plain

JOURNAL = b'{"do": "processes", "processes": {"fabricd": {"pid": %s, "start": 2712345}}, "machine": "2f1c9a3e-5b7d/40"}'


@pytest.mark.parametrize(
    ("name", "text", "numbers"),
    [
        ("journal", JOURNAL, [b"31234", b"3ID", b"ID5", b"2ID7", b"ID"]),
        (
            "journal",
            b'{"mark": "ID-%s"}',
            [b"00ab12cd34ef5678", b"00abID34ef5678", b"ID12cd34ef5678", b"00ab12cd34efID"],
        ),
        ("process fabricd 1: open files", b"/dev/null\nsocket:[%s]\nN", [b"412345", b"41ID", b"ID45", b"4ID5", b"ID"]),
    ],
)
def test_an_id_in_a_number_makes_no_difference(name: str, text: bytes, numbers: list[bytes]) -> None:
    first, *others = ([*_plain(name, text % number)] for number in numbers)
    assert all(other == first for other in others)


def test_a_line_that_only_one_of_the_twins_has_makes_one() -> None:
    assert _plain("journal", JOURNAL % b"31234") != _plain("journal", JOURNAL % b"31234" + b'\n{"do": "inject"}')
    assert _plain("journal", b"ID says this") != _plain("journal", b"ID says that")
