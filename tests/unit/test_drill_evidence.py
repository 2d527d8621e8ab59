"""What a line of evidence claims, and what has to show for it."""

from __future__ import annotations

import pytest

from drills.check.evidence import Statement, claims, unknown

DROPS = frozenset({"drops.drops.no_qp new elsewhere", "interfaces errors.errors.RX_DRP new elsewhere", "job worse"})


def told(line: str) -> list[tuple[list[str], list[str], list[str], bool]]:
    return [(one.views, one.shows, one.lacks, one.nothing) for one in claims([line])]


def test_a_look_and_the_words_behind_it_are_a_claim() -> None:
    assert told("`show drops`: `no_qp` at two NICs") == [(["drops"], ["no_qp"], [], False)]
    assert told("`show nics --changed 300us`: `a` here, `b` there") == [(["nics"], ["a", "b"], [], False)]
    assert told("`show nic RANK`: LnkSta") == [(["nic"], [], [], False)]
    assert told("`show nics`: `a`, and no `b`") == [(["nics"], ["a"], ["b"], False)]
    assert told("`show pfc`, `show interfaces errors`: nothing has changed") == [
        (["pfc", "interfaces errors"], [], [], True)
    ]
    assert told("`show flows`: entries are missing; `show logging`: refused") == [
        (["flows"], [], [], False), (["logging"], [], [], False)
    ]  # fmt: skip
    assert told("`probe mesh`: far") == [(["probe mesh"], [], [], False)]
    assert told("`capture`: the DSCP is 26") == told("frames come `twice`") == []


def test_a_view_that_there_is_not_is_said() -> None:
    assert unknown(["`show dropped`: frames"]) == ["there is no such view in its evidence: `show dropped`: frames"]
    assert unknown(["`show interfaces errors --changed 300us`: frames"]) == []


@pytest.mark.parametrize(
    ("claim", "holds", "against"),
    [
        (Statement("", ["drops"], ["no_qp"]), True, ""),
        (Statement("", ["drops"], ["qp"]), False, ""),  # a word is a whole one
        (Statement("", ["drops"], ["no_qp", "crc"]), False, ""),
        (Statement("", ["drops"]), True, ""),
        (Statement("", ["pfc"]), False, ""),
        (Statement("", ["pfc", "drops"]), True, ""),
        (Statement("", ["job"]), True, ""),
        (Statement("", ["pfc"], nothing=True), True, ""),
        (Statement("", ["drops"], nothing=True), True, "drops.drops.no_qp new elsewhere"),
        (Statement("", ["interfaces errors"], [], ["RX_DRP"]), True, "interfaces errors.errors.RX_DRP new elsewhere"),
    ],
)
def test_what_shows(claim: Statement, holds: bool, against: str) -> None:
    assert (claim.holds(DROPS), claim.fails(DROPS)) == (holds, against)
