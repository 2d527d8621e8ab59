"""The score of a drill, against a table that is worked out by hand.

Without mending the weights are D 0.10, L 0.35 + 0.10 = 0.45, T 0.25 + 0.10 = 0.35, E 0.10; with it they are D 0.10,
L 0.35, T 0.25, M 0.20, E 0.10.  F1 is 2 hit / (answered + true).
"""

from __future__ import annotations

import math

import pytest

from drills.sheet import file
from drills.sheet.answer import Claim, Submission, parse
from drills.sheet.carried import possible
from drills.sheet.case import Case
from drills.sheet.places import Ground
from drills.sheet.score import Conduct, right, score
from drills.sheet.truth import Cause
from testbed.base.errors import InputError
from testbed.faults import CATALOGUE

CABLE = ("cable:leaf0-spine0", "port:leaf0:5", "port:spine0:1")
LOSSY = (Cause("loss", CABLE),)
AT_SWITCH = (Cause("loss", ("switch:leaf0",)),)
TWO = (Cause("reduced_rate", CABLE), Cause("incast", ("nic:3",)))
FAMILIES = {("cable", "loss"): frozenset({"loss", "burst_loss", "drop_every"})}
NOW = Conduct(t_ns=0, tau_ns=5e6)
HALF = Conduct(t_ns=5e6 * math.log(2), tau_ns=5e6)  # exp(-t / tau) = 1/2
EVERY_CABLE = " ".join(f"loss@cable:{leaf}-{spine}" for leaf in ("leaf0", "leaf1") for spine in ("spine0", "spine1"))


def course(**more: float) -> Conduct:
    return Conduct(**{"t_ns": 0, "tau_ns": 5e6, **more})  # type: ignore[arg-type]


def claims(text: str | None) -> Submission | None:
    if text is None:
        return None
    words = [] if text == "healthy" else text.split()
    return Submission(tuple(Claim(*word.split("@")) for word in words))


TABLE = [
    # exact: 10 + 45 + 35 + 10
    ("loss@cable:leaf0-spine0", LOSSY, NOW, 100.0),
    # an end of the cable is the cable
    ("loss@port:leaf0:5", LOSSY, NOW, 100.0),
    # both names are one: L = 2 * 1 / (1 + 1)
    ("loss@cable:leaf0-spine0 loss@port:spine0:1", LOSSY, NOW, 100.0),
    # family: T = 2 * 0.7 / 2 = 0.7: 10 + 45 + 24.5 + 10
    ("burst_loss@cable:leaf0-spine0", LOSSY, NOW, 89.5),
    # of a switch nothing is known: the right place only, 10 + 45 + 0 + 10
    ("burst_loss@switch:leaf0", AT_SWITCH, NOW, 65.0),
    ("loss@switch:leaf0", AT_SWITCH, NOW, 100.0),
    # the right place only: 10 + 45 + 0 + 10
    ("cable_down@cable:leaf0-spine0", LOSSY, NOW, 65.0),
    # the right class elsewhere: only that something is wrong; E has L as its factor
    ("loss@cable:leaf1-spine1", LOSSY, NOW, 10.0),
    # not seen at all
    ("healthy", LOSSY, NOW, 0.0),
    # exact, and late: 10 + 45 + 35 + 5
    ("loss@cable:leaf0-spine0", LOSSY, HALF, 95.0),
    # one too many: L = T = 2 * 1 / (2 + 1) = 2/3; 10 + 30 + 23.333 + 6.667
    ("loss@cable:leaf0-spine0 loss@cable:leaf1-spine1", LOSSY, NOW, 70.0),
    # all four uplinks: L = T = 2 / (4 + 1) = 0.4; 10 + 18 + 14 + 4
    (EVERY_CABLE, LOSSY, NOW, 46.0),
    # half of two causes: L = T = 2 / (1 + 2) = 2/3, as one too many
    ("incast@nic:3", TWO, NOW, 70.0),
    # both places, classes the other way round: T = 0; 10 + 45 + 0 + 10
    ("incast@cable:leaf0-spine0 reduced_rate@nic:3", TWO, NOW, 65.0),
    # both, and late: 10 + 45 + 35 + 5
    ("reduced_rate@port:leaf0:5 incast@nic:3", TWO, HALF, 95.0),
    # two hints cost 10, a wrong answer before 10
    ("loss@cable:leaf0-spine0", LOSSY, course(hints=2, wrong=1), 80.0),
    # three hints cost 20, two wrong answers 20: 10 - 40 is 0
    ("loss@cable:leaf1-spine1", LOSSY, course(hints=3, wrong=2), 0.0),
    # 0.1 ms of job time lost in ln 2 * 5 ms = 3.4657 ms: 30 * 0.028854 = 0.8656; 95 - 0.8656
    ("loss@cable:leaf0-spine0", LOSSY, Conduct(t_ns=HALF.t_ns, tau_ns=5e6, lost_ns=1e5), 94.1344),
    # mended by half: v goes from 10 to 18 of 10..26; 10 + 35 + 25 + 10 + 10
    ("loss@cable:leaf0-spine0", LOSSY, course(speed=18, speed_fault=10, speed_mended=26), 90.0),
    # mended, and the wrong thing named: 10 + 0 + 0 + 20 + 0
    ("loss@cable:leaf1-spine1", LOSSY, course(speed=26, speed_fault=10, speed_mended=26), 30.0),
    # worse than before: M is 0, not less; 10 + 35 + 25 + 0 + 10
    ("loss@cable:leaf0-spine0", LOSSY, course(speed=5, speed_fault=10, speed_mended=26), 80.0),
    # the fault has cost less than 1 % of the speed: mending does not count
    ("loss@cable:leaf0-spine0", LOSSY, course(speed=25.9, speed_fault=25.9, speed_mended=26), 100.0),
    # the twin mended at his moment stands as well: the healthy speed is what could be had; 10 + 35 + 25 + 10 + 10
    ("loss@cable:leaf0-spine0", LOSSY, course(speed=13, speed_fault=0, speed_mended=0, speed_healthy=26), 90.0),
    # acting at the last moment does not void M: 10 + 35 + 25 + 0 + 10
    ("loss@cable:leaf0-spine0", LOSSY, course(speed=10, speed_fault=10, speed_mended=10, speed_healthy=26), 80.0),
    # no speed at all: nothing is divided
    ("loss@cable:leaf0-spine0", LOSSY, course(speed=0, speed_fault=0, speed_mended=0), 100.0),
    # a healthy world, and what was done to it: 0.1 of 1 ms is 3
    ("healthy", (), course(t_ns=1e6, lost_ns=1e5), 97.0),
    ("loss@cable:leaf0-spine0", (), NOW, 0.0),
    # given up
    (None, LOSSY, NOW, 0.0),
    (None, (), NOW, 0.0),
]


@pytest.mark.parametrize(("answer", "truth", "how", "total"), TABLE)
def test_to_the_digit(answer: str | None, truth: tuple[Cause, ...], how: Conduct, total: float) -> None:
    found = score(claims(answer), truth, how, FAMILIES).total
    assert found == pytest.approx(total, abs=1e-4) == round(found, 4)


def test_an_answer_is_right_if_nothing_is_missing_and_nothing_too_much() -> None:
    def of(text: str, truth: tuple[Cause, ...]) -> bool:
        answer = claims(text)
        assert answer is not None
        return right(answer, truth, FAMILIES)

    assert of("loss@cable:leaf0-spine0", LOSSY) and of("drop_every@port:spine0:1", LOSSY)
    assert of("healthy", ()) and not of("healthy", LOSSY) and not of("incast@nic:3", ())
    assert not of("loss@cable:leaf0-spine0 loss@nic:1", LOSSY)
    assert not of("loss@cable:leaf0-spine0 burst_loss@cable:leaf0-spine0", LOSSY)
    assert not of("incast@nic:3", TWO) and of("incast@nic:3 reduced_rate@cable:leaf0-spine0", TWO)
    assert not of("corruption@cable:leaf0-spine0", LOSSY)


def test_naming_everything_is_worth_less_than_15() -> None:
    everything = " ".join(f"loss@nic:{rank}" for rank in range(60)) + " " + EVERY_CABLE
    assert score(claims(everything), LOSSY, NOW, FAMILIES).total < 15


@pytest.mark.parametrize(
    "name", ["together/tuesdays-maintenance", "congestion/two-slow-things", "corruption/bad-last-hop"]
)
def test_naming_every_place_of_a_fabric_is_worth_less_than_15(name: str) -> None:
    """Of drills with three causes, with two, and of the smallest fabric; at once, before anything is mended."""
    drill = file.load(name)
    case = Case.of(drill, "7Q4", False)
    fabric, truth = case.experiment.build_fabric(), case.draw(possible(case.experiment)).truth
    places = [place for kind in ("cable", "switch", "port", "nic") for place in Ground(fabric, ()).all_of(kind)]
    how = course(speed=10, speed_fault=10, speed_mended=26) if drill.asks_to_fix else NOW
    worth = {}
    for kind in {"loss", "loop", "straggler", "reduced_rate"} - {cause.kind for cause in truth}:
        worth[kind] = score(parse(" ".join(f"{kind}@{place}" for place in places), fabric), truth, how).total
    assert max(worth.values()) < 15
    every = [f"{kind}@{place}" for kind in CATALOGUE for place in places]
    with pytest.raises(InputError, match=f"{len(every)} causes"):
        parse(" ".join(every), fabric)


def test_two_faults_at_one_place_are_one_place() -> None:
    both = (Cause("loss", CABLE), Cause("reduced_rate", CABLE))
    found = score(claims("loss@cable:leaf0-spine0"), both, NOW)
    assert (found.where, found.what) == (1.0, pytest.approx(2 / 3))


def test_one_claim_names_one_cause() -> None:
    """What is exact is not another one's family besides: 2 x 1 / (1 + 2)."""
    both = (Cause("burst_loss", CABLE), Cause("loss", CABLE))
    assert score(claims("burst_loss@cable:leaf0-spine0"), both, NOW, FAMILIES).what == pytest.approx(2 / 3)
