"""What the proof of generated drills says in the end."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.prove_drills import correlated, interval, pairs, summary


def seed(difficulty: float, score: float, classes: tuple[str, ...] = ("loss",), refused: str = "") -> dict[str, Any]:
    return {
        "difficulty": difficulty, "level": "easy" if difficulty < 2 else "hard", "classes": classes,
        "players": {"thresholds": {"score": score}}, "refused": refused, "passes": not refused,
    }  # fmt: skip


@pytest.mark.parametrize("slope", [-1.0, 0.3])
def test_an_interval_is_about_as_wide_as_a_closed_form_says(slope: float) -> None:
    """Bonett and Wright, Psychometrika 65 (2000): Fisher's z has the standard error sqrt((1 + rho^2 / 2) / (n - 3))."""
    draw, n = random.Random(1), 100
    drawn = [seed(x := draw.gauss(0, 1), slope * x + draw.gauss(0, 1)) for _ in range(n)]
    rho, sure = correlated(drawn), interval(pairs(drawn))
    assert rho is not None and sure is not None
    aside = 1.96 * math.sqrt((1 + rho * rho / 2) / (n - 3))
    assert sure == pytest.approx((math.tanh(math.atanh(rho) - aside), math.tanh(math.atanh(rho) + aside)), abs=0.05)


def test_what_falls_all_the_way_falls_in_every_resample() -> None:
    values = [(float(k), -(k**3.0)) for k in range(20)]
    assert interval(values) == interval(values) == pytest.approx((-1.0, -1.0))


@pytest.mark.parametrize("values", [[], [(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)]])
def test_what_has_no_correlation_has_no_interval(values: list[tuple[float, float]]) -> None:
    assert interval(values) is None


def test_the_summary_says_it_of_all_and_by_the_number_of_faults() -> None:
    one = [seed(float(k), 100.0 - k) for k in range(10)]
    two = [seed(20.0 + k, 50.0, ("loss", "jitter")) for k in range(5)]
    out = [seed(1.0, 0.0, ("loss", "meter"), "not solvable: far"), seed(1.0, 0.0, refused="not solvable: near")]
    said = summary([*one, *two, *out])
    assert said[:2] == ["15 of 17 give a drill", "   2 refused: not solvable (1 with 1 fault, 1 with 2 faults)"]
    of_all, of_one, of_two = said[-3:]
    # ranks 0 .. 9 the other way round, then five after them that share the middle of the last five
    assert of_all.startswith(
        "rank correlation of difficulty and score of thresholds: -0.98 (bootstrap over drills, 95 %: "
    )
    assert of_one == (
        "  of 10 drills with 1 fault: -1.00 (bootstrap over drills, 95 %: -1.00 .. -1.00); "
        "means: difficulty 4.5, score 95.5"
    )
    assert of_two == "  of 5 drills with 2 faults: -; means: difficulty 22.0, score 50.0"
